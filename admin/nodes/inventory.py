"""The nodes that nsqadmin has ever seen, with their last counts, so that a dead node does not vanish from the pages. Pure.

nsqlookupd forgets a node as soon as its connection closes, and all nodes when it restarts. A node that it no longer names stays
in the inventory: it is UNREGISTERED while it still answers, and DOWN if it does not, until it returns or an operator dismisses
it. Nodes may lie: counts and texts are bounded. All times are ns since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from heapq import nsmallest
from typing import Any

from admin.nodes.cluster import Producer
from admin.nodes.merge import fields, items
from admin.nodes.observations import BURIED_JOBS, JOBS, TOTALS, Observation
from admin.nodes.upstreams import TIMED_OUT
from admin.nodes.views import count, duration
from admin.times import second
from shared.counted import counted
from shared.json_fields import JsonObject, number, objects, text

MOST_NODES = 1000  # that are remembered; beyond that, the node that was seen longest ago is forgotten
MOST_STUCK = 100  # topics remembered of a node, those with the most messages
MOST_TOPICS = 20_000  # names of topics remembered of a node
DOWN_AFTER = 10_000_000_000  # ns without an answer after which a node that nsqlookupd still names is down
LONGEST = 300  # characters of a reason
MINUTE = 60_000_000_000  # ns
_FIGURES = (*TOTALS, JOBS, BURIED_JOBS)


class NodeState(Enum):
    """The state of a node, as nsqadmin knows it."""

    UP = "up"
    UNREGISTERED = "unregistered"  # it answers, but no nsqlookupd names it
    UNANSWERED = "unanswered"  # it does not answer, for a moment only
    DOWN = "down"
    STOPPED = "stopped"  # it does not answer, and was drained before, or has left its cluster: on purpose

    @property
    def is_gone(self) -> bool:
        """True if the node is not asked and in no sum: until it returns, or an operator dismisses it."""
        return self in (NodeState.DOWN, NodeState.STOPPED)


@dataclass(frozen=True, slots=True)
class Stuck:
    """A topic with messages on a node, as the node reported last."""

    topic: str
    messages: int  # in any state but buried
    buried: int
    at: int = 0  # when the node reported it; 0: with the record's `figures`


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as nsqadmin remembers it."""

    producer: Producer  # as it was named last; `topics` are those of that time
    is_named: bool  # nsqlookupd, or the configuration, names it now
    seen_at: int  # when it answered last; 0: never
    failing_since: int = 0  # 0: it answered the last time
    reason: str = ""  # why it did not answer
    figures_at: int = 0  # when the node reported `figures`; 0: never
    figures: Mapping[str, int] = field(default_factory=dict)  # the totals of _FIGURES
    stuck: tuple[Stuck, ...] = ()  # of topics; some may be newer than `figures`
    is_drained: bool = False  # it was draining, and had nothing left; or it has left its cluster
    is_draining: bool = False
    led_by: int | None = None  # number of the node that leads its log now and delivers its messages; None: none

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
    def hangs(self) -> bool:
        """Whether it accepts connections but does not answer: its process runs."""
        return bool(self.failing_since) and TIMED_OUT in self.reason

    @property
    def held(self) -> int:
        """The messages that only it could deliver, without jobs and buried ones, as of `held_at`."""
        if self.led_by is not None:
            return 0
        return max(self._total, self._listed) if self._is_listed_newer else self._total

    @property
    def held_at(self) -> int:
        """When the node reported `held`, ns since the epoch; 0: never."""
        newest = max((one.at for one in self.stuck), default=0)
        return newest if self._is_listed_newer and self._listed >= self._total else self.figures_at

    @property
    def _total(self) -> int:
        return sum(self.figures.get(name, 0) for name in ("depth", "in_flight", "deferred"))

    @property
    def _listed(self) -> int:
        return sum(one.messages for one in self.stuck)

    @property
    def _is_listed_newer(self) -> bool:
        return any(one.at > self.figures_at for one in self.stuck)

    def losses(self, sees_all: bool, visible: Iterable[str]) -> str:
        """Describe the messages that are stuck on the node, of topics that a user sees, or the node that delivers them."""
        if self.led_by is not None:
            return f"Node {self.led_by} leads its log now and delivers its messages."
        shown = set(visible)
        stuck = [one for one in self.stuck if one.topic in shown]
        held, buried = sum(one.messages for one in stuck), sum(one.buried for one in stuck)
        jobs, at = 0, max((one.at for one in stuck), default=0) or self.figures_at
        if sees_all:
            buried = max(buried, self.figures.get("buried", 0)) + self.figures.get(BURIED_JOBS, 0)
            held, jobs, at = self.held, self.figures.get(JOBS, 0), self.held_at
        if not at:
            return "Its counts are not known."
        lost = self.failing_since
        as_of = second(at) + (f", {duration(lost - at)} before it was lost" if lost > at else "")
        if not held and not buried and not jobs:
            is_known = sees_all or len(self.stuck) < MOST_STUCK
            known = f"No messages were on it as of {as_of}. Later messages are not known."
            return known if is_known else "Its counts of your topics are not known."
        kinds = [counted(held, "message")] if held or not jobs else []
        kinds += [counted(jobs, "job")] if jobs else []
        more = f" and {count(buried)} buried" if buried else ""
        names = ", ".join(f"{one.topic} ({count(one.messages + one.buried)})" for one in stuck[:5])
        rest = f" and {counted(len(stuck) - 5, 'more topic')}" if len(stuck) > 5 else ""
        return f"{' and '.join(kinds)}{more} stuck on it{': ' if names else ''}{names}{rest}. That is as of {as_of}."


