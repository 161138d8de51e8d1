"""A real nsqd with what NSQ does not have, switched on: dead letters, limits, requeueing; and what SIGHUP reloads."""

import base64
import json
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.admin.conftest import nsqadmin
from tests.certificates import Authority
from tests.daemons import OK, Conversation, Daemon, Message, eventually, nsqd, sized

pytestmark = pytest.mark.process


def url(daemon: Daemon, path: str) -> str:
    return f"http://{daemon.http}{path}"


def post(daemon: Daemon, path: str, **arguments: str | int) -> httpx.Response:
    return httpx.post(url(daemon, path), params=arguments)


def get(daemon: Daemon, path: str) -> Any:
    return httpx.get(url(daemon, path)).json()


def channel_stats(daemon: Daemon) -> dict[str, Any]:
    stats = httpx.get(url(daemon, "/stats"), params={"format": "json"}).json()
    found: dict[str, Any] = stats["topics"][0]["channels"][0]
    return found


def consume(daemon: Daemon, topic: bytes = b"t") -> Conversation:
    client = Conversation(daemon, b"  V2SUB " + topic + b" c\nRDY 1\n")
    assert client.frame() == OK
    return client


# dead letters


@pytest.fixture
def buried(tmp_path: Path) -> Iterator[tuple[Daemon, list[Message]]]:
    """A node on which three messages have been handed back twice each, and so were given up."""
    with nsqd(tmp_path, "-max-attempts", "2", "-max-attempts", "patient=3") as daemon:
        for body in (b"one", b"two", b"three"):
            assert httpx.post(url(daemon, "/pub"), params={"topic": "t"}, content=body).text == "OK"
        last = []
        with consume(daemon) as client:
            for _ in range(6):
                message = client.message()
                client.send(b"REQ " + message.id + b" 0\n")
                if message.attempts == 2:
                    last.append(message)
            eventually(lambda: channel_stats(daemon).get("buried_count") == 3)
        yield daemon, last


def test_what_is_delivered_too_often_is_kept_with_its_reason(buried: tuple[Daemon, list[Message]]) -> None:
    daemon, last = buried
    stats = channel_stats(daemon)
    assert (stats["depth"], stats["in_flight_count"], stats["deferred_count"], stats["requeue_count"]) == (0, 0, 0, 6)
    answer = httpx.get(url(daemon, "/channel/buried"), params={"topic": "t", "channel": "c", "body": "true"}).json()
    assert answer["buried_count"] == 3
    assert [base64.b64decode(message["body"]) for message in answer["messages"]] == [m.body for m in last]
    assert [message["id"] for message in answer["messages"]] == [m.id.decode() for m in last]
    first = answer["messages"][0]
    assert (first["attempts"], first["reason"], first["body_size"]) == (2, "requeued", len(last[0].body))
    assert first["timestamp"] == last[0].timestamp < first["buried_at"]


def test_buried_messages_are_listed_in_pages(buried: tuple[Daemon, list[Message]]) -> None:
    daemon, last = buried
    where: dict[str, str | int] = {"topic": "t", "channel": "c", "limit": 2}
    page = httpx.get(url(daemon, "/channel/buried"), params=where).json()["messages"]
    assert [message["id"].encode() for message in page] == [m.id for m in last[:2]]
    assert "body" not in page[0]
    rest = httpx.get(url(daemon, "/channel/buried"), params=where | {"after": page[-1]["id"]}).json()["messages"]
    assert [message["id"].encode() for message in rest] == [last[2].id]


def test_a_kicked_message_is_delivered_as_if_it_were_new(buried: tuple[Daemon, list[Message]]) -> None:
    daemon, last = buried
    assert post(daemon, "/channel/buried/kick", topic="t", channel="c", id=last[1].id.decode()).json() == {"kicked": 1}
    with consume(daemon) as client:
        message = client.message()
        assert (message.id, message.attempts, message.body) == (last[1].id, 1, last[1].body)
        client.send(b"FIN " + message.id + b"\n")
        eventually(lambda: channel_stats(daemon)["in_flight_count"] == 0)
    assert post(daemon, "/channel/buried/kick", topic="t", channel="c", id=last[1].id.decode()).json() == {"kicked": 0}
    assert post(daemon, "/channel/buried/kick", topic="t", channel="c", count=10).json() == {"kicked": 2}
    assert "buried_count" not in channel_stats(daemon)


def test_buried_messages_are_finished(buried: tuple[Daemon, list[Message]]) -> None:
    daemon, last = buried
    ids = ",".join(message.id.decode() for message in last[:2])
    assert post(daemon, "/channel/buried/finish", topic="t", channel="c", id=ids).json() == {"finished": 2}
    assert post(daemon, "/channel/buried/finish", topic="t", channel="c", count=1).json() == {"finished": 1}
    assert channel_stats(daemon)["depth"] == 0


