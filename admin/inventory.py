"""The nodes that nsqadmin has ever seen, with their last figures, so that a dead node does not vanish from the pages. Pure.

nsqlookupd forgets a node as soon as its connection closes, and everything when it restarts. A node that it no longer names
stays in the inventory: it is UNREGISTERED while it still answers, and DOWN if it does not, until it returns or an operator
dismisses it. Nodes may lie: counts and texts are bounded. All times are ns since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from heapq import nsmallest
from typing import Any

from admin.cluster import Producer
from admin.merge import LONGEST_NAME, JsonObject, number, objects, text
from admin.views import count, duration

MOST_NODES = 1000  # that are remembered; beyond that, the node that was seen longest ago is forgotten
MOST_STUCK = 100  # topics remembered of a node, those with the most messages
MOST_TOPICS = 20_000  # names of topics remembered of a node
DOWN_AFTER = 10_000_000_000  # ns without an answer after which a node that nsqlookupd still names is down
LONGEST = 300  # characters of a reason
MINUTE = 60_000_000_000  # ns
_FIGURES = ("topics", "depth", "in_flight", "deferred", "buried", "clients", "messages")


class NodeState(Enum):
    """What nsqadmin knows of a node."""

    UP = "up"
    UNREGISTERED = "unregistered"  # it answers, but no nsqlookupd names it
    UNANSWERED = "unanswered"  # it does not answer, for a moment only
    DOWN = "down"
    STOPPED = "stopped"  # it does not answer, and was drained before: on purpose

    @property
    def is_gone(self) -> bool:
        """True if the node is not asked and in no sum: until it returns, or an operator dismisses it."""
        return self in (NodeState.DOWN, NodeState.STOPPED)


@dataclass(frozen=True, slots=True)
class Stuck:
    """A topic with messages on a node, as the node told last."""

    topic: str
    messages: int  # in any state but buried
    buried: int


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What is remembered of a node."""

    producer: Producer  # as it was named last; `topics` are those of that time
    is_named: bool  # nsqlookupd, or the configuration, names it now
    seen_at: int  # when it answered last; 0: never
    failing_since: int = 0  # 0: it answered the last time
    reason: str = ""  # why it did not answer
    figures_at: int = 0  # when `figures` were told; 0: never
    figures: Mapping[str, int] = field(default_factory=dict)  # the totals of _FIGURES
    stuck: tuple[Stuck, ...] = ()
    is_drained: bool = False  # it was draining, and had nothing left
    is_draining: bool = False
    adopted_by: int | None = None  # number of the node that has adopted its log and delivers its messages; None: none

    @property
    def address(self) -> str:
        """The host:port of the node's HTTP API."""
        return self.producer.address

    @property
    def name(self) -> str:
        """The host name and address, as pages show a node."""
        return f"{self.producer.hostname} {self.address}".strip()

    def state(self, now: int) -> NodeState:
        """Return the node's state at that time."""
        if not self.failing_since:
            return NodeState.UP if self.is_named else NodeState.UNREGISTERED
        if self.is_named and now - self.failing_since < DOWN_AFTER:
            return NodeState.UNANSWERED
        return NodeState.STOPPED if self.is_drained else NodeState.DOWN

    @property
    def held(self) -> int:
        """The messages that only it could deliver, without buried ones."""
        if self.adopted_by is not None:
            return 0
        return sum(self.figures.get(name, 0) for name in ("depth", "in_flight", "deferred"))

    def losses(self, sees_all: bool, visible: Iterable[str]) -> str:
        """Return which topics and how many messages are stuck on the node, of those topics that are visible to a user.

        If another node delivers them, it says so.
        """
        if self.adopted_by is not None:
            return f"Node {self.adopted_by} has adopted its log and delivers its messages."
        shown = set(visible)
        stuck = [one for one in self.stuck if one.topic in shown]
        if not sees_all:
            held, buried = sum(one.messages for one in stuck), sum(one.buried for one in stuck)
        else:
            held, buried = self.held, self.figures.get("buried", 0)
        if not self.figures_at:
            return "Its figures are not known."
        if not held and not buried:
            is_known = sees_all or len(self.stuck) < MOST_STUCK
            return "It held no messages." if is_known else "Its figures of your topics are not known."
        more = f" and {count(buried)} buried" if buried else ""
        noun, verb = "message" if held == 1 else "messages", "is" if held + buried == 1 else "are"
        names = ", ".join(f"{one.topic} ({count(one.messages + one.buried)})" for one in stuck[:5])
        rest = f" and {len(stuck) - 5} more topics" if len(stuck) > 5 else ""
        return f"{count(held)} {noun}{more} {verb} stuck on it" + (f": {names}{rest}." if names else ".")


