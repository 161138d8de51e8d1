"""nsqlookupd as a process: its log, its ports, its exit codes, and a conversation over real sockets."""

from __future__ import annotations

import json
import re
import resource
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from lookupd.daemon import Listeners, identity
from lookupd.options import LookupdOptions
from shared.process.daemon import broadcast_address
from shared.process.listen import Listener
from tests.cases import each
from tests.daemons import Daemon, eventually

pytestmark = pytest.mark.process

NODE = b'{"broadcast_address":"node","hostname":"host","tcp_port":4150,"http_port":4151,"version":"1.3.0"}'
IDENTIFY = b"  V1IDENTIFY\n\x00\x00\x00\x61" + NODE


@pytest.fixture(scope="module")
def lookupd() -> Iterator[Daemon]:
    with Daemon("nsqlookupd") as daemon:
        yield daemon


class Client:
    """One connection of an nsqd to nsqlookupd."""

    def __init__(self, daemon: Daemon) -> None:
        self.socket = daemon.connect()
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self) -> bytes:
        """The next reply; b"" when the daemon has closed."""
        size = self.file.read(4)
        return self.file.read(struct.unpack(">i", size)[0]) if size else b""


def get(daemon: Daemon, target: str) -> httpx.Response:
    return httpx.get(f"http://{daemon.http}{target}")


def test_a_producer_comes_and_goes(lookupd: Daemon) -> None:
    with Client(lookupd) as nsqd:
        nsqd.send(IDENTIFY + b"REGISTER t c\n")
        identity = json.loads(nsqd.reply())
        assert nsqd.reply() == b"OK"
        assert list(identity) == ["broadcast_address", "hostname", "http_port", "tcp_port", "version"]
        assert identity["broadcast_address"] == "127.0.0.1"
        assert identity["version"] == "1.3.0"
        assert lookupd.tcp == f"127.0.0.1:{identity['tcp_port']}"
        assert lookupd.http == f"127.0.0.1:{identity['http_port']}"
        (producer,) = get(lookupd, "/lookup?topic=t").json()["producers"]
        host, port = nsqd.socket.getsockname()
        assert producer["remote_address"] == f"{host}:{port}"
        assert "nsqlookupd_connections 1.0" in get(lookupd, "/metrics").text
    lookupd.wait_for_line(f"closed client({host}:{port})")
    form = r"\[nsqlookupd\] [\d/]{10} [\d:.]{15} INFO: nsqlookupd v1\.3\.0 \(built w/python[0-9.]+\) penstock [0-9.]+\n"
    assert re.fullmatch(form, lookupd.lines[0])
    assert "WARNING" not in lookupd.stderr
    assert get(lookupd, "/lookup?topic=t").json() == {"channels": ["c"], "producers": []}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_clients_connected(number: int) -> None:
    with Daemon("nsqlookupd") as daemon, Client(daemon) as nsqd, ThreadPoolExecutor(1) as pool:
        nsqd.send(IDENTIFY)
        assert nsqd.reply()
        unknown = get(daemon, "/lookup?topic=t&wait=0s")
        poll = pool.submit(get, daemon, f"/lookup?topic=t&wait=60s&version={unknown.json()['version']}")
        eventually(lambda: "nsqlookupd_long_polls 1.0" in get(daemon, "/metrics").text)
        assert daemon.stop(number) == 0
        assert nsqd.reply() == b""
        assert (poll.result().status_code, poll.result().text) == (404, unknown.text)


def test_out_of_file_descriptors() -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))

    with Daemon("nsqlookupd", preexec_fn=few) as daemon:
        crowd = [daemon.connect() for _ in range(80)]
        daemon.wait_for_line("temporary Accept() failure")
        for peer in crowd:
            peer.close()
        with Client(daemon) as nsqd:
            nsqd.send(b"  V1PING\n")
            assert nsqd.reply() == b"OK"


def test_silence_ends_a_connection() -> None:
    with Daemon("nsqlookupd", "-identify-timeout", "200ms") as daemon, Client(daemon) as silent:
        assert silent.reply() == b""
        daemon.wait_for_line("no IDENTIFY within 0.2 s")
    with Daemon("nsqlookupd", "-idle-timeout", "300ms") as daemon, Client(daemon) as nsqd, Client(daemon) as drip:
        nsqd.send(IDENTIFY)
        drip.send(IDENTIFY + b"REGISTER half-a-command")
        assert nsqd.reply()
        assert drip.reply()
        assert (nsqd.reply(), drip.reply()) == (b"", b"")
        daemon.wait_for_line("no command within 0.3 s")


@pytest.mark.parametrize("broken", ["ping", "topics"])  # one met over TCP, one over HTTP
def test_a_bug_stops_the_daemon_loudly(broken: str) -> None:
    code = f"import sys; from lookupd import daemon, main; daemon.Registry.{broken} = None; sys.exit(main.main())"
    with Daemon("nsqlookupd", command=[sys.executable, "-c", code], tracebacks=True) as daemon:
        with Client(daemon) as nsqd, daemon.connect("HTTP") as http:
            nsqd.send(IDENTIFY + b"PING\n")
            http.sendall(b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert daemon.wait() == 1
        assert "TypeError: 'NoneType' object is not callable" in daemon.stderr


# Its identity without flags, decided without a process


def a_listener(address: str, port: int) -> Listener:
    return Listener(socket.socket(), address, port)


def test_on_loopback_an_unresolvable_hostname_does_no_harm() -> None:
    tcp, http = a_listener("127.0.0.1:4160", 4160), a_listener("127.0.0.1:4161", 4161)
    found = identity(LookupdOptions(), Listeners(tcp, http, None), "no-such-host.invalid")
    assert found == (
        b'{"broadcast_address":"127.0.0.1","hostname":"no-such-host.invalid",'
        b'"http_port":4161,"tcp_port":4160,"version":"1.3.0"}'
    )
    https = a_listener("127.0.0.1:4162", 4162)
    also = identity(LookupdOptions(), Listeners(tcp, http, https), "no-such-host.invalid")
    assert also == found[:-1] + b',"https_port":4162}'
    for listener in (tcp, http, https):
        listener.close()


@each(
    "given, http, tcp, expected",
    [
        ("", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1"),
        ("", "/http.sock", "/tcp.sock", "127.0.0.1"),
        ("", "[::1]:1", "[::1]:2", "::1"),
        ("", "[::]:1", "127.0.0.1:2", "box"),
        ("", "127.0.0.1:1", "10.0.0.1:2", "box"),
        ("me", "127.0.0.1:1", "127.0.0.1:2", "me"),
    ],
)
def test_broadcast_address(given: str, http: str, tcp: str, expected: str) -> None:
    listeners = [a_listener(http, 1), a_listener(tcp, 2)]
    assert broadcast_address(given, listeners, "box") == expected
    for listener in listeners:
        listener.close()
