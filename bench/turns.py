"""What makes a turn long: each case is provoked on a node of its own, and its longest turn is printed.

A turn is one pass of the reactor; while it runs, every other client waits. The longest turn is read from /metrics. It is exact
if it is the longest since the node's start, else it is the bound of a bucket. The line also has the longest time that a client
which publishes all the time waited for an OK: it includes the time that other threads of the node and the machine took.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.rows import CHANNEL, TOPIC, Effort, fill, publish
from bench.server import Program, Server, with_port
from bench.table import Line, number
from bench.wire import BATCH, BODY, FRAME, HEARTBEAT, OK, connect, expect_ok, identify, read_exactly, sized
from penstock.client import Producer
from penstock.protocol.headers import DEAD_LETTER_TOPIC

_BUCKET = re.compile(r'^nsqd_turn_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)
_LONGEST = re.compile(r"^nsqd_turn_longest_seconds (\S+)$", re.MULTILINE)
_CHECKPOINTS = re.compile(r"^nsqd_log_checkpoints_total (\S+)$", re.MULTILINE)
_AT_ONCE = 1000  # commands that are sent before their replies are read
_DELAY = 3600  # s: nothing that is delayed becomes due while it is measured
_SOON = 55  # s
_MOST_READY = 1_000_000  # messages
_PING = 0.001  # s between an OK and the next publish of the client that waits
_TIMES = 3  # requests for statistics
_PAGES = 10  # of a list of messages
_SETTLE = 1.0  # s after the provocation in which a turn still counts
_ID = slice(18, 34)  # bytes of a frame
Snapshot = tuple[float, dict[float, float]]  # s of the longest turn of all, and by bound (s) how many took no longer
_AIM = "<= 10 ms"
_BEANSTALK = "BEANSTALK"


@dataclass(frozen=True, slots=True)
class Amounts:
    """How many of each objects are."""

    topics: int
    deferred: int
    jobs: int
    ready: int
    seconds: float  # to watch a node after its start

    @classmethod
    def of(cls, effort: Effort) -> Amounts:
        """Return the amounts for this effort."""
        topics, deferred, jobs, ready = (
            max(100, int(count * effort.scale)) for count in (10_000, 1_000_000, 300_000, 3_000_000)
        )
        return cls(topics, deferred, jobs, ready, effort.window)


class Turns:
    """The longest turn between `__init__` and `longest`."""

    def __init__(self, server: Server, since_start: bool = False) -> None:
        self._server = server
        self._before: Snapshot = (0.0, {}) if since_start else self._snapshot()

    def longest(self) -> str:
        """Return the duration as a cell of the table."""
        return longest_of(self._before, self._snapshot())

    def _snapshot(self) -> Snapshot:
        text = self._server.get("/metrics").decode()
        found = _LONGEST.search(text)
        assert found is not None
        return float(found[1]), {float(bound): float(count) for bound, count in _BUCKET.findall(text)}


def longest_of(before: Snapshot, after: Snapshot) -> str:
    """Return the longest turn between two snapshots: exactly, if it is the longest of all, or the bucket's bound."""
    if after[0] > before[0]:
        return f"{after[0] * 1e3:.1f} ms"
    more = {bound: count - before[1].get(bound, 0) for bound, count in after[1].items()}
    return f"<= {min(bound for bound, count in more.items() if count == max(more.values())) * 1e3:g} ms"


@dataclass
class Waiting:
    """A client in a thread that publishes to an ephemeral topic, and how long it waited for an OK."""

    server: Server
    longest: float = 0.0  # s
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Waiting:
        self._sock = connect(self.server.host, self.server.ports["TCP"])
        identify(self._sock, heartbeat_interval=-1)
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sock.close()

    def _work(self) -> None:
        request = b"PUB ping#ephemeral\n" + sized(b"x")
        while not self._stop.wait(_PING):
            began = time.perf_counter()
            self._sock.sendall(request)
            read_exactly(self._sock, len(OK))
            self.longest = max(self.longest, time.perf_counter() - began)


# the objects of the node


def _make_topics(server: Server, amounts: Amounts) -> str:
    server.create_all(f"/topic/create?topic=t{i}" for i in range(amounts.topics))
    server.create_all(f"/channel/create?topic=t{i}&channel={CHANNEL}" for i in range(amounts.topics))
    return f"{number(amounts.topics)} topics"


