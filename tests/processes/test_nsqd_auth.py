"""AUTH of a real nsqd beside a real authorization server in every mood.

See docs/design/nsq-protocol.md#auth.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests import web
from tests.auth_server import AuthServer, Mood, Visit, allowing, hangs, says, says_raw
from tests.daemons import ERROR, OK, RESPONSE, Conversation, Daemon, eventually, nsqd, several, sized

pytestmark = pytest.mark.process

MAGIC = b"  V2"
ANN = (RESPONSE, b'{"identity":"ann","identity_url":"","permission_count":1}')
FAILED = (ERROR, b"E_AUTH_FAILED AUTH failed")
LIMITED = {"topic": "^orders", "channels": ["^billing$"], "permissions": ["subscribe"]}
WRITER = {"topic": "^orders$", "channels": ["^$"], "permissions": ["publish"]}


def auth(secret: str) -> bytes:
    return b"AUTH\n" + sized(secret.encode())


def pub(topic: str, body: bytes = b"x") -> bytes:
    return b"PUB %s\n" % topic.encode() + sized(body)


@dataclass
class Moods:
    """What the server answers for each secret; for the others ann may do everything."""

    by_secret: dict[str, Mood] = field(default_factory=dict)

    def __call__(self, visit: Visit) -> None:
        self.by_secret.get(visit.request.query["secret"], says(200, allowing()))(visit)


@dataclass
class Guarded:
    """An nsqd, and the server that it asks."""

    node: Daemon
    server: AuthServer
    moods: Moods

    def asked(self, secret: str) -> int:
        """How often it asked about a secret."""
        return self.server.secrets.count(secret)

    def talk(self, data: bytes) -> list[tuple[int, bytes]]:
        """What is answered to all this, until nsqd closes, for it ends with a fatal error."""
        with Conversation(self.node, MAGIC + data) as conversation:
            return conversation.frames()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    moods = Moods()
    with AuthServer(moods) as server:
        flags = ("-auth-http-address", server.address, "-http-client-request-timeout", "3s", "-log-level", "debug")
        with nsqd(tmp_path_factory.mktemp("guarded"), *flags) as node:
            yield Guarded(node, server, moods)
            assert "sesame" not in node.stderr


def stats(node: Daemon) -> Any:
    return web.get(f"http://{node.http}/stats?format=json").json()


def auth_fields(client: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in client.items() if "auth" in name}


# the conversation


def test_identify_says_that_auth_is_required(guarded: Guarded) -> None:
    with Conversation(guarded.node, MAGIC + b"IDENTIFY\n" + sized(b'{"feature_negotiation":true}')) as conversation:
        frame = conversation.frame()
    assert frame is not None
    assert json.loads(frame[1])["auth_required"] is True


@pytest.mark.parametrize("command", ["PUB", "MPUB", "DPUB", "SUB"])
def test_auth_comes_first(guarded: Guarded, command: str) -> None:
    line = {
        "PUB": pub("orders"),
        "MPUB": b"MPUB orders\n" + several(b"x"),
        "DPUB": b"DPUB orders 5\n" + sized(b"x"),
        "SUB": b"SUB orders billing\n",
    }
    assert guarded.talk(b"NOP\n" + line[command]) == [(ERROR, b"E_AUTH_FIRST AUTH required before " + command.encode())]
    assert all(topic["topic_name"] != "orders" for topic in stats(guarded.node)["topics"])


def test_a_client_is_who_the_server_says(guarded: Guarded) -> None:
    guarded.moods.by_secret["who"] = says(200, allowing(identity="a<b>", identity_url="http://a/?b&c"))
    with Conversation(guarded.node, MAGIC + auth("who") + pub("who") + b"SUB who c\n") as conversation:
        assert conversation.frame() == (
            RESPONSE,
            b'{"identity":"a\\u003cb\\u003e","identity_url":"http://a/?b\\u0026c","permission_count":1}',
        )
        assert conversation.frame() == OK
        assert conversation.frame() == OK
        topic = next(topic for topic in stats(guarded.node)["topics"] if topic["topic_name"] == "who")
        expected = {"authed": True, "auth_identity": "a<b>", "auth_identity_url": "http://a/?b&c"}
        assert auth_fields(topic["channels"][0]["clients"][0]) == expected
        producers = [client for client in stats(guarded.node)["producers"] if client["pub_counts"][0]["topic"] == "who"]
        assert [auth_fields(client) for client in producers] == [expected]
    request = guarded.server.requests[-1]
    assert request.target == "/auth?common_name=&remote_ip=127.0.0.1&secret=who&tls=false"


def test_everything_may_be_sent_at_once_and_in_pieces(guarded: Guarded) -> None:
    data = (
        MAGIC + auth("pieces") + pub("pieces", b"1") + b"MPUB pieces\n" + several(b"2", b"3") + b"SUB pieces c\nRDY 5\n"
    )
    for step in (len(data), 1, 7):
        with Conversation(guarded.node) as conversation:
            for start in range(0, len(data), step):
                conversation.send(data[start : start + step])
            assert [conversation.frame() for _ in range(4)] == [ANN, OK, OK, OK]
            for _ in range(3):
                conversation.send(b"FIN %s\n" % conversation.message().id)
            eventually(lambda: _depth(guarded.node, "pieces") == 0)


def _depth(node: Daemon, name: str) -> int:
    topic = next(topic for topic in stats(node)["topics"] if topic["topic_name"] == name)
    return sum(channel["depth"] + channel["in_flight_count"] for channel in topic["channels"]) + int(topic["depth"])


REFUSED = [
    (WRITER, pub("orders2"), b'PUB on "orders2" ""'),
    (WRITER, b"MPUB orders2\n" + struct.pack(">i", -5), b'MPUB on "orders2" ""'),  # before its body is looked at
    (WRITER, b"DPUB orders2 5\n" + sized(b"x"), b'DPUB on "orders2" ""'),
    (WRITER, b"SUB orders billing\n", b'SUB on "orders" "billing"'),
    (LIMITED, b"SUB orders billing2\n", b'SUB on "orders" "billing2"'),
    (LIMITED, b"SUB my.orders billing\n", b'SUB on "my.orders" "billing"'),
    (LIMITED, pub("orders"), b'PUB on "orders" ""'),
    ({**LIMITED, "permissions": ["publish"]}, pub("orders"), b'PUB on "orders" ""'),  # no channel pattern matches ""
]


@pytest.mark.parametrize(("rule", "command", "what"), REFUSED)
def test_what_is_not_allowed_is_refused(guarded: Guarded, rule: object, command: bytes, what: bytes) -> None:
    guarded.moods.by_secret["limited"] = says(200, allowing(rule))
    assert guarded.talk(auth("limited") + command) == [ANN, (ERROR, b"E_UNAUTHORIZED AUTH failed for " + what)]
    assert not {"orders2", "my.orders"} & {topic["topic_name"] for topic in stats(guarded.node)["topics"]}


def test_what_is_allowed_is_done(guarded: Guarded) -> None:
    guarded.moods.by_secret["both"] = says(200, allowing(LIMITED, WRITER))
    with Conversation(
        guarded.node, MAGIC + auth("both") + pub("orders") + b"SUB orders billing\nRDY 1\n"
    ) as conversation:
        assert conversation.frame() == (RESPONSE, ANN[1].replace(b"1}", b"2}"))
        assert [conversation.frame(), conversation.frame()] == [OK, OK]
        conversation.send(b"FIN %s\n" % conversation.message().id)


def test_names_are_checked_before_permissions(guarded: Guarded) -> None:
    assert guarded.talk(pub("bad!")) == [(ERROR, b'E_BAD_TOPIC PUB topic name "bad!" is not valid')]
    assert guarded.talk(b"SUB t bad!\n") == [(ERROR, b'E_BAD_CHANNEL SUB channel name "bad!" is not valid')]


WRONG = [
    (auth("twice") + auth("twice"), [ANN, (ERROR, b"E_INVALID AUTH already set")]),
    (b"AUTH now\n", [(ERROR, b"E_INVALID AUTH invalid number of parameters")]),
    (b"AUTH\n" + sized(b""), [(ERROR, b"E_BAD_BODY AUTH invalid body size 0")]),
    (b"AUTH\n" + struct.pack(">i", -1), [(ERROR, b"E_BAD_BODY AUTH invalid body size -1")]),
    (b"AUTH\n" + struct.pack(">i", 2**31 - 1), [(ERROR, b"E_BAD_BODY AUTH body too big 2147483647 > 5242880")]),
    (auth("s") + b"SUB t c\n" + auth("s"), [ANN, OK, (ERROR, b"E_INVALID cannot AUTH in current state")]),
]


@pytest.mark.parametrize(("data", "frames"), WRONG)
def test_wrong_use_of_auth(guarded: Guarded, data: bytes, frames: list[tuple[int, bytes]]) -> None:
    assert guarded.talk(data) == frames


def test_a_secret_that_is_too_long_to_ask_about_fails(guarded: Guarded) -> None:
    assert guarded.talk(auth("sesame" * 500_000)) == [FAILED]


def test_without_servers_auth_is_disabled_and_nothing_is_required(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        with Conversation(node, MAGIC + pub("t") + auth("sesame")) as conversation:
            assert conversation.frames() == [OK, (ERROR, b"E_AUTH_DISABLED AUTH disabled")]
        assert "sesame" not in node.stderr


# moods

BAD: list[tuple[str, Mood]] = [
    ("500", says(500)),
    ("403", says(403, b"<html>")),
    ("markup", says(200, b"<html>")),
    ("huge", says(200, b" " * 1_000_000)),
    ("wrong types", says(200, allowing(ttl="60"))),
    ("ttl 0", says(200, allowing(ttl=0))),
    ("bad pattern", says(200, allowing({"topic": "("}))),
    ("unknown permission", says(200, allowing({"permissions": ["all"]}))),
    ("redirects for ever", says(302, b"", Location="/auth?secret=redirect")),
    ("no HTTP", says_raw(b"\x00\xff")),
    ("slow", hangs()),
    ("slow in the body", hangs(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"ttl":')),
]


@pytest.mark.parametrize("mood", [row[1] for row in BAD], ids=[row[0] for row in BAD])
def test_a_server_in_a_bad_mood_authorizes_nobody(guarded: Guarded, mood: Mood) -> None:
    guarded.moods.by_secret["sesame"] = guarded.moods.by_secret["redirect"] = mood
    assert guarded.talk(auth("sesame") + pub("never")) == [FAILED]
    assert all(topic["topic_name"] != "never" for topic in stats(guarded.node)["topics"])


def test_no_authorizations_are_none(guarded: Guarded) -> None:
    guarded.moods.by_secret["none"] = says(200, {"ttl": 60, "authorizations": []})
    assert guarded.talk(auth("none")) == [(ERROR, b"E_UNAUTHORIZED AUTH no authorizations found")]


def test_a_catastrophic_pattern_stops_nobody(guarded: Guarded) -> None:
    guarded.moods.by_secret["regex"] = says(
        200, allowing({"topic": "(a*)*(a|a)*b$", "permissions": ["publish"], "channels": [""]})
    )
    topic = "a" * 64
    assert guarded.talk(auth("regex") + pub(topic)) == [
        ANN,
        (ERROR, b'E_UNAUTHORIZED AUTH failed for PUB on "%s" ""' % topic.encode()),
    ]


def test_nobody_else_waits_for_a_server_that_hangs(guarded: Guarded) -> None:
    guarded.moods.by_secret["hang"] = hangs()
    with Conversation(guarded.node, MAGIC + auth("hang") + pub("hang")) as hanging:
        eventually(lambda: guarded.asked("hang"))
        with Conversation(guarded.node, MAGIC + auth("quick") + pub("quick") + b"SUB quick c\nRDY 1\n") as quick:
            assert [quick.frame(), quick.frame(), quick.frame()] == [ANN, OK, OK]
            quick.message()
        assert hanging.frames() == [FAILED]


def test_a_client_that_leaves_before_the_answer_is_forgotten(guarded: Guarded) -> None:
    guarded.moods.by_secret["left"] = hangs()
    with Conversation(guarded.node, MAGIC + auth("left")):
        eventually(lambda: guarded.asked("left"))
    assert guarded.talk(auth("after") + auth("after")) == [ANN, (ERROR, b"E_INVALID AUTH already set")]


def test_nsqd_stops_while_a_server_hangs(tmp_path: Path) -> None:
    with AuthServer(hangs()) as server:
        flags = ("-auth-http-address", server.address, "-http-client-request-timeout", "1h")
        with nsqd(tmp_path, *flags) as node, Conversation(node, MAGIC + auth("s")):
            eventually(lambda: server.requests)
            assert node.stop() == 0


# expiry


def publish_until(conversation: Conversation, topic: str, end: Any) -> tuple[int, bytes] | None:
    """PUB until `end(frame)`; return that frame. All others are OK."""
    while True:
        conversation.send(pub(topic))
        frame = conversation.frame()
        if end(frame):
            return frame
        assert frame == OK


def test_after_the_ttl_the_server_is_asked_again(guarded: Guarded) -> None:
    guarded.moods.by_secret["short"] = says(200, allowing(ttl=1))
    with Conversation(guarded.node, MAGIC + auth("short")) as conversation:
        assert conversation.frame() == ANN
        publish_until(conversation, "expiry", lambda _: guarded.asked("short") == 3)


AFTERWARDS = [
    (says(500), FAILED),
    (says(200, allowing(WRITER)), (ERROR, b'E_UNAUTHORIZED AUTH failed for PUB on "expiry" ""')),
    (says(200, {"ttl": 9, "authorizations": []}), (ERROR, b'E_UNAUTHORIZED AUTH failed for PUB on "expiry" ""')),
]


@pytest.mark.parametrize(("mood", "error"), AFTERWARDS)
def test_the_second_answer_counts(guarded: Guarded, mood: Mood, error: tuple[int, bytes]) -> None:
    guarded.moods.by_secret["change"] = says(200, allowing(ttl=1))
    with Conversation(guarded.node, MAGIC + auth("change")) as conversation:
        assert conversation.frame() == ANN
        guarded.moods.by_secret["change"] = mood
        assert publish_until(conversation, "expiry", lambda frame: frame != OK) == error
        assert conversation.frame() is None


def test_a_subscription_outlives_its_authorization(guarded: Guarded) -> None:
    guarded.moods.by_secret["sub"] = says(200, allowing(ttl=1))
    with Conversation(guarded.node, MAGIC + auth("sub") + b"SUB outlive c\nRDY 9\n") as consumer:
        assert [consumer.frame(), consumer.frame()] == [ANN, OK]
        with Conversation(guarded.node, MAGIC + auth("sub")) as later:
            assert later.frame() == ANN
            guarded.moods.by_secret["sub"] = says(500)
            assert publish_until(later, "expiry", lambda frame: frame != OK) == FAILED
        web.post(f"http://{guarded.node.http}/pub?topic=outlive", content=b"still").raise_for_status()
        message = consumer.message()
        assert message.body == b"still"
        consumer.send(b"FIN %s\nCLS\n" % message.id)
        assert consumer.frame() == (RESPONSE, b"CLOSE_WAIT")


# how it asks


def test_the_next_server_is_asked_when_one_is_dead(tmp_path: Path) -> None:
    with AuthServer(says(200, allowing())) as good, AuthServer(says(500)) as broken:
        flags = [
            flag
            for address in ("127.0.0.1:1", broken.address, good.address)
            for flag in ("-auth-http-address", address)
        ]
        with nsqd(tmp_path, *flags) as node:
            for _ in range(10):
                with Conversation(node, MAGIC + auth("s") + pub("t")) as conversation:
                    assert [conversation.frame(), conversation.frame()] == [ANN, OK]
    assert len(good.requests) == 10


def test_all_servers_dead(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-auth-http-address", "127.0.0.1:1", "-auth-http-address", "http://127.0.0.1:2/auth") as node:
        with Conversation(node, MAGIC + auth("sesame")) as conversation:
            assert conversation.frames() == [FAILED]
        line = node.wait_for_line("127.0.0.1:1 - ConnectError")
        assert "http://127.0.0.1:2/auth - ConnectError" in line
        assert "sesame" not in node.stderr


def test_post(tmp_path: Path) -> None:
    with AuthServer(says(200, allowing())) as server:
        flags = ("-auth-http-address", f"http://{server.address}/who", "-auth-http-request-method", "post")
        with nsqd(tmp_path, *flags) as node, Conversation(node, MAGIC + auth("s")) as conversation:
            assert conversation.frame() == ANN
    assert (server.requests[0].method, server.requests[0].target) == ("POST", "/who")
    expected = {"common_name": [""], "remote_ip": ["127.0.0.1"], "secret": ["s"], "tls": ["false"]}
    assert json.loads(server.requests[0].body) == expected


def test_a_client_on_a_unix_socket_has_no_ip(tmp_path: Path) -> None:
    with AuthServer(says(200, allowing())) as server:
        flags = ("-auth-http-address", server.address, "-tcp-address", str(tmp_path / "tcp.sock"))
        with nsqd(tmp_path / "data", *flags) as node, Conversation(node, MAGIC + auth("s")) as conversation:
            assert conversation.socket.family == socket.AF_UNIX
            assert conversation.frame() == ANN
    assert server.requests[0].query["remote_ip"] == ""


def test_an_https_server_must_be_signed_by_the_authority_given(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for signer, frame in ((authority, ANN), (stranger, FAILED)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        signer.issue_cert("127.0.0.1").configure_cert(context)
        with AuthServer(says(200, allowing()), context) as server:
            flags = (
                "-auth-http-address",
                f"https://{server.address}/auth",
                "-tls-root-ca-file",
                str(tmp_path / "ca.pem"),
            )
            with nsqd(tmp_path / "data", *flags) as node, Conversation(node, MAGIC + auth("s")) as conversation:
                assert conversation.frame() == frame


def test_tls_and_the_name_of_the_certificate_are_told(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ours = authority.issue_cert("localhost")
    ours.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    ours.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    authority.issue_cert("ann.example", common_name="ann & co").configure_cert(context)
    with AuthServer(says(200, allowing())) as server:
        paths = {"tls-cert": "cert.pem", "tls-key": "key.pem", "tls-root-ca-file": "ca.pem"}
        flags = [part for name, path in paths.items() for part in (f"-{name}", str(tmp_path / path))]
        flags += ["-tls-client-auth-policy", "require-verify", "-auth-http-address", server.address]
        identify = b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"tls_v1":true}')
        with (
            nsqd(tmp_path / "data", *flags, "-https-address", "127.0.0.1:0") as node,
            Conversation(node, MAGIC + identify) as plain,
        ):
            assert plain.frame() is not None
            secure = context.wrap_socket(plain.socket, server_hostname="localhost")
            with secure, secure.makefile("rb") as file:
                secure.sendall(auth("s"))
                assert file.read(10) == struct.pack(">ii", 6, RESPONSE) + b"OK"
                assert file.read(8 + len(ANN[1]))[8:] == ANN[1]
    assert server.requests[0].query == {
        "common_name": "ann & co",
        "remote_ip": "127.0.0.1",
        "secret": "s",
        "tls": "true",
    }