class Inventory:
    """The nodes by address. It changes only by what it is told."""

    def __init__(self, records: Iterable[NodeRecord] = ()) -> None:
        self._records = {one.address: one for one in records}
        self._moved: set[str] = set()  # addresses of nodes that seem to have come back under another address
        self.changed: set[str] = set()  # addresses whose records are to be stored, or deleted if there is none

    def all(self) -> list[NodeRecord]:
        """Return all nodes, by host name."""
        return sorted(self._records.values(), key=lambda one: (one.producer.hostname, one.address))

    def find(self, address: str) -> NodeRecord | None:
        """Return a node, or None if it was never seen, or is dismissed."""
        return self._records.get(address)

    def down(self, now: int) -> list[NodeRecord]:
        """Return the nodes that are down."""
        return [one for one in self.all() if one.state(now) is NodeState.DOWN]

    def asked(self, now: int) -> list[Producer]:
        """Return the nodes that pages ask: those that are named or unregistered, and not down or stopped."""
        return [one.producer for one in self.all() if not one.state(now).is_gone]

    def note_named(self, producers: Iterable[Producer], now: int, *, is_complete: bool) -> bool:
        """Note which nodes are named. `is_complete`: those that are not in the list are not named by anybody.

        Returns True if a node is missing from the list that was in the one before.
        """
        named = {one.address: _bounded(one) for one in producers if one.http_port}
        self._moved -= named.keys()
        for address, producer in named.items():
            known = self._records.get(address)
            if known is None:
                self._supersede(producer, named)
                self._put(NodeRecord(producer, True, 0))
            elif known.producer != producer or not known.is_named:
                self._put(replace(known, producer=producer, is_named=True))
        missing = [one for one in self._records.values() if one.is_named and one.address not in named]
        for one in missing if is_complete else ():
            self._put(replace(one, is_named=False))
        self._evict_oldest()
        return bool(missing)

    def note_answer(self, address: str, now: int) -> None:
        """Note that a node answered; its record is written at most once a minute because of that."""
        known = self._records.get(address)
        if known is not None:
            changed = known.failing_since or now // MINUTE != known.seen_at // MINUTE  # stored once a minute
            self._moved.discard(address)
            self._put(replace(known, seen_at=now, failing_since=0, reason=""), store=bool(changed))

    def note_failure(self, address: str, reason: str, now: int) -> None:
        """Note that a node did not answer."""
        known = self._records.get(address)
        if known is not None and address in self._moved and not known.is_named:
            self._drop(address)
        elif known is not None:
            since = min(known.failing_since or now, now)  # the clock may have been set back
            store = not known.failing_since
            self._put(replace(known, failing_since=since, reason=reason[:LONGEST]), store=store)

    def note_figures(self, address: str, data: JsonObject, now: int) -> None:
        """Note the answer of /topics/figures with the columns held and buried, or without columns."""
        known = self._records.get(address)
        totals = data.get("totals")
        if known is None or not isinstance(totals, dict):
            return
        figures = {name: max(0, number(totals.get(name))) for name in _FIGURES}
        stuck = _stuck(data) if "names" in data else known.stuck
        self._put(replace(known, figures=figures, figures_at=now, stuck=stuck))

    def note_drain(self, address: str, *, is_draining: bool, is_drained: bool) -> None:
        """Note whether a node drains, and whether it has nothing left."""
        known = self._records.get(address)
        if known is not None and (known.is_draining, known.is_drained) != (is_draining, is_drained):
            self._put(replace(known, is_draining=is_draining, is_drained=is_drained))

    def note_adopter(self, address: str, adopted_by: int | None) -> None:
        """Note which node has adopted the log of a node of a cluster; None: none."""
        known = self._records.get(address)
        if known is not None and known.adopted_by != adopted_by:
            self._put(replace(known, adopted_by=adopted_by))

    def dismiss(self, address: str, now: int) -> bool:
        """Forget a node that does not answer. Returns False if there is none, or if it answers."""
        known = self._records.get(address)
        if known is None or not known.state(now).is_gone:
            return False
        self._drop(address)
        return True

    def _supersede(self, producer: Producer, named: Mapping[str, Producer]) -> None:
        """Forget a node that is down if the new one is the same under another address, as with a container that moved.

        One that nsqlookupd named until now is forgotten once it does not answer.
        """
        for one in list(self._records.values()):
            is_same = one.producer.hostname == producer.hostname and one.producer.tcp_port == producer.tcp_port
            if is_same and producer.hostname and one.address not in named:
                if one.failing_since and not one.is_named:
                    self._drop(one.address)
                else:
                    self._moved.add(one.address)

    def _put(self, record: NodeRecord, *, store: bool = True) -> None:
        self._records[record.address] = record
        if store:
            self.changed.add(record.address)

    def _drop(self, address: str) -> None:
        del self._records[address]
        self._moved.discard(address)
        self.changed.add(address)

    def _evict_oldest(self) -> None:
        for one in sorted(self._records.values(), key=lambda one: (one.is_named, one.seen_at))[:-MOST_NODES]:
            self._drop(one.address)