def _defer(server: Server, amounts: Amounts) -> str:
    """Requeue messages of a channel with a delay, so that they wait in the channel."""
    server.create(TOPIC, [CHANNEL])
    fill(server, amounts.deferred)
    with connect(server.host, server.ports["TCP"]) as sock:
        identify(sock, heartbeat_interval=60_000)
        sock.sendall(f"SUB {TOPIC} {CHANNEL}\nRDY 2500\n".encode())
        expect_ok(sock)
        left, data = amounts.deferred // BATCH * BATCH, b""
        while left:
            data = (data + sock.recv(1 << 20)).replace(HEARTBEAT, b"")
            whole = len(data) // FRAME * FRAME
            ids = [data[at + _ID.start : at + _ID.stop] for at in range(0, whole, FRAME)]
            data = data[whole:]
            sock.sendall(b"".join([b"REQ %s %d\n" % (one, _DELAY * 1000) for one in ids]))
            left -= len(ids)
        sock.sendall(b"RDY 0\n")
        _settle(sock)
    return f"{number(amounts.deferred)} deferred"


def _defer_soon(server: Server, amounts: Amounts) -> str:
    """Bury messages and requeue them with a delay of less than a minute, so that they wait in the timer heap."""
    _bury(server, amounts)
    _act("requeue", "buried", f"&delay={_SOON * 1000}")(server, amounts)
    return f"{number(amounts.jobs)} deferred for {_SOON} s"


def _deliver(server: Server, amounts: Amounts) -> str:
    """Deliver messages to a consumer that finishes the last one of each batch first, and leaves the others in flight."""
    server.create(TOPIC, [CHANNEL])
    left, data = fill(server, amounts.jobs), b""
    with connect(server.host, server.ports["TCP"]) as sock:
        identify(sock, heartbeat_interval=60_000)
        sock.sendall(f"SUB {TOPIC} {CHANNEL}\nRDY {_MOST_READY}\n".encode())
        expect_ok(sock)
        while left:
            data = (data + sock.recv(1 << 20)).replace(HEARTBEAT, b"")
            whole = len(data) // FRAME * FRAME
            if whole:
                sock.sendall(b"FIN %s\n" % data[whole - FRAME : whole][_ID])
            left, data = left - whole // FRAME, data[whole:]
        _settle(sock)
    return f"{number(amounts.jobs)} in flight"


def _retain(server: Server, amounts: Amounts) -> str:
    """Publish messages to a topic that retains them."""
    server.post(f"/topic/create?topic={TOPIC}&retention=24h", b"")
    return _fill(server, amounts)


def _settle(sock: socket.socket) -> None:
    """Wait until everything sent before has been executed."""
    sock.sendall(b"PUB ping#ephemeral\n" + sized(b"x"))
    expect_ok(sock)


