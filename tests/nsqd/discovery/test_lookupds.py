"""What nsqd takes from an nsqlookupd about a new topic's channels: bounded in bytes, memory, names and time."""

import gzip
import json
import ssl
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from nsqd.discovery.lookupds import Lookupds
from nsqd.discovery.queries import MOST_ANSWER, MOST_ANSWER_MEMORY, MOST_CHANNELS
from shared.auth import own_token as own_token_module
from shared.tls.client import ClientCertificates, load_client
from tests.auth_server import AuthServer, Mood, never_ends, says
from tests.certificates import Authority

pytestmark = pytest.mark.process


async def queried(server: AuthServer, scheme: str = "http", read_timeout: float = 5.0, **more: Any) -> list[str]:
    names: dict[str, None] = {}
    async with trio.open_nursery() as nursery:
        lookupds = Lookupds(None, {}, (1.0, read_timeout), lambda: None, nursery, **more)
        await lookupds._query(f"{scheme}://{server.address}", "t", names)
    return list(names)


async def found(mood: Mood, read_timeout: float = 5.0) -> list[str]:
    with AuthServer(mood) as server:
        names = await queried(server, read_timeout=read_timeout)
    assert server.requests[0].headers["accept-encoding"] == "identity", "nothing that is packed is asked for"
    return names


def channels(*names: Any) -> bytes:
    return json.dumps({"channels": names}).encode()


async def test_channels_are_valid_names_each_once() -> None:
    assert await found(says(200, channels("b", "a", "b", 7, None, "no such", "x" * 65, "e#ephemeral"))) == [
        "b", "a", "e#ephemeral",
    ]  # fmt: skip


BAD: list[tuple[str, Mood]] = [
    ("a bomb", says(200, gzip.compress(channels(*["a" * 60] * 20)), Content_Encoding="gzip")),
    ("too long", says(200, b" " * MOST_ANSWER + channels("a"))),
    ("endless", never_ends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b" " * 4096 + b"\r\n")),
    ("too much memory", says(200, channels(*[[]] * (MOST_ANSWER_MEMORY // 160), "a"))),
    ("too many", says(200, channels(*["a"] * (MOST_CHANNELS + 1)))), ("no list", says(200, b'{"channels":{"a":1}}')),
    ("no object", says(200, b'["channels"]')), ("no channels", says(200, b"{}")), ("no JSON", says(200, b"a")),
    ("deep", says(200, b'{"channels":["a",' + b"[" * 1000 + b"]" * 1000 + b"]}")), ("404", says(404, channels("a"))),
]  # fmt: skip


@pytest.mark.parametrize("mood", [row[1] for row in BAD], ids=[row[0] for row in BAD])
async def test_a_topic_starts_without_an_answer_that_is_none(mood: Mood) -> None:
    assert await found(mood) == []


async def test_an_answer_that_drips_is_not_waited_for() -> None:
    """A byte every 50 ms passes every timeout for one read: a new topic would never start."""
    drips = never_ends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", 0.05)
    with trio.fail_after(30):
        assert await found(drips, 0.2) == []


def warnings_for(addresses: list[str], token: str, tls: object, caplog: pytest.LogCaptureFixture) -> list[str]:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            broker = SimpleNamespace(directory=SimpleNamespace(), topics={})
            lookupds = Lookupds(broker, {}, (1.0, 1.0), lambda: None, nursery, tls=tls)
            lookupds.set_addresses(addresses)
            nursery.cancel_scope.cancel()

    own_token_module._own[0] = token
    try:
        trio.run(run)
    finally:
        own_token_module._own[0] = ""
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_token_in_clear_text_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    far = ["127.0.0.1:1", "lookup.test:1", "other.test:1"]
    assert warnings_for(far, "", None, caplog) == []
    assert warnings_for(["127.0.0.1:1", "localhost:1", "no address"], "pst_x", None, caplog) == []
    assert warnings_for(far, "pst_x", object(), caplog) == []
    assert warnings_for(far, "pst_x", None, caplog) == [
        "LOOKUPD(lookup.test:1): the token of -auth-token-file is sent in clear text: use TLS, by -lookupd-tls-root-ca-file"
    ]


@pytest.mark.parametrize(("is_trusted", "names"), [(True, ["a"]), (False, [])])
async def test_a_query_over_tls_needs_a_trusted_authority(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_trusted: bool, names: list[str]
) -> None:
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(authority.cert, authority.key)
    tls = ClientCertificates(partial(load_client, authority.root if is_trusted else other.root))
    with AuthServer(says(200, channels("a")), server_side) as server:
        assert await queried(server, "https", tls=tls) == names
    logged = "certificate verify failed" in caplog.text and "-lookupd-tls-root-ca-file must name" in caplog.text
    assert logged is not is_trusted