def words_of(record: NodeRecord, now: int) -> str:
    """Return since when a node is down and why, in words."""
    since = f"no answer for {duration(max(0, now - record.failing_since))}" if record.failing_since else ""
    registered = "" if record.is_named else "no nsqlookupd names it"
    return "; ".join(filter(None, (since, registered)))


def stored(record: NodeRecord) -> JsonObject:
    """Return the record in a form that JSON can hold."""
    topics = record.producer.topics  # not copied one by one, which takes 2 us for each
    data = asdict(replace(record, producer=replace(record.producer, topics=())))
    return data | {"producer": data["producer"] | {"topics": topics}}


def restored(data: Mapping[str, Any]) -> NodeRecord | None:
    """Return the record that `stored` made; None if it names no node. What is missing or of a wrong type is left out."""
    raw, figures = data.get("producer"), data.get("figures")
    if not isinstance(raw, dict):
        return None
    texts = ("hostname", "broadcast_address", "version", "remote_address", "region", "zone")
    given: dict[str, Any] = {name: text(raw.get(name)) for name in texts}
    given |= {name: number(raw.get(name)) for name in ("tcp_port", "http_port", "https_port")}
    given |= {name: tuple(map(text, _list(raw.get(name)))) for name in ("remote_addresses", "capabilities")}
    topics = [one for one in _list(raw.get("topics")) if isinstance(one, list) and len(one) == 2]
    given["topics"] = tuple((text(name), is_tombstoned is True) for name, is_tombstoned in topics)
    producer = Producer(**given, out_of_date=raw.get("out_of_date") is True)
    if not producer.broadcast_address or producer.http_port <= 0:
        return None
    figures = figures if isinstance(figures, dict) else {}
    return NodeRecord(
        _bounded(producer), is_named=False, reason=text(data.get("reason"))[:LONGEST],
        figures={name: max(0, number(figures[name])) for name in _FIGURES if name in figures},
        stuck=tuple(
            Stuck(text(one.get("topic")), max(0, number(one.get("messages"))), max(0, number(one.get("buried"))))
            for one in objects(data.get("stuck"))[:MOST_STUCK]
        ),
        is_drained=data.get("is_drained") is True, is_draining=data.get("is_draining") is True,
        adopted_by=number(data.get("adopted_by")) if data.get("adopted_by") is not None else None,
        **{name: max(0, number(data.get(name))) for name in ("seen_at", "failing_since", "figures_at")},
    )  # fmt: skip


def _bounded(producer: Producer) -> Producer:
    topics = producer.topics[:MOST_TOPICS]
    return producer if len(topics) == len(producer.topics) else replace(producer, topics=topics)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _stuck(data: JsonObject) -> tuple[Stuck, ...]:
    """Return the topics with the most messages of an answer of /topics/figures."""
    names, columns = data.get("names"), data.get("columns")
    if not isinstance(names, list) or not isinstance(columns, dict):
        return ()
    held, buried = columns.get("held"), columns.get("buried")
    if not (isinstance(held, list) and isinstance(buried, list) and len(names) == len(held) == len(buried)):
        return ()
    found = [
        Stuck(text(name), max(0, number(one)), max(0, number(other)))
        for name, one, other in zip(names, held, buried, strict=True)
        if (one or other) and isinstance(name, str) and len(name) <= LONGEST_NAME
    ]
    worst = nsmallest(MOST_STUCK, found, key=lambda one: (-one.messages - one.buried, one.topic))
    return tuple(one for one in worst if one.messages or one.buried)
