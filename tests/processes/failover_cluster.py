"""A cluster of real nodes that take over the logs of nodes that are lost: who leads which log, and what explains a duplicate.

A round is: load on all nodes, a fault, healing. Then each log has exactly one leader, everything that was acknowledged is
delivered, and each message that was delivered twice was finished at a node that was lost or cut off then, or shortly after.
"""

import json
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.daemons import Daemon, run
from tests.namespaces import Network
from tests.processes.cluster_load import CHANNEL, LIVE, TOPICS, Client, HttpPublisher, JobPublisher, Publisher
from tests.processes.failover_books import (
    KILL,
    LAG,
    PAUSE,
    RESTART,
    RETURN,
    Counts,
    CountsReader,
    Disturbance,
    DuplicateBooks,
)
from tests.processes.failover_load import DisqueWorker, LatePublisher, NamedPublisher, NotingConsumer, Worker, jobs_left
from tests.processes.networked_cluster import NODES, Clusters, NetworkedCluster

ANSWER = 30.0  # s in which a node that serves must answer /stats and /cluster
PARTITION = "a partition"
WAITING = {"232", "281", "22"}  # numbers of epoll_wait and epoll_pwait on x86-64, and of epoll_pwait on AArch64


class FailoverCluster(NetworkedCluster):
    """Three nodes that take each other's logs over."""

    def __init__(self, network: Network, place: Path, certificates: Path, **flags: str) -> None:
        super().__init__(network, place, certificates, [], **flags)
        self.books: DuplicateBooks = DuplicateBooks()
        self.quorum = flags["failover_quorum"]
        self.disturbances: list[Disturbance] = []
        self.logs: set[str] = set()  # all log ids that a node has led at the end of a round
        self.possible = Counts()
        self._data = place

    def directory(self, number: int) -> Path:
        return self._data / str(number)

    def clients(self, number: int, daemon: Callable[[], Daemon], life: int) -> list[Client]:
        kinds = (HttpPublisher, LatePublisher, JobPublisher, NamedPublisher)
        others = [each for each in NODES if each != number]
        return [
            *(kind(number, daemon, self.books, life) for kind in kinds),
            *(NotingConsumer(number, daemon, self.books, topic) for topic in TOPICS),
            Worker([number, *others], lambda each: self.nodes[each], self.books),
            DisqueWorker(number, daemon, self.books),
            CountsReader(number, daemon, self.possible),
        ]

    def load(self) -> None:
        self._count()
        self.possible.counted = 0
        self.disturbances = []
        self.books.begin_round()
        super().load()

    def _count(self, *numbers: int) -> None:
        """Read what nodes have counted, or all that live."""
        for number in numbers or self.living():
            self.possible.add(number, self.nodes[number].process.pid, self.figures(number))

    # faults

    def disturbed(self, kind: str, *nodes: int) -> None:
        """Note what explains duplicates of messages that these nodes have delivered."""
        self.disturbances.append(Disturbance(kind, frozenset(nodes), time.monotonic()))

    def _over(self, kind: str) -> None:
        """Note that nodes know of each other again, in a moment."""
        until = time.monotonic() + LAG
        self.disturbances = [
            replace(one, until=min(one.until, until)) if one.kind == kind else one for one in self.disturbances
        ]

    def kill(self, *numbers: int) -> None:
        self._count(*numbers)
        at = time.monotonic()
        super().kill(*numbers)
        # Its consumers may still read for a moment what it has sent.
        self.disturbances.append(Disturbance(KILL, frozenset(numbers), at, time.monotonic() + LAG))

    def start(self, number: int, **flags: str) -> None:
        began = time.monotonic()
        super().start(number, **flags)
        self.disturbances.append(Disturbance(RETURN, frozenset({number}), began, time.monotonic() + LAG))

    def cut(self, *sides: set[int]) -> None:
        self.disturbed(PARTITION, *set[int]().union(*sides))
        super().cut(*sides)

    def heal(self) -> None:
        super().heal()
        self._over(PARTITION)

    def stand_still(self, number: int) -> None:
        """Stop the process of a node, between two turns: what a turn delivers leaves even if it was stopped meanwhile."""
        self.disturbed(PAUSE, number)
        super().stand_still(number)
        process = self.nodes[number].process
        state = Path(f"/proc/{process.pid}/syscall")
        while (call := state.read_text().split()[0]) not in WAITING:
            if call != "running":  # it was stopped within a turn
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Continue the process of a node that was paused."""
        self.nodes[number].process.send_signal(signal.SIGCONT)
        self._over(PAUSE)

    def leave(self, number: int) -> None:
        """Have a node leave. No message is delivered twice for that."""
        self._count(number)
        done = run("penstock", "leave", "--nsqd-http-address", self.nodes[number].http, timeout=ANSWER * 3)
        assert done.returncode == 0, done.stdout + done.stderr
        assert self.nodes[number].wait() == 0, self.nodes[number].stderr
        self.counts["leaves"] += 1

    def join(self, number: int, is_empty: bool) -> None:
        """Start a node that has left; `is_empty`: on an empty disk, with the names of topics and channels."""
        if is_empty:
            shutil.rmtree(self.directory(number))
            self.directory(number).mkdir()
            channels = [{"name": name, "paused": False} for name in (CHANNEL, LIVE)]
            topics = [{"name": name, "paused": False, "channels": channels} for name in TOPICS]
            (self.directory(number) / "nsqd.dat").write_text(json.dumps({"version": "1.3.0", "topics": topics}))
        super().start(number)

    def restart(self, number: int) -> None:
        """Stop a node, which says that it is back soon, and start it again."""
        self._count(number)
        began = time.monotonic()
        assert self.nodes[number].stop() == 0, self.nodes[number].stderr
        self.disturbances.append(Disturbance(RESTART, frozenset({number}), began, time.monotonic()))
        self.counts["restarts"] += 1
        super().start(number)

    # what nodes say

    def figures(self, number: int) -> dict[str, list[dict[str, object]]]:
        """Return the answer of a node to /cluster; nothing if it is dead or about to serve."""
        try:
            answer = self._client.get(f"http://{self.nodes[number].http}/cluster")
            return answer.json() if answer.status_code == 200 else {}
        except (httpx.TransportError, KeyError):  # KeyError: it has not said where it listens
            return {}

    def in_sync(self, number: int) -> set[object]:
        return {each["node"] for each in self.figures(number).get("followers", ()) if each["state"] == "in sync"}

    def own_log(self, number: int) -> str:
        """Return the id of the log into which a node publishes; "": it does not serve."""
        return str(next((one["log_id"] for one in self.figures(number).get("led", ())), ""))

    def led(self, number: int) -> set[str]:
        """Return the ids of the logs that a node serves."""
        return {str(one["log_id"]) for one in self.figures(number).get("led", ()) if one["state"] == "serving"}

    def living(self) -> list[int]:
        """Return the nodes that were not killed."""
        return [number for number in NODES if not self.is_dead(number)]

    def new_leader(self, log_id: str, *candidates: int) -> int:
        """Wait until one of some nodes serves a log, and return it."""
        found: list[int] = []

        def is_found() -> bool:
            found[:] = [number for number in candidates if log_id in self.led(number)]
            return bool(found)

        self.until(is_found)
        return found[0]

    def may_promote(self, number: int, log_id: str, leader: int) -> bool:
        """Return True if a node has all of a log, as far as it knows, from this leader, and may promote it at once."""
        there: dict[str, Any] = self.figures(number)
        here: dict[str, Any] = self.figures(leader)
        epochs = [one["epochs"][-1][0] for one in here.get("led", ()) if one["log_id"] == log_id and one["epochs"]]
        replicated = [
            epoch for one in there.get("replicas", ()) if one["log_id"] == log_id for epoch, _ in one["epochs"]
        ]
        logs = there.get("elections", {}).get("logs", ())
        return set() < {*epochs} <= {*replicated} and any(one["log_id"] == log_id and one["clean"] for one in logs)

    def delivers(self, *numbers: int) -> None:
        """Wait until consumers of nodes have got more messages."""
        before = dict(self.books.per_node)
        self.until(lambda: all(self.books.per_node[number] >= before.get(number, 0) + 5 for number in numbers))

    def answer(self, *numbers: int) -> None:
        """Check that nodes answer, and soon."""
        for number in numbers:
            for path in ("/stats?format=json", "/cluster", "/ping"):
                answer = self._client.get(f"http://{self.nodes[number].http}{path}", timeout=ANSWER)
                assert answer.status_code == 200, f"{number}: {path}: {answer.text}"

    # the end of a round

    def finish(self, random: Random) -> None:
        """Heal what was cut, start what was killed, and close the books."""
        self.heal()
        self.start_all()
        self.all_in_sync()
        self.goes_on(NODES, 2, 3)
        self.delivers(*NODES)
        self.answer(*NODES)
        self.until(lambda: not any(map(self._diverged, NODES)))  # else what they hold comes in the next round
        self.until(self._each_log_has_a_leader)
        self.unload(Publisher)
        self.until(lambda: not any(map(self._left, NODES)))
        self.unload(Client)
        self.close_books()
        self._check_duplicates()

    def _each_log_has_a_leader(self) -> bool:
        led = [log_id for number in NODES for log_id in self.led(number)]
        if len(set(led)) < len(led) or not self.logs - self.closed() <= set(led):
            return False
        own = {self.own_log(number) for number in NODES}
        if len(own) < len(NODES) or not own <= {*led}:
            return False
        self.counts["new logs"] += len({*led} - self.logs)
        self.logs = {*led}
        return True

    def _diverged(self, number: int) -> set[str]:
        """Return the diverged copies of a node, except for those that it says it cannot read."""
        found = {
            f"{kind}/{path.name}"
            for kind in ("replicas", "promoted")
            for path in (self.directory(number) / kind).glob("*.diverged-*[0-9]")
        }
        return found - {str(one["name"]) for one in self.figures(number).get("diverged", ()) if one["failure"]}

    def closed(self) -> set[str]:
        """Return the ids of the logs without unfinished messages, as all nodes together know them."""
        return {str(one["log_id"]) for number in NODES for one in self.figures(number).get("closed", ())}

    def _left(self, number: int) -> int:
        """Return the numbers of messages and jobs that LIVE still has at a node."""
        topics = self._client.get(
            f"http://{self.nodes[number].http}/stats?format=json&channel={LIVE}&include_clients=false"
        ).json()["topics"]
        channels = [channel for topic in topics for channel in topic["channels"] if channel["channel_name"] == LIVE]
        assert len(channels) >= len(TOPICS)
        held = sum(
            int(channel[name]) for channel in channels for name in ("depth", "in_flight_count", "deferred_count")
        )
        return held + jobs_left(self.nodes[number])

    def _check_duplicates(self) -> None:
        """Check that all came to live clients, too, and that the reason of each duplicate is known."""
        lost = self.books.never_came_live()
        assert not lost, f"{len(lost)} acknowledged messages came to no live client: {lost[:20]}"
        self._count()
        found, wrong = self.books.explained(self.disturbances, self.possible.counted)
        self.counts.update({f"duplicates ({kind})": count for kind, count in found.items() if kind})
        self.counts.update(undone=len(wrong))
        assert not wrong, f"{len(wrong)} finishes are undone: {wrong[:20]}; {self.disturbances}; {found}"

    def summary(self) -> dict[str, int]:
        return {**super().summary(), "retries of named publishers": self.books.retries}


class FailoverClusters(Clusters):
    """One cluster at a time; the mode is that of -failover-quorum."""

    def make(self, place: Path, mode: str) -> NetworkedCluster:
        network = self.stack.enter_context(Network(len(NODES)))
        return FailoverCluster(network, place, self.certificates, failover_quorum=mode)
