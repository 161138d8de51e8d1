"""The observation of a real nsqd: statsd, and the debug routes about threads."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, eventually, nsqd, sized
from tests.shared.http.test_debug import DEBUG_ROUTES

pytestmark = pytest.mark.process


def get(daemon: Daemon, path: str, **options: Any) -> httpx.Response:
    return httpx.get(f"http://{daemon.http}{path}", timeout=20.0, **options)


# statsd


class Statsd:
    """A listener on a UDP port."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.packets: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Statsd:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.sendto(b"", self.socket.getsockname())  # makes the reader end
        self._reader.join()
        self.socket.close()

    @property
    def address(self) -> str:
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def lines(self) -> list[str]:
        return b"".join(self.packets).decode().splitlines()

    def _read(self) -> None:
        while packet := self.socket.recv(65536):
            self.packets.append(packet)


STATSD = ("-statsd-interval", "100ms", "-broadcast-address", "a.b", "-broadcast-http-port", "1")


def test_statsd(tmp_path: Path) -> None:
    with Statsd() as statsd, nsqd(tmp_path, "-statsd-address", statsd.address, *STATSD) as daemon:
        with Conversation(daemon, b"  V2PUB t#ephemeral\n" + sized(b"hello")) as client:
            assert client.frame() == OK
        eventually(lambda: "nsq.a_b_1.topic.t#ephemeral.message_count:1|c" in statsd.lines())
        eventually(lambda: statsd.lines().count("nsq.a_b_1.topic.t#ephemeral.message_count:0|c") > 1)
        eventually(lambda: statsd.lines().count("nsq.a_b_1.mem.next_gc_bytes:0|g") > 1)
        assert statsd.lines().count("nsq.a_b_1.topic.t#ephemeral.message_count:1|c") == 1
        assert all(len(packet) <= 508 and packet.endswith(b"\n") for packet in statsd.packets)


def test_a_missing_statsd_stops_nothing(tmp_path: Path) -> None:
    with Statsd() as statsd:
        address = statsd.address
    with nsqd(tmp_path, "-statsd-address", address, *STATSD, "-statsd-udp-packet-size", "1") as daemon:
        daemon.wait_for_line("Connection refused")  # of the second packet: the first one's answer
        assert get(daemon, "/ping").text == "OK"
        host, _, port = address.rpartition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as late:
            late.bind((host, int(port)))
            late.settimeout(20.0)
            assert late.recv(65536).startswith(b"nsq.a_b_1.")
            daemon.wait_for_line("works again")


# debug routes

PROFILE = b"GET /debug/pprof/profile?seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def debugged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    secret = "http://user:password@127.0.0.1:1/auth"
    with nsqd(tmp_path_factory.mktemp("debugged"), "-debug-routes", "-statsd-address", secret) as daemon:
        yield daemon


def test_with_the_flag_there_are(debugged: Daemon) -> None:
    for path, method in DEBUG_ROUTES.items():
        answer = httpx.request(method, f"http://{debugged.http}{path}?seconds=1&rate=1", timeout=20.0)
        assert answer.status_code in (200, 501), path
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_profile_and_no_second_one_meanwhile(debugged: Daemon) -> None:
    with socket.create_connection(tuple(debugged.http.split(":"))) as first:
        first.sendall(PROFILE)
        eventually(lambda: "thread sampler (" in get(debugged, "/debug/pprof/goroutine").text)
        assert get(debugged, "/debug/pprof/profile?seconds=1").status_code == 503
    # It hung up: its profile ends, and the next one may begin.
    answers: list[httpx.Response] = []

    def served() -> bool:
        answers.append(get(debugged, "/debug/pprof/profile?seconds=1"))
        return answers[-1].status_code == 200

    eventually(served)
    lines = answers[-1].text.splitlines()
    assert lines
    assert all(re.fullmatch(r".+;.+ \d+", line) for line in lines)
    assert any(line.startswith("MainThread;") and "trio" in line for line in lines)