class Inventory:
    """The nodes by address. It is pure: callers note names, answers and failures."""

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

    def asked(self, now: int) -> list[Producer]:
        """Return the nodes that pages ask: all that are not down or stopped."""
        return [one.producer for one in self.all() if not one.state(now).is_gone]

    def gone(self, now: int) -> frozenset[str]:
        """Return the addresses of the nodes that are down or stopped."""
        records = self._records.items()
        return frozenset(address for address, one in records if one.failing_since and one.state(now).is_gone)

    def note_named(self, producers: Iterable[Producer], now: int, *, is_complete: bool) -> bool:
        """Note which nodes are named, and return whether a node that was named is missing.

        `is_complete`: all nsqlookupds answered, so that a missing node is no longer named.
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
        """Note that a node answered. An answer alone is stored at most once a minute."""
        known = self._records.get(address)
        if known is not None:
            changed = known.failing_since or now // MINUTE != known.seen_at // MINUTE
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

    def note(self, address: str, seen: Observation, at: int) -> None:
        """Note the messages that an answer of a node reports. `at`: when the node was asked."""
        known = self._records.get(address)
        if known is None:
            return
        figures, figures_at = dict(known.figures), known.figures_at
        if seen.totals and at >= figures_at:
            figures, figures_at = {**figures, **seen.totals}, at
            if BURIED_JOBS in seen.totals:  # which includes buried messages
                figures[BURIED_JOBS] = max(0, seen.totals[BURIED_JOBS] - figures.get("buried", 0))
        stuck = _stuck(known.stuck, seen, at)
        store = at // MINUTE != max((known.figures_at, *(one.at for one in known.stuck))) // MINUTE
        self._put(replace(known, figures=figures, figures_at=figures_at, stuck=stuck), store=store)

    def note_drain(self, address: str, *, is_draining: bool, is_drained: bool) -> None:
        """Note whether a node drains, and whether it has nothing left."""
        known = self._records.get(address)
        if known is not None and (known.is_draining, known.is_drained) != (is_draining, is_drained):
            self._put(replace(known, is_draining=is_draining, is_drained=is_drained))

    def note_new_leader(self, address: str, led_by: int | None) -> None:
        """Note which node has promoted the log of a node of a cluster; None: none."""
        known = self._records.get(address)
        if known is not None and known.led_by != led_by:
            self._put(replace(known, led_by=led_by))

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
    """Describe for how long a node has been down, if that is known, and whether it is registered."""
    state = "it runs, but has not answered" if record.hangs else "no answer"
    elapsed = now - record.failing_since
    since = (f"{state} for {duration(elapsed)}" if elapsed > 0 else state) if record.failing_since else ""
    registered = "" if record.is_named else "no nsqlookupd names it"
    return "; ".join(filter(None, (since, registered)))


def stored(record: NodeRecord) -> JsonObject:
    """Return the record in a form that JSON can hold."""
    topics = record.producer.topics  # not copied one by one, which takes 2 us for each
    data = asdict(replace(record, producer=replace(record.producer, topics=())))
    return data | {"producer": data["producer"] | {"topics": topics}}


def restored(data: Mapping[str, Any]) -> NodeRecord | None:
    """Return the record that `stored` made; None if it names no node. A field of a wrong type counts as missing."""
    raw, figures = fields(data.get("producer")), fields(data.get("figures"))
    given: dict[str, Any] = {name: text(raw.get(name)) for name in (*Producer.TEXTS, "region", "zone")}
    given |= {name: number(raw.get(name)) for name in Producer.PORTS}
    given |= {name: tuple(map(text, items(raw.get(name)))) for name in ("remote_addresses", "capabilities")}
    topics = [one for one in items(raw.get("topics")) if isinstance(one, list) and len(one) == 2]
    given["topics"] = tuple((text(name), is_tombstoned is True) for name, is_tombstoned in topics)
    producer = Producer(**given, out_of_date=raw.get("out_of_date") is True)
    if not producer.broadcast_address or producer.http_port <= 0:
        return None
    return NodeRecord(
        _bounded(producer), is_named=False, reason=text(data.get("reason"))[:LONGEST],
        figures={name: max(0, number(figures[name])) for name in _FIGURES if name in figures},
        stuck=tuple(
            Stuck(text(one.get("topic")), *(max(0, number(one.get(name))) for name in ("messages", "buried", "at")))
            for one in objects(data.get("stuck"))[:MOST_STUCK]
        ),
        is_drained=data.get("is_drained") is True, is_draining=data.get("is_draining") is True,
        led_by=number(data.get("led_by")) if data.get("led_by") is not None else None,
        **{name: max(0, number(data.get(name))) for name in ("seen_at", "failing_since", "figures_at")},
    )  # fmt: skip


def _bounded(producer: Producer) -> Producer:
    return producer if len(producer.topics) <= MOST_TOPICS else replace(producer, topics=producer.topics[:MOST_TOPICS])


def _stuck(known: tuple[Stuck, ...], seen: Observation, at: int) -> tuple[Stuck, ...]:
    """Return the topics with the most messages, after an answer of a node."""
    found = {one.topic: one for one in known if one.at > at or not seen.is_complete}
    for topic, held in seen.topics.items():
        before = found.get(topic, Stuck(topic, 0, 0))
        if before.at > at:
            continue
        if seen.is_exact:
            found[topic] = Stuck(topic, *held, at)
        elif held.messages > before.messages or held.buried > before.buried:
            found[topic] = Stuck(topic, max(held.messages, before.messages), max(held.buried, before.buried), at)
    worst = nsmallest(MOST_STUCK, found.values(), key=lambda one: (-one.messages - one.buried, one.topic))
    return tuple(one for one in worst if one.messages or one.buried)
