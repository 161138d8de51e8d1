"""A cluster for nsqadmin's rows: nsqlookupd, nodes that all have the same topics, and nsqadmin, of which only URLs are known.

Creating ten thousand topics one by one takes a node some 40 s. Instead, each node starts with a metadata file of the
original, and takes that over in two seconds.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.background import in_background
from bench.server import BenchError, Program, Server, nsqadmin, nsqlookupd

CHANNEL = "ch"
_WITH_MESSAGES = 100  # topics that have messages at the start, at most
_APART = 7919  # distance between two of those in the list: a prime, so that they are spread over the names
_ON_TOP = 20  # number of topics that get messages now and then
_KNOWN = 120.0  # s until nsqlookupd must know all topics
_LOOK = 0.2  # s between two polls


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU time in ns, or in ns per second; for the nodes it is the mean."""

    admin: float
    node: float
    lookupd: float

    def less(self, other: Cpu, times: float = 1.0) -> Cpu:
        """Return this CPU time less `times` times the other."""
        return Cpu(
            self.admin - times * other.admin, self.node - times * other.node, self.lookupd - times * other.lookupd
        )


@dataclass(frozen=True, slots=True)
class AdminCluster:
    """A running nsqlookupd, nodes and nsqadmin."""

    lookupd: Server
    nodes: tuple[Server, ...]
    admin: Server
    topics: tuple[str, ...]
    deepest: str  # the topic with the most messages

    def cpu(self) -> Cpu:
        """Return the CPU time so far."""
        nodes = [node.cpu() for node in self.nodes]
        return Cpu(self.admin.cpu(), sum(nodes) / len(nodes), self.lookupd.cpu())

    def cpu_during(self, seconds: float) -> Cpu:
        """Wait for `seconds`, and return the CPU time per second meanwhile."""
        before, began = self.cpu(), time.perf_counter()
        time.sleep(seconds)
        took = time.perf_counter() - began
        spent = self.cpu().less(before)
        return Cpu(spent.admin / took, spent.node / took, spent.lookupd / took)

    def rss(self) -> int:
        """Return the resident bytes of all processes."""
        return sum(server.rss() for server in (self.lookupd, self.admin, *self.nodes))


@contextmanager
def admin_cluster(program: Program, nodes: int, topics: int) -> Iterator[AdminCluster]:
    """Start a cluster in which nsqlookupd knows every topic of every node, and nsqadmin has had no request yet.

    Two messages a second are published in the whole cluster, so that pages have something new to show.
    """
    names = tuple(f"bench_{number:05d}" for number in range(topics))
    deep = {names[place * _APART % topics]: place + 1 for place in range(min(_WITH_MESSAGES, topics))}
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        most = str(40 * nodes * topics)  # all nodes have one address, which may carry a quarter
        lookupd = stack.enter_context(nsqlookupd().with_flags("nsqlookupd", "-max-registrations", most).start())
        lookupd_flag = ("-lookupd-tcp-address", f"{lookupd.host}:{lookupd.ports['TCP']}")
        started = []
        for number in range(nodes):
            node = program.with_flags(program.name, *lookupd_flag, "-node-id", str(number))
            started.append(stack.enter_context(node.start(data=_directory(data / str(number), names))))
            _fill(started[-1], deep)
            say(f"node {number + 1}/{nodes}")
        _until_known(lookupd, nodes, names)
        address = f"{lookupd.host}:{lookupd.ports['HTTP']}"
        admin = stack.enter_context(nsqadmin().with_flags("nsqadmin", "-lookupd-http-address", address).start())
        found = AdminCluster(lookupd, tuple(started), admin, names, max(deep, key=lambda name: deep[name]))
        say(f"{topics} topics on each, {found.rss() / 1e6:.0f} MB of memory")
        stack.enter_context(every_second(partial(_trickle, found, random.Random(1))))
        yield found


@contextmanager
def every_second(do: Callable[[int], None]) -> Iterator[None]:
    """Call `do` once a second in a thread while the context lasts; it gets the number of earlier calls."""

    def work(done: threading.Event) -> None:
        for turn in itertools.count():
            do(turn)
            if done.wait(1):
                return

    with in_background(work):
        yield


def _trickle(cluster: AdminCluster, chance: random.Random, turn: int) -> None:
    """Publish to a topic of the first page, and to the deepest topic, which so remains the deepest."""
    node = chance.choice(cluster.nodes)
    for topic in (cluster.deepest, chance.choice(cluster.topics[:_ON_TOP])):
        node.post(f"/pub?topic={topic}", b"x")


def say(text: str) -> None:
    """Print to the line of the terminal that shows the progress of this row."""
    print(text, end=", ", file=sys.stderr, flush=True)


def _directory(path: Path, names: tuple[str, ...]) -> Path:
    """Make a data directory of the original's with these topics, each with one channel."""
    path.mkdir()
    topics = [
        {"name": name, "paused": False, "channels": [{"name": CHANNEL, "paused": False}]} for name in names
    ]  # fmt: skip
    (path / "nsqd.dat").write_text(json.dumps({"version": "1.3.0", "topics": topics}))
    return path


def _fill(node: Server, messages: dict[str, int]) -> None:
    for name, count in messages.items():
        node.post(f"/mpub?topic={name}", b"\n".join([b"x"] * count))


def _until_known(lookupd: Server, nodes: int, names: tuple[str, ...]) -> None:
    deadline = time.monotonic() + _KNOWN
    while True:
        producers = json.loads(lookupd.get("/nodes"))["producers"]
        known = [len(producer["topics"]) for producer in producers]
        last = json.loads(lookupd.get(f"/channels?topic={names[-1]}"))["channels"] if known else []
        if known == [len(names)] * nodes and last == [CHANNEL]:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"nsqlookupd knows {known} topics of {nodes} nodes")
        time.sleep(_LOOK)
