"""AUTH of NSQ's clients, unchanged, alone and inside TLS and snappy: one suite, run by each client's own test file.

The command is that of upgrades.py. The authorization server knows two secrets: `SESAME` is ann's, who may do everything,
and `POOR` opens a topic that nobody here asks for. All others it refuses. Of an error the message is looked for, not the
code, which gnsq keeps to itself.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx
import pytest

from tests.auth_server import AuthServer, Visit, allowing, says
from tests.certificates import Authority
from tests.clients.upgrades import Exchanging, Secure, digests_of, hand_over
from tests.daemons import nsqd

SESAME, POOR = "open sesame & co", "poor"  # the first wants quoting on its way to the server
ANSWERS = {
    SESAME: says(200, allowing(identity="ann", identity_url="http://ann.test/")),
    POOR: says(200, allowing({"topic": "^other$", "channels": [".*"], "permissions": ["publish", "subscribe"]})),
}
DENIED = says(403, {"message": "who is that?"})


@dataclass(frozen=True)
class Guarded(Secure):
    """A node with a certificate that asks an authorization server."""

    server: AuthServer


@contextmanager
def guarded_node(directory: Path) -> Iterator[Guarded]:
    """One of them, with its server, both stopped in the end."""
    authority = Authority(directory / "authority")

    def mood(visit: Visit) -> None:
        ANSWERS.get(visit.request.query["secret"], DENIED)(visit)

    with AuthServer(mood) as server:
        https = ("-https-address", "127.0.0.1:0")
        with nsqd(directory / "data", *authority.flags(), *https, "-auth-http-address", server.address) as node:
            yield Guarded(node, authority, server)
            assert SESAME not in node.stderr


class AuthContract(Exchanging):
    """Who has the right secret is told from /stats; who has not hears what NSQ says to him."""

    @pytest.mark.parametrize(
        "upgrades", [pytest.param([], marks=pytest.mark.campaign), ["tls_v1", "snappy"]], ids=["alone", "tls-snappy"]
    )
    def test_auth(self, guarded: Guarded, upgrades: list[str]) -> None:
        bodies = self.bodies("snappy")[-20:]
        asked = len(guarded.server.requests)
        exchange = self.exchange(guarded, upgrades, bodies, SESAME)
        assert exchange.digests == digests_of(bodies)
        assert exchange.upgrades == upgrades
        response = {key: value for key, value in exchange.consumer.items() if key.startswith("auth")}
        assert response == {"authed": True, "auth_identity": "ann", "auth_identity_url": "http://ann.test/"}
        queries = [request.query for request in guarded.server.requests[asked:]]
        assert len(queries) == 2  # the producer and the consumer, each once
        tls = "true" if "tls_v1" in upgrades else "false"
        assert {(query["secret"], query["tls"], query["remote_ip"]) for query in queries} == {
            (SESAME, tls, "127.0.0.1")
        }

    @pytest.mark.parametrize(
        ("upgrades", "secret", "error"),
        [
            pytest.param([], "wrong", "AUTH failed(?! for)", marks=pytest.mark.campaign),
            (["tls_v1", "snappy"], "wrong", "AUTH failed(?! for)"),
            (["tls_v1", "snappy"], POOR, "AUTH failed for PUB on"),
            ([], None, "AUTH required before PUB"),
        ],
        ids=["wrong", "wrong-tls-snappy", "poor", "none"],
    )
    def test_refusal(self, guarded: Guarded, upgrades: list[str], secret: str | None, error: str) -> None:
        published = messages(guarded)
        with self.running(guarded, upgrades, secret) as client:
            hand_over(client, self.bodies("snappy")[-20:])
            assert client.stderr is not None
            heard = until(re.compile(error), client.stderr)
        assert re.search(error, heard), heard
        assert messages(guarded) == published


def until(pattern: re.Pattern[str], file: IO[str]) -> str:
    """What the client says up to the line with the pattern: it need not end, pynsq for one connects again indefinitely."""
    heard = ""
    for line in file:
        heard += line
        if pattern.search(line):
            break
    return heard


def messages(secure: Secure) -> int:
    """How many were published to the node."""
    stats = httpx.get(f"http://{secure.node.http}/stats?format=json").json()
    return sum(topic["message_count"] for topic in stats["topics"])
