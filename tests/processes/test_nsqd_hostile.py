"""nsqd among clients that are broken, greedy or malicious, over real sockets.

What holds throughout: the daemon lives and prints no traceback, its memory and descriptors come back, and a well-behaved
witness loses no message and does not wait.

See docs/contributing/testing.md#hostile-clients.
"""

from __future__ import annotations

import os
import re
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import httpx
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shared.process.listen import SPARE_FILES
from tests.daemons import MESSAGE, OK, Conversation, Daemon, eventually, nsqd, several, sized
from tests.effort import tries

pytestmark = pytest.mark.process

MAGIC_TIME = 10.0  # s a connection may take to say "  V2", and a HTTP client to send its header
SLACK = 6.0  # s, for a CI machine that sleeps at times; 2 s and this are still less than MAGIC_TIME
PROMPT = 4.0  # s: who waits for a client that is broken waits for MAGIC_TIME, or indefinitely
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


def livez(daemon: Daemon) -> float:
    """How long /livez took, in s."""
    since = time.monotonic()
    assert httpx.get(f"http://{daemon.http}/livez", timeout=10).text == "OK"
    return time.monotonic() - since


def closed(sock: socket.socket) -> bool:
    """True if the daemon has closed it; what it said before is read away."""
    sock.setblocking(False)
    try:
        while sock.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass  # reset: closed as well
    return True


