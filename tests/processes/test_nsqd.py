"""nsqd as a process, alone and beside nsqlookupd: listeners, flags, exit codes, data directory, signals, SIGHUP, discovery."""

import json
import signal
import ssl
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.ports import lease_port
from tests.certificates import Authority
from tests.daemons import OK, Conversation, Daemon, eventually, nsqd, run, sized

pytestmark = pytest.mark.process

STOP_QUICKLY = 8.0  # s; NSQ needs milliseconds, a busy CI machine some more; one that waits for clients waits for 10


@pytest.fixture(scope="module")
def lookupd() -> Iterator[Daemon]:
    with Daemon("nsqlookupd") as daemon:
        yield daemon


def get(daemon: Daemon, target: str) -> Any:
    answer = httpx.get(f"http://{daemon.http}{target}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(daemon: Daemon, target: str, body: bytes = b"") -> None:
    assert httpx.post(f"http://{daemon.http}{target}", content=body).status_code == 200


def put_lookupds(daemon: Daemon, *addresses: str) -> None:
    url = f"http://{daemon.http}/config/nsqlookupd_tcp_addresses"
    assert httpx.put(url, content=json.dumps(addresses)).json() == list(addresses)


def stats(daemon: Daemon) -> dict[str, Any]:
    """Topics by name, their channels by name: pauses and depths."""
    return {
        topic["topic_name"]: {
            "paused": topic["paused"],
            "depth": topic["depth"],
            "channels": {c["channel_name"]: (c["paused"], c["depth"]) for c in topic["channels"]},
        }
        for topic in get(daemon, "/stats?format=json")["topics"]
    }


def publish(daemon: Daemon, topic: bytes, *bodies: bytes) -> None:
    with Conversation(daemon, b"  V2" + b"".join(b"PUB %s\n" % topic + sized(body) for body in bodies)) as producer:
        assert [producer.frame() for _ in bodies] == [OK] * len(bodies)


def channels(lookupd: Daemon, topic: str) -> list[str]:
    return sorted(get(lookupd, f"/channels?topic={topic}")["channels"])


def registered(lookupd: Daemon, topic: str) -> list[int]:
    """TCP ports of the nodes that have the topic, as nsqlookupd says."""
    answer = httpx.get(f"http://{lookupd.http}/lookup?topic={topic}")
    return sorted(p["tcp_port"] for p in answer.json()["producers"]) if answer.status_code == 200 else []


def port(daemon: Daemon) -> int:
    return int(daemon.tcp.rpartition(":")[2])


# flags and exit codes


def test_what_forbids_a_start_is_fatal(shared: Daemon, tmp_path: Path) -> None:
    free, held = "127.0.0.1:0", tmp_path / "held"
    locked = f"failed to lock data-path: cannot flock directory {held} - resource temporarily unavailable"
    for name in ("new", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "nsqd.dat").write_bytes(b"{")
    with nsqd(held):
        for tcp, http, name, why in (
            (free, free, "held", f"instantiate nsqd - {locked} (possibly in use by another instance of nsqd)\n"),
            (free, free, "broken", "load metadata - "),
            (
                shared.tcp,
                free,
                "new",
                f"instantiate nsqd - listen ({shared.tcp}) failed - address already in use: held by ",
            ),
            (
                free,
                shared.http,
                "new",
                f"instantiate nsqd - listen ({shared.http}) failed - address already in use: held by ",
            ),
        ):
            ended = run("nsqd", "-tcp-address", tcp, "-http-address", http, "-data-path", str(tmp_path / name))
            assert ended.returncode == 1
            assert f"FATAL: failed to {why}" in ended.stderr
            assert (f"(pid {shared.process.pid})" in ended.stderr) is (name == "new")
            assert "Traceback" not in ended.stderr


# signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_quickly_with_clients_connected(number: int, tmp_path: Path) -> None:
    with nsqd(tmp_path) as daemon, ExitStack() as stack:
        clients = [stack.enter_context(Conversation(daemon, b"  V2SUB t c\nRDY 9\n")) for _ in range(20)]
        stack.enter_context(daemon.connect("HTTP")).sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n")  # not complete
        assert [client.frame() for client in clients] == [OK] * 20
        publish(daemon, b"t", b"body")
        since = time.monotonic()
        assert daemon.stop(number) == 0
        assert time.monotonic() - since < STOP_QUICKLY
        assert all(frame[0] == 2 for client in clients for frame in client.frames())


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


# what survives a restart


def test_topology_is_on_disk_soon_and_pause_at_once(tmp_path: Path) -> None:
    with nsqd(tmp_path) as daemon:
        post(daemon, "/topic/create?topic=t")
        file = tmp_path / "nsqd.dat"
        eventually(lambda: file.exists() and b'"t"' in file.read_bytes())
        post(daemon, "/topic/pause?topic=t")
        daemon.kill()  # -9
        assert json.loads(file.read_bytes())["topics"][0]["paused"] is True
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with nsqd(tmp_path) as daemon:
        assert stats(daemon)["t"]["paused"] is True


# discovery


def test_topics_and_channels_are_registered_and_unregistered(shared: Daemon, lookupd: Daemon) -> None:
    post(shared, "/topic/create?topic=before")
    post(shared, "/channel/create?topic=before&channel=old")
    put_lookupds(shared, lookupd.tcp)  # at run time
    eventually(lambda: registered(lookupd, "before") == [port(shared)])
    assert channels(lookupd, "before") == ["old"]
    (producer,) = get(lookupd, "/nodes")["producers"]
    info = get(shared, "/info")
    alike = ("broadcast_address", "hostname", "tcp_port", "http_port", "version")
    assert {key: producer[key] for key in alike} == {key: info[key] for key in alike}
    assert producer["broadcast_address"] == "127.0.0.1"

    publish(shared, b"made", b"body")
    eventually(lambda: registered(lookupd, "made") == [port(shared)])
    with Conversation(shared, b"  V2SUB made here\nSUB made twice\n") as client:
        client.frames()
    with Conversation(shared, b"  V2SUB made passing#ephemeral\n") as client:
        assert client.frame() == OK
        eventually(lambda: channels(lookupd, "made") == ["here", "passing#ephemeral"])
    eventually(lambda: channels(lookupd, "made") == ["here"])  # its last client has left

    post(shared, "/channel/delete?topic=made&channel=here")
    eventually(lambda: get(lookupd, "/debug").keys().isdisjoint({"channel:made:here"}))
    assert registered(lookupd, "made") == [port(shared)]
    post(shared, "/topic/delete?topic=made")
    eventually(lambda: registered(lookupd, "made") == [])

    put_lookupds(shared)
    eventually(lambda: get(lookupd, "/nodes")["producers"] == [])


def test_lookupd_is_down_at_start_and_restarts(tmp_path: Path) -> None:
    address = f"127.0.0.1:{lease_port()}"
    with nsqd(tmp_path, "-lookupd-tcp-address", address) as daemon:
        publish(daemon, b"first", b"body")  # publishing does not wait for it, as it would indefinitely
        daemon.wait_for_line(f"LOOKUPD({address})")
        with Daemon("nsqlookupd", "-tcp-address", address) as lookupd:
            publish(daemon, b"second", b"body")  # the notification makes it try again, before the next ping
            eventually(lambda: registered(lookupd, "second") == [port(daemon)])
            assert registered(lookupd, "first") == [port(daemon)]
            errors = daemon.stderr.count("ERROR: LOOKUPD")
        with Daemon("nsqlookupd", "-tcp-address", address) as lookupd:
            publish(daemon, b"third", b"body")  # over the old connection: it is found broken
            daemon.wait_until(lambda: sum("ERROR: LOOKUPD" in line for line in daemon.lines) > errors, 20)
            publish(daemon, b"fourth", b"body")
            for topic in ("first", "second", "third", "fourth"):
                eventually(lambda topic=topic: registered(lookupd, topic) == [port(daemon)])


def test_what_was_created_is_registered_before_the_answer(tmp_path: Path) -> None:
    with Daemon("nsqlookupd") as lookupd, nsqd(tmp_path, "-lookupd-tcp-address", lookupd.tcp) as daemon:
        daemon.wait_for_line("connected, its HTTP API is at")
        for channel in ("elsewhere", "passing%23ephemeral"):
            post(lookupd, f"/channel/create?topic=made&channel={channel}")
        node = [port(daemon)]
        with Conversation(daemon, b"  V2") as client:
            for number in range(2):
                post(daemon, f"/topic/create?topic=t{number}")
                assert registered(lookupd, f"t{number}") == node
                post(daemon, f"/channel/create?topic=t{number}&channel=c")
                assert channels(lookupd, f"t{number}") == ["c"]
                publish(daemon, f"p{number}".encode(), b"body")
                assert registered(lookupd, f"p{number}") == node
                client.send(f"PUB q{number}\n".encode() + sized(b"x"))
                assert client.frame() == OK
                assert registered(lookupd, f"q{number}") == node
                assert httpx.post(f"http://{daemon.http}/pub?topic=h{number}", content=b"x").text == "OK"
                assert registered(lookupd, f"h{number}") == node
        publish(daemon, b"made", b"first")  # which the channels that are known elsewhere get
        eventually(lambda: stats(daemon)["made"]["channels"] == {"elsewhere": (False, 1)})


def test_a_lookupd_that_hangs_holds_up_its_first_topic_and_no_other(tmp_path: Path) -> None:
    with Daemon("nsqlookupd") as good, Daemon("nsqlookupd") as hung:
        flags = ("-lookupd-tcp-address", good.tcp, "-lookupd-tcp-address", hung.tcp)
        with (
            nsqd(tmp_path, *flags) as daemon,
            Conversation(daemon, b"  V2") as one,
            Conversation(daemon, b"  V2") as other,
        ):
            daemon.wait_until(lambda: sum("connected, its HTTP" in line for line in daemon.lines) == 2, 60)
            post(good, "/channel/create?topic=second&channel=elsewhere")
            hung.process.send_signal(signal.SIGSTOP)
            try:
                one.send(b"PUB first\n" + sized(b"x"))
                other.send(b"PUB first\n" + sized(b"x") + b"PUB first\n" + sized(b"x"))
                assert [other.frame(), other.frame()] == [OK, OK]
                assert one.frame() == OK
                daemon.wait_for_line(f"ERROR: LOOKUPD({hung.tcp}): timed out")
                eventually(lambda: sum(f"ERROR: LOOKUPD({hung.tcp})" in line for line in daemon.lines) >= 2)
                one.send(b"PUB second\n" + sized(b"x"))
                assert one.frame() == OK
                assert registered(good, "second") == [port(daemon)]
                assert stats(daemon)["second"]["channels"].keys() == {"elsewhere"}
            finally:
                hung.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("broken", "request_line"),
    [
        ("from nsqd.core import topic; topic.Topic.seal = None", b"POST /pub?topic=t HTTP/1.1"),  # in a turn
        ("from nsqd.http import health; health.json_response = None", b"GET /info HTTP/1.1"),  # in the HTTP thread
    ],
)
def test_a_bug_stops_the_daemon_loudly(tmp_path: Path, broken: str, request_line: bytes) -> None:
    code = f"import sys; from nsqd import main; {broken}; sys.exit(main.main())"
    with nsqd(tmp_path, command=[sys.executable, "-c", code], tracebacks=True) as daemon:
        with daemon.connect("HTTP") as http:
            http.sendall(request_line + b"\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx")
            assert daemon.wait() == 1
        assert "TypeError: 'NoneType' object is not callable" in daemon.stderr