def test_a_topic_has_its_own_number_of_attempts(buried: tuple[Daemon, list[Message]]) -> None:
    daemon, _ = buried
    with consume(daemon, b"patient") as client:
        client.send(b"PUB patient\n" + sized(b"x"))
        assert client.frame() == OK
        for attempts in (1, 2, 3):
            message = client.message()
            assert message.attempts == attempts
            client.send(b"REQ " + message.id + b" 0\n")
        answer = lambda: httpx.get(url(daemon, "/channel/buried"), params={"topic": "patient", "channel": "c"}).json()  # noqa: E731
        eventually(lambda: answer()["buried_count"] == 1)


@pytest.mark.parametrize(
    ("path", "arguments", "status", "message"),
    [
        ("kick", {"topic": "t", "channel": "c"}, 400, "MISSING_ARG_ID"),
        ("kick", {"topic": "t", "channel": "c", "id": "short"}, 400, "INVALID_ID"),
        ("kick", {"topic": "t", "channel": "c", "id": "0" * 16 + ","}, 400, "INVALID_ID"),
        ("kick", {"topic": "t", "channel": "c", "id": "é" * 16}, 400, "INVALID_ID"),
        ("finish", {"topic": "t", "channel": "c", "count": "0"}, 400, "INVALID_COUNT"),
        ("finish", {"topic": "t", "channel": "c", "count": "-1"}, 400, "INVALID_COUNT"),
        ("finish", {"topic": "t", "channel": "c", "count": "1001"}, 400, "INVALID_COUNT"),
        ("finish", {"topic": "t", "channel": "c", "count": "٣"}, 400, "INVALID_COUNT"),
        ("finish", {"topic": "t", "channel": "nowhere", "count": "1"}, 404, "CHANNEL_NOT_FOUND"),
        ("finish", {"topic": "nowhere", "channel": "c", "count": "1"}, 404, "TOPIC_NOT_FOUND"),
        ("finish", {"channel": "c", "count": "1"}, 400, "MISSING_ARG_TOPIC"),
    ],
)
def test_wrong_questions_about_dead_letters(
    buried: tuple[Daemon, list[Message]], path: str, arguments: dict[str, str], status: int, message: str
) -> None:
    answer = httpx.post(url(buried[0], f"/channel/buried/{path}"), params=arguments)
    assert (answer.status_code, answer.json()) == (status, {"message": message})


def test_without_the_flag_nothing_is_buried(tmp_path: Path) -> None:
    with nsqd(tmp_path) as daemon, consume(daemon) as client:
        client.send(b"PUB t\n" + sized(b"x"))
        assert client.frame() == OK
        for attempts in range(1, 20):
            message = client.message()
            assert message.attempts == attempts
            client.send(b"REQ " + message.id + b" 0\n")