def small_window(daemon: Daemon) -> socket.socket:
    """A connection whose own receive buffer is small: what the daemon cannot send stays with the daemon."""
    host, _, port = daemon.tcp.rpartition(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((host, int(port)))
    return sock


# those that read nothing


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
        alone = median(witness.round_trip() for _ in range(200))  # the slowest tell of who else is on this machine
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
        among = median(witness.round_trip() for _ in range(200))
        assert rss(daemon) <= before + count * cap
        assert among <= max(4 * alone, 0.05)
        # the write deadline is one heartbeat interval, the read deadline two
        eventually(lambda: descriptors(daemon) <= files + 1, 2 * 2.0 + SLACK)
        assert time.monotonic() - since > 1.5
        assert witness.round_trip() < PROMPT
        stats = httpx.get(f"http://{daemon.http}/stats?format=json&topic=t&channel=slow").json()
        (channel,) = stats["topics"][0]["channels"]
        assert channel["clients"] == []
        assert channel["depth"] + channel["in_flight_count"] == many  # none is lost: they wait for their timeout


# dawdlers and crowds


def test_the_silent_and_the_slow_are_closed_in_time(shared: Daemon, witness: Witness) -> None:
    files = descriptors(shared)
    identified = b"  V2IDENTIFY\n" + sized(b'{"heartbeat_interval":1000}')
    with ExitStack() as stack:

        def crowd(count: int, connect: Callable[[], socket.socket], said: bytes = b"") -> list[socket.socket]:
            found = [stack.enter_context(connect()) for _ in range(count)]
            for sock in found:
                sock.sendall(said)
            return found

        tcp, http = shared.connect, lambda: shared.connect("HTTP")
        since = time.monotonic()
        waiting = {  # sockets by what they do, and by when they must be closed
            "silent": (crowd(1000, tcp), MAGIC_TIME),
            "half a magic": (crowd(50, tcp, b"  V"), MAGIC_TIME),
            "silent on HTTP": (crowd(50, http), MAGIC_TIME),
            "half a request": (crowd(50, http, b"GET /ping HTTP/1.1\r\nHost:"), MAGIC_TIME),
            "dripping a header": (crowd(20, http, b"GET /ping HTTP/1.1\r\nX: "), MAGIC_TIME),
            "dripping a line": (crowd(20, tcp, identified), 2.0),
            "dripping a body": (crowd(20, tcp, identified + b"PUB t\n\x00\x01\x00\x00"), 2.0),
            "no heartbeat answered": (crowd(20, tcp, identified + b"SUB t c\n"), 2.0),
        }
        drip = [sock for name, (socks, _) in waiting.items() if "dripping" in name for sock in socks]
        slowest = witness.round_trip()
        while waiting:
            age = time.monotonic() - since
            assert age < MAGIC_TIME + SLACK, {name: len(socks) for name, (socks, _) in waiting.items()}
            for sock in drip:
                try:
                    sock.send(b"x")
                except OSError:
                    pass  # closed already, as it must be
            for name, (socks, due) in list(waiting.items()):
                left = [sock for sock in socks if not closed(sock)]
                if len(left) < len(socks):
                    assert age > 0.8 * due, f"{name}: closed after {age:.1f} s"
                assert age < due + SLACK or not left, f"{name}: {len(left)} open after {age:.1f} s"
                waiting[name] = (left, due)
                if not left:
                    del waiting[name]
            assert livez(shared) < PROMPT
            slowest = max(slowest, witness.round_trip())
            time.sleep(0.5)  # the pace of the dripping: 2 B/s
        assert slowest < PROMPT
    eventually(lambda: descriptors(shared) <= files + 2)


def test_out_of_file_descriptors(tmp_path: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    with nsqd(tmp_path, preexec=few) as daemon, Witness(daemon) as witness:
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
    with Conversation(daemon, b"  V2PUB t\n" + sized(b"x"), timeout=5) as client:
        assert client.frame() == OK
    assert livez(daemon) < PROMPT


# almost-right requests

METHODS = st.sampled_from([b"GET", b"POST", b"PUT"] * 4 + [b"HEAD", b"OPTIONS", b"DELETE", b"get", b"BREW", b""])
PATHS = st.sampled_from(
    [b"/ping", b"/pub", b"/mpub", b"/stats", b"/info", b"/topic/create", b"/topic/delete", b"/channel/create", b"/livez",
     b"/channel/pause", b"/config/log_level", b"/config/x", b"/config/", b"/PING", b"/pub/", b"//pub", b"/../ping", b"/",
     b"", b"*", b"/%zz", b"/%00", b"/\xff", b"/\xc3\xa9", b"http://localhost/ping", b"/pub#x", b"/config/%2e%2e"]
)  # fmt: skip
QUERIES = st.lists(
    st.sampled_from(
        [b"topic=fuzz", b"topic=", b"topic=a%2Fb", b"topic=%FF", b"topic=\xff", b"channel=c", b"channel=%00", b"defer=10",
         b"defer=-1", b"defer=" + b"9" * 4400, b"binary=true", b"binary=0", b"format=json", b"%zz", b";", b"&", b"=", b"a=b=c",
         b"topic=fuzz#ephemeral", b"topic=fuzz%23ephemeral", b"include_clients=x", b"topic=%ed%a0%80"]
    ), max_size=3,
).map(b"&".join)  # fmt: skip
HEADERS = st.lists(
    st.sampled_from(
        [b"Host: localhost", b"Host: evil.example", b"Host: [", b"Host: \xff", b"Host:", b"Origin: http://[", b"Origin: null",
         b"Origin: http://localhost", b"Origin: \xff", b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: \xb2",
         b"Content-Length: " + b"0" * 4400 + b"5", b"Content-Length: 99999999", b"Transfer-Encoding: chunked", b"X" * 9000,
         b"Transfer-Encoding: xchunked", b"Expect: 100-continue", b"Upgrade: websocket", b"Connection: Upgrade", b": x",
         b"X: a\x00b", b" folded", b"Connection: keep-alive", b"X-Forwarded-For: \xff", b"Content-Type: \xff"]
    ), max_size=2,
)  # fmt: skip
WEB_BODIES = st.sampled_from(
    [b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", several(b"a", b"b")[4:], b"\xff" * 9, b'["\\ud800"]']
)


GOOD_ANSWER = re.compile(rb"HTTP/1\.1 (100|200|301|307|400|403|404|405|413|431|501|505) ")


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    target = draw(PATHS)
    query = draw(QUERIES)
    version = draw(st.sampled_from([b"HTTP/1.1"] * 9 + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b""]))
    newline = draw(st.sampled_from([b"\r\n"] * 9 + [b"\n"]))
    head = draw(METHODS) + b" " + target + (b"?" + query if query else b"") + b" " + version + newline
    headers = [b"Host: localhost"] * min(1, draw(st.integers(0, 5))) + draw(HEADERS)
    return head + b"".join(header + newline for header in headers) + newline + draw(WEB_BODIES)


def test_almost_right_requests(tmp_path: Path) -> None:
    daemon = nsqd(tmp_path)
    daemon.__enter__()

    # no shrinking: each failure costs a daemon
    @settings(max_examples=tries(100), phases=[Phase.explicit, Phase.reuse, Phase.generate])
    @given(requests())
    def examples(data: bytes) -> None:
        nonlocal daemon
        if daemon.process.poll() is not None:  # the example before brought it down
            daemon = nsqd(tmp_path)
            daemon.__enter__()
        with daemon.connect("HTTP") as client:
            client.settimeout(5)
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: client.recv(65536), b""))
            except (BrokenPipeError, ConnectionResetError):
                answer = b""  # closed in the middle of our talk
        try:
            assert answer == b"" or GOOD_ANSWER.match(answer), answer
            assert b"Traceback" not in answer
            with Conversation(daemon, b"  V2PUB t\n" + sized(b"x"), timeout=5) as client:
                assert client.frame() == OK
        except (AssertionError, OSError) as error:
            daemon.kill()
            pytest.fail(f"{data!r}: {error}\n{daemon.stderr}", pytrace=False)

    try:
        examples()
    finally:
        daemon.__exit__(None, None, None)
