"""TLS and compression with NSQ's clients, unchanged: one suite, run by each client's own test file.

The clients of contract.py have a third command here:

    exchange OPTIONS    read a line of bodies from standard input (a JSON list, base64), PUB the first two of them, MPUB
                        the others, consume them all, print their SHA-256 (a JSON list), and leave when the input ends

`OPTIONS` is JSON: topic, nsqd (an address), ca (a file), secret (for AUTH, or null), and upgrades, a list of tls_v1, snappy
and deflate. Messages go both ways through what was negotiated, which is read from /stats while the client is still there.
"""

import base64
import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import httpx
import pytest

from tests.certificates import Authority
from tests.clients.contract import CLIENT_TIMEOUT
from tests.daemons import Daemon

NOISE = Random(1)
SMALL = [b"small %d" % number for number in range(500)] + [NOISE.randbytes(200) for _ in range(100)]
LARGE = [b"abc" * 349_525, NOISE.randbytes(1 << 20)]  # a mebibyte, the largest there is: one shrinks, one does not


@dataclass(frozen=True)
class Secure:
    """An nsqd with a certificate, and who signed it."""

    node: Daemon
    authority: Authority


@dataclass(frozen=True)
class Exchange:
    """What a client made of the command above."""

    digests: list[str]  # of the messages it consumed, sorted
    consumer: dict[str, Any]  # as /stats told of it meanwhile

    @property
    def upgrades(self) -> list[str]:
        """Return the names of the layers that the consumer has negotiated."""
        names = {"tls": "tls_v1", "snappy": "snappy", "deflate": "deflate"}
        return [name for key, name in names.items() if self.consumer[key]]


class Exchanging:
    """Inherited by the contracts about exchanges, and so by the test class of each client, which says how to run it."""

    name: ClassVar[str]  # used for topics, so that clients do not meet
    command: ClassVar[Sequence[str]]

    def bodies(self, compression: str) -> list[bytes]:
        """Return bodies that this client can exchange under the compression."""
        return LARGE + SMALL

    def topic(self, upgrades: list[str]) -> str:
        """Its own for each test of a node."""
        return "-".join([self.name, *upgrades])

    @contextmanager
    def running(
        self, secure: Secure, upgrades: list[str], secret: str | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """The client, killed when it takes too long."""
        ca, nsqd = secure.authority.root, secure.node.tcp
        options = {"topic": self.topic(upgrades), "nsqd": nsqd, "ca": ca, "upgrades": upgrades, "secret": secret}
        command = [*self.command, "exchange", json.dumps(options)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as client:
            killer = threading.Timer(CLIENT_TIMEOUT, client.kill)
            killer.start()
            try:
                yield client
            finally:
                killer.cancel()
                client.kill()

    def exchange(self, secure: Secure, upgrades: list[str], bodies: list[bytes], secret: str | None = None) -> Exchange:
        """Have the client do it to the end. AssertionError, with what it said, if it does not."""
        with self.running(secure, upgrades, secret) as client:
            hand_over(client, bodies)
            digests = client.stdout.readline()
            consumer = consumer_of(secure.node, self.topic(upgrades)) if digests else {}
            _, stderr = client.communicate()
        assert digests, stderr
        assert client.returncode == 0, stderr
        return Exchange(sorted(json.loads(digests)), consumer)


class UpgradeContract(Exchanging):
    """The negotiations of a client must end with the layers that both sides offer."""

    @pytest.mark.parametrize(
        "upgrades",
        [
            ["snappy"],
            ["tls_v1"],
            ["tls_v1", "deflate"],
            *(pytest.param(rest, marks=pytest.mark.campaign) for rest in ([], ["deflate"], ["tls_v1", "snappy"])),
        ],
        ids="-".join,
    )
    def test_exchange(self, secure: Secure, upgrades: list[str]) -> None:
        bodies = self.bodies("".join(name for name in upgrades if name != "tls_v1"))
        exchange = self.exchange(secure, upgrades, bodies)
        assert exchange.digests == digests_of(bodies)
        assert exchange.upgrades == upgrades

    def test_both_compressions_are_refused(self, secure: Secure) -> None:
        with self.running(secure, ["tls_v1", "snappy", "deflate"]) as client:
            stdout, stderr = client.communicate("[]\n")
        assert (stdout, client.returncode) == ("", 1)
        assert "both" in stderr


def hand_over(client: subprocess.Popen[str], bodies: list[bytes]) -> None:
    """Tell the client what to publish."""
    assert client.stdin is not None
    with suppress(BrokenPipeError):  # it has failed already, and says why on standard error
        client.stdin.write(json.dumps([base64.b64encode(body).decode() for body in bodies]) + "\n")
        client.stdin.flush()


def digests_of(bodies: list[bytes]) -> list[str]:
    """What is consumed if all of them arrive, each once."""
    return sorted(hashlib.sha256(body).hexdigest() for body in bodies)


def consumer_of(node: Daemon, topic: str) -> dict[str, Any]:
    """What /stats says of the only consumer of the topic."""
    stats = httpx.get(f"http://{node.http}/stats?format=json&topic={topic}").json()
    (client,) = stats["topics"][0]["channels"][0]["clients"]
    return dict(client)