def _delay(server: Server, amounts: Amounts) -> str:
    """Publish messages with a delay, which wait in the topic."""
    server.create(TOPIC, [CHANNEL])
    request = f"DPUB {TOPIC} {_DELAY * 1000}\n".encode() + sized(BODY)
    with connect(server.host, server.ports["TCP"]) as sock:
        identify(sock, heartbeat_interval=-1)
        for _ in range(amounts.deferred // _AT_ONCE + 1):
            sock.sendall(request * _AT_ONCE)
            expect_ok(sock, _AT_ONCE)
    return f"{number(amounts.deferred)} delayed"


def _put(server: Server, amounts: Amounts) -> str:
    request = b"put 1 0 60 %d\r\n%s\r\n" % (len(BODY), BODY)
    with socket.create_connection((server.host, server.ports[_BEANSTALK]), timeout=60) as sock:
        sock.sendall(b"use jobs\r\n")
        replies = sock.makefile("rb")
        replies.readline()
        for _ in range(amounts.jobs // _AT_ONCE + 1):
            sock.sendall(request * _AT_ONCE)
            for _ in range(_AT_ONCE):
                replies.readline()
    return f"{number(amounts.jobs)} jobs"


def _bury_jobs(server: Server, amounts: Amounts) -> str:
    _put(server, amounts)
    for _ in range(amounts.jobs // _AT_ONCE + 1):
        server.post(f"/tube/jobs/bury?tube=jobs&state=ready&count={_AT_ONCE}", b"")
    return f"{number(amounts.jobs)} buried jobs"


def _fill(server: Server, amounts: Amounts) -> str:
    return f"{number(fill(server, amounts.ready))} ready"


def _bury(server: Server, amounts: Amounts) -> str:
    server.create(TOPIC, [CHANNEL])
    fill(server, amounts.jobs)
    _act("bury", "ready")(server, amounts)
    return f"{number(amounts.jobs)} buried"


def _bring_back(server: Server, amounts: Amounts) -> str:
    """Make buried messages ready again, so that they wait in the retry queue."""
    _bury(server, amounts)
    _act("kick", "buried")(server, amounts)
    return f"{number(amounts.jobs)} that came back"


def _dead_letters(server: Server, amounts: Amounts) -> str:
    """Publish messages that are dead letters of the topic `origin`, as their headers say."""
    server.create("origin", [CHANNEL])
    server.create(TOPIC, [CHANNEL])
    with Producer([f"{server.host}:{server.ports['TCP']}"]) as producer:
        for _ in range(amounts.jobs // BATCH + 1):
            producer.publish_many(TOPIC, [BODY] * BATCH, headers={DEAD_LETTER_TOPIC: "origin"})
    return f"{number(amounts.jobs)} dead letters"


def _all(server: Server, amounts: Amounts) -> str:
    return ", ".join(make(server, amounts) for make in (_make_topics, _put, _defer, _fill))


# the requests


def _get(path: str) -> Callable[[Server, Amounts], None]:
    def get(server: Server, amounts: Amounts) -> None:
        for _ in range(_TIMES):
            server.get(path)

    return get


def _post(path: str) -> Callable[[Server, Amounts], None]:
    return lambda server, _: server.post(path, b"")


def _kick_jobs(server: Server, amounts: Amounts) -> None:
    with socket.create_connection((server.host, server.ports[_BEANSTALK]), timeout=60) as sock:
        sock.sendall(b"use jobs\r\nkick %d\r\n" % amounts.jobs)
        replies = sock.makefile("rb")
        replies.readline()
        replies.readline()


def _list(state: str) -> Callable[[Server, Amounts], None]:
    """Return a function that gets the first pages of the messages in a state."""
    path = f"/channel/messages?topic={TOPIC}&channel={CHANNEL}&state={state}&limit={_AT_ONCE}&preview=0"

    def get(server: Server, amounts: Amounts) -> None:
        after = ""
        for _ in range(_PAGES):
            after = json.loads(server.get(f"{path}&after={after}")).get("next", "")

    return get


def _act(action: str, state: str, more: str = "") -> Callable[[Server, Amounts], None]:
    """Return a function that acts on amounts.jobs messages in a state, as many at a time as a request takes."""
    path = f"/channel/messages/{action}?topic={TOPIC}&channel={CHANNEL}&state={state}&count={_AT_ONCE}{more}"

    def act(server: Server, amounts: Amounts) -> None:
        for _ in range(amounts.jobs // _AT_ONCE + 1):
            server.post(path, b"")

    return act


def _checkpoint(server: Server, amounts: Amounts) -> None:
    """Publish until two checkpoints more were written."""

    def written() -> int:
        found = _CHECKPOINTS.search(server.get("/metrics").decode())
        assert found is not None
        return int(float(found[1]))

    wanted = written() + 2
    server.create("more", [])
    while written() < wanted:
        publish(server, 1.0, "mpub", 2, topic="more", warm_up=0.0)


def _publish_to_all(server: Server, amounts: Amounts) -> None:
    """Publish to every topic in one burst, and wait for all replies."""
    with connect(server.host, server.ports["TCP"]) as sock:
        identify(sock, heartbeat_interval=-1)
        request = b"".join([b"PUB t%d\n" % topic + sized(BODY) for topic in range(amounts.topics)])
        threading.Thread(target=sock.sendall, args=(request,)).start()
        expect_ok(sock, amounts.topics)


@dataclass(frozen=True, slots=True)
class LongTurn:
    """A node with many objects (`make`), on which a request may make a turn long (`provoke`)."""

    name: str
    make: Callable[[Server, Amounts], str]
    provoke: Callable[[Server, Amounts], None]

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        amounts = Amounts.of(effort)
        flags = "-max-rdy-count", str(_MOST_READY)
        with with_port(program, _BEANSTALK).with_flags(program.name, *flags).start() as server:
            objects = self.make(server, amounts)
            turns = Turns(server)
            with Waiting(server) as client:
                self.provoke(server, amounts)
                time.sleep(_SETTLE)
            return [_line(self.name, objects, turns, client)]


@dataclass(frozen=True, slots=True)
class Start:
    """A node with everything, which is killed, started again and watched."""

    name: str

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        program, amounts = with_port(program, _BEANSTALK), Amounts.of(effort)
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as data:
            with program.start(data=Path(data)) as server:
                objects = _all(server, amounts)
                server.end(signal.SIGKILL)
            with program.start(data=Path(data)) as server:
                with Waiting(server) as client:
                    time.sleep(amounts.seconds)
                what = f"{amounts.seconds:g} s after a start with {objects}"
                return [_line(self.name, what, Turns(server, since_start=True), client)]


def _line(name: str, what: str, turns: Turns, client: Waiting) -> Line:
    return Line(name, what, turns.longest(), f"a client waited {client.longest * 1e3:.1f} ms", _AIM)


def turns() -> list[LongTurn | Start]:
    """Return all rows about turns, in the order of the table."""
    topic, of_channel = f"?topic={TOPIC}", f"?topic={TOPIC}&channel={CHANNEL}"
    return [
        LongTurn("turns-publish", _make_topics, _publish_to_all),
        LongTurn("turns-stats", _make_topics, _get("/stats?format=json")),
        LongTurn("turns-metrics", _make_topics, _get("/metrics")),
        LongTurn("turns-checkpoint-topics", _make_topics, _checkpoint),
        LongTurn("turns-checkpoint-deferred", _defer, _checkpoint),
        LongTurn("turns-checkpoint-delayed", _delay, _checkpoint),
        LongTurn("turns-checkpoint-jobs", _put, _checkpoint),
        LongTurn("turns-checkpoint-ready", _fill, _checkpoint),
        LongTurn("turns-checkpoint-buried", _bury, _checkpoint),
        LongTurn("turns-checkpoint-back", _bring_back, _checkpoint),
        LongTurn("turns-checkpoint-in-flight", _deliver, _checkpoint),
        LongTurn("turns-checkpoint-soon", _defer_soon, _checkpoint),
        LongTurn("turns-delete-jobs", _put, _post("/topic/delete?topic=jobs")),
        LongTurn("turns-delete-ready", _fill, _post(f"/topic/delete{topic}")),
        LongTurn("turns-empty-ready", _fill, _post(f"/channel/empty{of_channel}")),
        LongTurn("turns-empty-deferred", _defer, _post(f"/channel/empty{of_channel}")),
        LongTurn("turns-empty-delayed", _delay, _post(f"/channel/empty{of_channel}")),
        LongTurn("turns-delete-delayed", _delay, _post(f"/topic/delete{topic}")),
        LongTurn("turns-redrive", _dead_letters, _act("move", "ready")),
        LongTurn("turns-bury-ready", _fill, _act("bury", "ready")),
        LongTurn("turns-kick-buried", _bury, _act("kick", "buried")),
        LongTurn("turns-kick-jobs", _bury_jobs, _kick_jobs),
        LongTurn("turns-requeue-back", _bring_back, _act("requeue", "ready")),
        LongTurn("turns-list-deferred", _defer_soon, _list("deferred")),
        LongTurn("turns-list-in-flight", _deliver, _list("in_flight")),
        LongTurn("turns-drop-oldest", _fill, _post(f"/topic/config{topic}&max_length=1000&overflow=drop-oldest")),
        LongTurn("turns-expire", _fill, _post(f"/topic/config{topic}&ttl=1s")),
        LongTurn("turns-past", _retain, _post(f"/channel/create?topic={TOPIC}&channel=again&from=earliest")),
        Start("turns-start"),
    ]
