"""nsqd among clients that are broken, greedy or malicious, over real sockets.

What holds throughout: the daemon lives and prints no traceback, its memory and descriptors come back, and a well-behaved
witness loses no message and does not wait.

See docs/contributing/testing.md#hostile-clients.
"""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from shared.process.listen import SPARE_FILES
from tests.daemons import MESSAGE, OK, Conversation, Daemon, eventually, nsqd, several, sized

pytestmark = pytest.mark.process

MAGIC_TIME = 10.0  # s a connection may take to say "  V2", and a HTTP client to send its header
PROMPT = 9.0  # s: a node that waits for a broken client waits for MAGIC_TIME, or indefinitely
PAGE = resource.getpagesize()


class Witness:
    """A client that behaves: publishes to its own topic, and must get each message back at once."""

    def __init__(self, daemon: Daemon) -> None:
        self._talk = Conversation(daemon, b"  V2SUB witness c\nRDY 1\n", timeout=MAGIC_TIME)
        self._count = 0
        assert self._talk.frame() == OK

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *_: object) -> None:
        self._talk.close()

    def round_trip(self) -> float:
        """Publish, receive, finish. Returns how long it took, in s."""
        self._count += 1
        body, since = b"%d" % self._count, time.monotonic()
        self._talk.send(b"PUB witness\n" + sized(body))
        frames = [self._talk.frame(), self._talk.frame()]
        took = time.monotonic() - since
        assert OK in frames
        (message,) = (frame[1] for frame in frames if frame and frame[0] == MESSAGE)
        assert (message[8:10], message[26:]) == (b"\x00\x01", body)
        self._talk.send(b"FIN %s\n" % message[10:26])
        return took


@pytest.fixture
def witness(shared: Daemon) -> Iterator[Witness]:
    with Witness(shared) as found:
        found.round_trip()
        httpx.get(f"http://{shared.http}/info").raise_for_status()  # its HTTP server is there, with its descriptors
        yield found


def rss(daemon: Daemon) -> int:
    """Return the resident bytes of the process."""
    return int(Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1]) * PAGE


def descriptors(daemon: Daemon) -> int:
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def cpu(daemon: Daemon) -> float:
    """Return the CPU time of the process so far, in seconds."""
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def effort(daemon: Daemon, witness: Witness) -> float:
    """Return the CPU time of the process for 200 round trips, in seconds: their own time depends on the load of the machine."""
    before = cpu(daemon)
    for _ in range(200):
        witness.round_trip()
    return cpu(daemon) - before


def livez(daemon: Daemon) -> float:
    """How long /livez took, in s."""
    since = time.monotonic()
    assert httpx.get(f"http://{daemon.http}/livez", timeout=10).text == "OK"
    return time.monotonic() - since


def small_window(daemon: Daemon) -> socket.socket:
    """A connection whose own receive buffer is small: unsent output stays with the daemon."""
    host, _, port = daemon.tcp.rpartition(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((host, int(port)))
    return sock


def test_consumers_that_never_read(tmp_path: Path) -> None:
    count, cap, many = 10, 2 * 1024 * 1024, 4_000  # connections; bytes each may cost us
    body = b"x" * 10_000
    with nsqd(tmp_path) as daemon, ExitStack() as stack:
        for channel in ("slow", "healthy"):
            for step in ("topic/create?topic=t", f"channel/create?topic=t&channel={channel}"):
                assert httpx.post(f"http://{daemon.http}/{step}").status_code == 200
        with Conversation(daemon, b"  V2" + (b"MPUB t\n" + several(*[body] * 100)) * (many // 100)) as producer:
            assert [producer.frame() for _ in range(many // 100)] == [OK] * (many // 100)
        witness = stack.enter_context(Witness(daemon))
        alone = effort(daemon, witness)
        before, files = rss(daemon), descriptors(daemon)

        identify = b"  V2IDENTIFY\n" + sized(b'{"heartbeat_interval":2000}')
        slow = [stack.enter_context(small_window(daemon)) for _ in range(count)]
        since = time.monotonic()
        for sock in slow:
            sock.sendall(identify + b"SUB t slow\nRDY 2500\n")
        healthy = stack.enter_context(Conversation(daemon, b"  V2SUB t healthy\nRDY 500\n"))
        assert healthy.frame() == OK
        for _ in range(many):
            healthy.send(b"FIN %s\n" % healthy.message().id)
        among = effort(daemon, witness)
        assert rss(daemon) <= before + count * cap
        assert among <= 4 * alone + 0.1
        # the write deadline is one heartbeat interval, the read deadline two
        eventually(lambda: descriptors(daemon) <= files + 1)
        assert time.monotonic() - since > 1.5
        assert witness.round_trip() < PROMPT
        stats = httpx.get(f"http://{daemon.http}/stats?format=json&topic=t&channel=slow").json()
        (channel,) = stats["topics"][0]["channels"]
        assert channel["clients"] == []
        assert channel["depth"] + channel["in_flight_count"] == many  # none is lost: they wait for their timeout


def test_out_of_file_descriptors(tmp_path: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    with nsqd(tmp_path, preexec_fn=few) as daemon, Witness(daemon) as witness:
        for name in ("TCP", "HTTP"):
            crowd_out(daemon, witness, name)


def crowd_out(daemon: Daemon, witness: Witness, name: str) -> None:
    """Take all descriptors by connections to one of the ports, for a second."""
    witness.round_trip()
    httpx.get(f"http://{daemon.http}/info").raise_for_status()  # its HTTP server is there
    files = descriptors(daemon)
    crowd = [daemon.connect(name) for _ in range(120)]
    eventually(lambda: descriptors(daemon) >= 64 - 2 * SPARE_FILES)
    since, used = time.monotonic(), cpu(daemon)
    while time.monotonic() - since < 1.0:
        assert witness.round_trip() < PROMPT
        time.sleep(0.1)
    assert cpu(daemon) - used < 0.5  # it does not spin
    assert sum("cannot accept" in line for line in daemon.lines) < 50  # nor fill the log
    for sock in crowd:
        sock.close()
    eventually(lambda: descriptors(daemon) <= files + 2)
    with Conversation(daemon, b"  V2PUB t\n" + sized(b"x")) as client:
        assert client.frame() == OK
    assert livez(daemon) < PROMPT