def test_requeue_on_disconnect(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-requeue-on-disconnect") as daemon:
        with consume(daemon) as client:
            client.send(b"PUB t\n" + sized(b"x"))
            assert client.frame() == OK
            assert client.message().attempts == 1
        with consume(daemon) as other:
            assert other.message().attempts == 2


# limits


def test_topics_and_channels_are_bounded(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-max-topics", "1", "-max-channels", "1") as daemon:
        with Conversation(daemon, b"  V2PUB t\n" + sized(b"x")) as client:
            assert client.frame() == OK
            client.send(b"PUB u\n" + sized(b"x"))
            assert client.frame() == (1, b"E_PUB_FAILED PUB failed topics exceed limit of 1")
            assert client.frame() is None
        with Conversation(daemon, b"  V2SUB t c\n") as client, Conversation(daemon, b"  V2SUB t d\n") as second:
            assert client.frame() == OK
            assert second.frame() == (1, b"E_SUB_FAILED SUB failed channels exceed limit of 1")
        for path, arguments, text in (
            ("/pub", {"topic": "u"}, "TOO_MANY_TOPICS"),
            ("/mpub", {"topic": "u"}, "TOO_MANY_TOPICS"),
            ("/topic/create", {"topic": "u"}, "TOO_MANY_TOPICS"),
            ("/channel/create", {"topic": "t", "channel": "d"}, "TOO_MANY_CHANNELS"),
        ):
            answer = httpx.post(url(daemon, path), params=arguments, content=b"x")
            assert (answer.status_code, answer.json()) == (503, {"message": text})
        assert 'nsqd_refused_total{reason="max_topics"} 4.0' in httpx.get(url(daemon, "/metrics")).text
        assert 'nsqd_refused_total{reason="max_channels"} 2.0' in httpx.get(url(daemon, "/metrics")).text


def test_connections_are_bounded_and_those_refused_are_counted(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-max-connections-per-ip", "1") as daemon:
        with Conversation(daemon, b"  V2PUB t\n" + sized(b"x")) as first:
            assert first.frame() == OK
            with Conversation(daemon) as second:
                assert second.socket.recv(1) == b""
            assert 'nsqd_refused_total{reason="max_connections_per_ip"} 1.0' in httpx.get(url(daemon, "/metrics")).text
        eventually(lambda: _is_served(daemon))


def _is_served(daemon: Daemon) -> bool:
    with Conversation(daemon) as client:
        try:
            client.send(b"  V2PUB t\n" + sized(b"x"))
            return client.frame() == OK
        except ConnectionError:  # the place is not free yet
            return False


def test_silence_is_not_kept(tmp_path: Path) -> None:
    with (
        nsqd(tmp_path, "-identify-timeout", "2s") as daemon,
        Conversation(daemon) as silent,
        Conversation(daemon, b"  V2") as polite,
        Conversation(daemon, b"  V2NOP\n") as talking,
    ):
        assert silent.frame() is None
        assert polite.frame() is None
        talking.send(b"PUB t\n" + sized(b"x"))
        assert talking.frame() == OK


# SIGHUP


def test_sighup_takes_over_the_log_level(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.cfg"
    config.write_text('log_level = "info"\n')
    with nsqd(tmp_path, "-config", str(config)) as daemon:
        config.write_text('log_level = "debug"\n')
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_line("SIGHUP: log level debug")
        assert httpx.get(url(daemon, "/config/log_level")).text == "1"
        config.write_text("log_level = 7\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_line("SIGHUP: cannot reload the configuration, nothing was changed: ")
        assert httpx.get(url(daemon, "/config/log_level")).text == "1"


def serial(daemon: Daemon, name: str, context: ssl.SSLContext) -> bytes:
    """The certificate that one of the daemon's listeners shows, through IDENTIFY on TCP."""
    sock = daemon.connect(name)
    if name == "TCP":
        sock.sendall(b"  V2IDENTIFY\n" + sized(json.dumps({"feature_negotiation": True, "tls_v1": True}).encode()))
        assert b'"tls_v1":true' in sock.recv(4096)
    with context.wrap_socket(sock, server_hostname="localhost") as secure:
        certificate = secure.getpeercert(binary_form=True)
        assert certificate
        return certificate


def test_sighup_loads_certificates_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    flags = (*authority.flags(), "-https-address", "127.0.0.1:0")
    with nsqd(tmp_path / "data", *flags, listens=("TCP", "HTTP", "HTTPS")) as daemon:
        client = authority.client()
        before = {serial(daemon, name, client) for name in ("TCP", "HTTPS")}
        assert len(before) == 1
        authority.renew()
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_line("SIGHUP: reloaded the certificates")
        after = {serial(daemon, name, client) for name in ("TCP", "HTTPS")}
        assert len(after) == 1
        assert after != before
        Path(authority.key).write_text("no key")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_line("SIGHUP: cannot reload the certificates, the current ones stay in use: ")
        assert {serial(daemon, name, client) for name in ("TCP", "HTTPS")} == after


# topology


def test_zone_and_region_reach_every_answer_about_the_node(tmp_path: Path) -> None:
    where = {"topology_zone": "z1", "topology_region": "r"}
    flags = ("-topology-zone", "z1", "-topology-region", "r")
    with Daemon("nsqlookupd") as lookupd, nsqd(tmp_path / "1", *flags, "-lookupd-tcp-address", lookupd.tcp) as daemon:
        daemon.wait_for_line("connected, its HTTP API is at")
        post(daemon, "/topic/create", topic="t")
        with nsqadmin("-lookupd-http-address", lookupd.http) as admin:
            told = [
                get(daemon, "/info"),
                get(lookupd, "/lookup?topic=t")["producers"][0],
                get(lookupd, "/nodes")["producers"][0],
                get(lookupd, "/debug")["topic:t:"][0],
                get(admin, "/api/nodes")["nodes"][0],
            ]
    assert all(where.items() <= one.items() for one in told), told


def test_without_zone_and_region_no_answer_has_a_key_of_theirs(tmp_path: Path) -> None:
    with nsqd(tmp_path) as daemon:
        info = get(daemon, "/info")
    assert list(info) == [
        "version", "broadcast_address", "hostname", "http_port", "tcp_port", "start_time", "max_heartbeat_interval",
        "max_output_buffer_size", "max_output_buffer_timeout", "max_deflate_level",
    ]  # fmt: skip


def test_a_consumer_in_the_same_zone_is_served_first(tmp_path: Path) -> None:
    flags = ("-enable-experiment", "topology-aware-consumption", "-topology-zone", "z1", "-topology-region", "r")
    with nsqd(tmp_path, *flags) as daemon, Conversation(daemon) as far, Conversation(daemon) as near:
        for client, zone in ((far, "z2"), (near, "z1")):
            asked = {"feature_negotiation": True, "topology_zone": zone, "topology_region": "r"}
            client.send(b"  V2IDENTIFY\n" + sized(json.dumps(asked).encode()) + b"SUB t c\nRDY 1\n")
            identified = client.frame()
            assert identified is not None
            assert json.loads(identified[1])["topology_zone"] == "z1"
            assert client.frame() == OK
        eventually(lambda: channel_stats(daemon)["client_count"] == 2)
        for _ in range(5):
            assert httpx.post(url(daemon, "/pub"), params={"topic": "t"}, content=b"x").text == "OK"
            near.send(b"FIN " + near.message().id + b"\n")
        stats = channel_stats(daemon)
        assert stats["zone_local_msg_count"] == 5
        assert "region_local_msg_count" not in stats
        assert {client["topology_zone"] for client in stats["clients"]} == {"z1", "z2"}
