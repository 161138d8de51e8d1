"""A cluster of real nodes that take over the logs of nodes that are lost: who owns which log, and what explains a duplicate.

A round is: load on all nodes, a fault, healing. Then each log has exactly one owner, everything that was acknowledged is
delivered, and each message that was delivered twice was finished at a node that was lost or cut off then, or shortly after.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.daemons import Daemon
from tests.namespaces import Network
from tests.processes.cluster_load import LIVE, Books, Client, LiveConsumer, Publisher
from tests.processes.networked_cluster import NODES, Clusters, NetworkedCluster

LAG = 3.0  # s before a node was lost in which a finish at this node may not have reached the others
ANSWER = 30.0  # s in which a node that serves must answer /stats and /cluster
TOPIC = "two"  # whose channel LIVE is consumed meanwhile


@dataclass(frozen=True)
class Disturbance:
    """Something that makes other nodes take over the log of a node, or makes the node give up those that it has taken over."""

    kind: str
    nodes: frozenset[int]
    at: float  # s, monotonic
    until: float = float("inf")  # when it was over, for the node that has finished something

    def explains(self, node: int, at: float) -> bool:
        """Return True if others may not know what a node finished then, or the node did not read it before it stopped."""
        return node in self.nodes and self.at - LAG <= at < self.until

    def explains_again(self, node: int, at: float) -> bool:
        """Return True if a node that others did not hear may have delivered then what its log owed, not told of the adopter."""
        return self.kind not in ("a kill", "a restart") and node in self.nodes and at >= self.at


@dataclass(slots=True)
class DuplicateBooks(Books):
    """Books that know where and when each message of LIVE was finished first."""

    live: set[bytes] = field(default_factory=set)  # contents that were delivered to LIVE
    first: dict[bytes, tuple[int, float]] = field(default_factory=dict)  # message id: the node, and when
    # message id, the node that has delivered it again, and when
    again: list[tuple[bytes, int, float]] = field(default_factory=list)
    per_node: Counter[int] = field(default_factory=Counter)  # deliveries

    def finished_at(self, node: int, message_id: bytes, content: bytes) -> None:
        """Note a delivery to LIVE."""
        with self._lock:
            self.live.add(content)
            self.per_node[node] += 1
            if message_id in self.first:
                self.again.append((message_id, node, time.monotonic()))
            else:
                self.first[message_id] = node, time.monotonic()

    def explained(self, disturbances: Iterable[Disturbance]) -> tuple[Counter[str], list[str]]:
        """Return how many duplicates each kind of disturbance explains, and those that none explains."""
        counts, wrong = Counter[str](), []
        for message_id, node, later in self.again:
            first, at = self.first[message_id]
            kinds = {one.kind for one in disturbances if one.explains(first, at) or one.explains_again(node, later)}
            if kinds:
                counts[f"duplicates after {' and '.join(sorted(kinds))}"] += 1
            else:
                wrong.append(f"{message_id!r} was finished at node {first} ({at:.1f}), and came again at node {node}")
        return counts, wrong


class NotingConsumer(LiveConsumer):
    """Consumes, and notes at which node."""

    def __init__(self, node: int, daemon: Callable[[], Daemon], books: DuplicateBooks) -> None:
        super().__init__(node, daemon, books, TOPIC)
        self._noted = books

    def came(self, message_id: bytes, content: bytes) -> None:
        super().came(message_id, content)
        self._noted.finished_at(self.node, message_id, content)


class TakeoverCluster(NetworkedCluster):
    """Three nodes that take each other's logs over."""

    def __init__(self, network: Network, place: Path, certificates: Path, **flags: str) -> None:
        super().__init__(network, place, certificates, [], **flags)
        self.books: DuplicateBooks = DuplicateBooks()
        self.disturbances: list[Disturbance] = []
        self.logs: set[str] = set()  # all log ids that a node has owned at the end of a round
        self._data = place

    def directory(self, number: int) -> Path:
        return self._data / str(number)

    def consumer(self, number: int, daemon: Callable[[], Daemon]) -> LiveConsumer:
        return NotingConsumer(number, daemon, self.books)

    def load(self) -> None:
        self.disturbances = []
        self.books.again.clear()
        super().load()

    # faults

    def disturbed(self, kind: str, *nodes: int) -> None:
        """Note what explains that messages come again which these nodes have delivered."""
        self.disturbances.append(Disturbance(kind, frozenset(nodes), time.monotonic()))

    def kill(self, *numbers: int) -> None:
        self.disturbed("a kill", *numbers)
        super().kill(*numbers)

    def stand_still(self, number: int) -> None:
        self.disturbed("a stop", number)
        super().stand_still(number)

    def cut(self, *sides: set[int]) -> None:
        self.disturbed("a partition", *set[int]().union(*sides))
        super().cut(*sides)

    def drop(self, sender: int, receiver: int) -> None:
        self.disturbed("a partition", *NODES)
        super().drop(sender, receiver)

    def restart(self, number: int) -> None:
        """Stop a node, which says that it is back soon, and start it again."""
        began = time.monotonic()
        assert self.nodes[number].stop() == 0, self.nodes[number].stderr
        self.disturbances.append(Disturbance("a restart", frozenset({number}), began, time.monotonic()))
        self.counts["restarts"] += 1
        self.start(number)

    def kill_while_it_starts(self, number: int, after: float) -> None:
        """Start a node, and kill it so many seconds later, whatever it has done by then."""
        started = self.run(number, ())
        self.let_pass(after)
        self.disturbed("a kill", number)
        self.counts["kills"] += 1
        started.kill()

    # what nodes say

    def figures(self, number: int) -> dict[str, list[dict[str, object]]]:
        """Return what a node answers to /cluster; nothing if it is dead or about to serve."""
        try:
            answer = self._client.get(f"http://{self.nodes[number].http}/cluster")
            return answer.json() if answer.status_code == 200 else {}
        except (httpx.TransportError, KeyError):  # KeyError: it has not said where it listens
            return {}

    def in_sync(self, number: int) -> set[object]:
        return {each["node"] for each in self.figures(number).get("followers", ()) if each["state"] == "in sync"}

    def own_log(self, number: int) -> str:
        """Return the id of the log into which a node publishes; "": it does not serve."""
        return str(next((one["log_id"] for one in self.figures(number).get("owned", ())), ""))

    def owned(self, number: int) -> set[str]:
        """Return the ids of the logs that a node serves."""
        return {str(one["log_id"]) for one in self.figures(number).get("owned", ()) if one["state"] == "serving"}

    def living(self) -> list[int]:
        """Return the nodes that were not killed."""
        return [number for number in NODES if not self.is_dead(number)]

    def adopter(self, log_id: str, *candidates: int) -> int:
        """Wait until one of some nodes serves a log, and return it."""
        found: list[int] = []

        def is_found() -> bool:
            found[:] = [number for number in candidates if log_id in self.owned(number)]
            return bool(found)

        self.until(is_found)
        return found[0]

    def may_adopt(self, number: int, log_id: str) -> bool:
        """Return True if a node has all of a log, as far as it knows, and may adopt it at once."""
        claims: dict[str, Any] = self.figures(number).get("claims", {})  # type: ignore[assignment]
        return any(one["log_id"] == log_id and one["clean"] for one in claims.get("logs", ()))

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
        self.until(self._each_log_has_an_owner)
        self.unload(Publisher)
        self.until(lambda: not any(map(self._left, NODES)))
        self.unload(Client)
        self.close_books()
        self._check_duplicates()

    def _each_log_has_an_owner(self) -> bool:
        owned = [log_id for number in NODES for log_id in self.owned(number)]
        if len(set(owned)) < len(owned) or not self.logs - self._closed() <= set(owned):
            return False
        own = {self.own_log(number) for number in NODES}
        if len(own) < len(NODES) or not own <= {*owned}:
            return False
        self.counts["new logs"] += len({*owned} - self.logs)
        self.logs = {*owned}
        return True

    def _closed(self) -> set[str]:
        """Return the ids of the logs that owe nothing any more, as all nodes together know them."""
        return {str(one["log_id"]) for number in NODES for one in self.figures(number).get("closed", ())}

    def _left(self, number: int) -> int:
        """Return how many messages LIVE still has at a node."""
        path = f"/stats?format=json&topic={TOPIC}&channel={LIVE}&include_clients=false"
        (channel,) = self._client.get(f"http://{self.nodes[number].http}{path}").json()["topics"][0]["channels"]
        return sum(int(channel[name]) for name in ("depth", "in_flight_count", "deferred_count"))

    def _check_duplicates(self) -> None:
        never = [content for content, topic in self.books.acknowledged.items() if topic == TOPIC]
        lost = sorted({*never} - self.books.live)
        assert not lost, f"{len(lost)} acknowledged messages did not come to {LIVE}: {lost[:20]}"
        counts, wrong = self.books.explained(self.disturbances)
        self.counts.update(counts)
        assert not wrong, f"{len(wrong)} duplicates are not explained: {wrong[:20]}; {self.disturbances}"


class TakeoverClusters(Clusters):
    """One cluster at a time; the mode is that of -takeover-quorum."""

    def make(self, place: Path, mode: str) -> NetworkedCluster:
        network = self.stack.enter_context(Network(len(NODES)))
        return TakeoverCluster(network, place, self.certificates, takeover_quorum=mode)
