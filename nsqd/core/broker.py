"""The broker: a node's topics, and the steps of a turn that concern them all.

There is one broker, and one thread uses it. Every command runs inside a turn: `begin` sets the clocks, `seal` gives published
messages their places, `serve` delivers what can be delivered, `tick` does what is due, and `commit` writes it all as one group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from nsqd.core.batches.batches import Batches
from nsqd.core.channel.channel import Channel
from nsqd.core.directory import Directory
from nsqd.core.limits import Limits, NotTaken
from nsqd.core.measurement.outcomes import Events
from nsqd.core.message.ids import IdSource
from nsqd.core.node_context import NodeContext
from nsqd.core.pauses import Key
from nsqd.core.reader import Parts, Reader, ReaderKind
from nsqd.core.receives import Receives
from nsqd.core.registry import ChangeKind, Registry
from nsqd.core.scheduling.schedules import Schedules
from nsqd.core.sequence.mark import Promise
from nsqd.core.sequence.store import Store
from nsqd.core.timing.agenda import Agenda, IdleAgenda
from nsqd.core.timing.pause import Pause
from nsqd.core.timing.scan import ScanPool
from nsqd.core.topic import Topic
from nsqd.core.trace import Trace, traced_store
from nsqd.core.tubes import Tubes
from nsqd.core.work_queue.waiters import MOST_NAMES
from shared.values import SECOND

DRAINING = "DRAINING"  # why nothing can be published while the node drains
NO_COPIES = "NOREPL"  # nor while it has not received the configurations of topics


class PutWaiter(Protocol):
    """A client whose put waits until enough nodes can have a copy of it."""

    def retry_put(self) -> None:
        """Try the put again in a later turn: the number of copies may suffice now, or the node drains."""


class Broker:
    """All topics of a node, with the steps of the turn."""

    def __init__(
        self,
        limits: Limits,
        store: Store,
        ids: IdSource,
        random_below: Callable[[int], int],
        trace: Trace | None = None,
        node: Broker | None = None,
    ) -> None:
        """Make an empty broker.

        `trace`: notes what happens to each message; None: nothing is noted. `node`: the node's own broker, in whose turns this
        one takes part later (`join`); None: this is the node's own.
        """
        self.limits = limits
        self.trace = trace
        self.store = store = traced_store(store, trace) if trace is not None else store
        self.ids = ids
        self.agenda = agenda = Agenda() if node is None else IdleAgenda()
        self.seal_puts, self.seal, self.serve = agenda.seal_puts, agenda.seal, agenda.serve  # steps of the turn
        self.registry = Registry(limits)
        self.scan = _new_scan(agenda, limits, random_below)
        self.context = NodeContext(
            limits, store, ids, random_below, agenda, self.registry, self.scan, Events(limits.events),
            Batches(store.record), Schedules(store.record),
        )  # fmt: skip
        if node is not None:
            self.context.events, self.context.latencies = node.context.events, node.context.latencies
        self.directory = Directory(self.context)
        self.topics = self.directory.topics
        self.named = self.directory.named  # the same topics, by the names as protocols read them (bytes)
        self.topic = self.directory.topic  # finds or creates a topic
        self.delete_topic, self.unsubscribe = self.directory.delete, self.directory.unsubscribe
        self.fetch_changes, self.refused = self.registry.fetch_changes, self.registry.refused
        self.tubes = Tubes(self.directory)
        self.receives = Receives(self.directory, agenda)  # requests for messages over HTTP
        # makers of readers other than channels
        self._makers: dict[ReaderKind, Callable[[Parts], Reader]] = {ReaderKind.WORK_QUEUE: self.tubes.new_tube}
        # errors that clients were answered, by protocol and code
        self.client_errors: Counter[tuple[str, str]] = Counter()
        self.draining_since = 0  # ns since the epoch; 0: the node does not drain
        self.put_waiters: dict[PutWaiter, None] = {}  # clients whose put waits until enough nodes can have a copy
        # the brokers of all logs that the node leads: this one, into whose log clients publish, then those of promoted logs,
        # which share its agenda and its scan (shards.py)
        self.logs: list[Broker] = [self]
        self.last_position = 0  # that of the log promoted last: see NodeContext
        self.last_shard = 0  # the number by which workers know the latest tube of a promoted log; each is 1 lower

    def join(self, node: Broker) -> None:
        """Take part in the turns of `node` from now on. Its topics move one by one (Topic.move)."""
        self.agenda, self.scan = self.context.agenda, self.context.scan = node.agenda, node.scan
        self.seal_puts, self.seal, self.serve = node.seal_puts, node.seal, node.serve
        self.tubes.move(node.agenda)
        self.store.begin(node.now, node.wall)
        node.logs.append(self)
        node.directory.shards.append(self.directory)
        node.context.batches.shards.append(self.context.batches)
        node.tubes.shards.append(self.tubes)

    # the turn

    def begin(self, now: int, wall: int) -> None:
        """Begin a turn at `now` (monotonic ns, which never steps) and `wall` (ns since the epoch, which may step).

        A second call before `commit` continues the same turn with new times.
        """
        agenda = self.agenda
        if agenda.unsealed_puts:
            agenda.seal_puts()
        if now - agenda.now > agenda.longest_gap:
            agenda.note_pause(now)
        agenda.now = now
        agenda.wall = wall
        self.tubes.waiters.names_left = MOST_NAMES
        refusal = self.store.begin(now, wall) or (DRAINING if self.draining_since else "")
        if len(self.logs) > 1:
            for promoted in self.logs[1:]:
                promoted.store.begin(now, wall)
        if refusal != self.context.refusal:
            self._set_refusal(refusal)

    def tick(self) -> int | None:
        """Expire and release what is due. Returns by when to call again (monotonic ns), or None if nothing waits."""
        self.scan.turn(self.agenda.now)
        return self.agenda.now if self.agenda.awake else self.scan.next_turn()

    def commit(self) -> Sequence[Promise]:
        """Write the turn's records as one group. Returns the promises of Store.commit."""
        agenda = self.agenda
        if agenda.unsealed_puts or agenda.unsealed:
            agenda.seal()
        promises = self.store.commit()
        return promises if len(self.logs) == 1 else [*promises, *self._commit_promoted()]

    def _commit_promoted(self) -> Iterator[Promise]:
        for promoted in self.logs[1:]:
            yield from promoted.store.commit()
            promoted.registry.changes.clear()  # the topics of this log have the same names, and their changes are reported

    def drain(self, draining: bool) -> bool:
        """Stop taking messages and jobs while deliveries continue, or take them again. Returns False if nothing changes.

        A node that leaves its cluster takes none again.
        """
        if draining == bool(self.draining_since) or (self.agenda.is_leaving and not draining):
            return False
        self.draining_since = self.agenda.wall if draining else 0
        self._set_refusal(self.store.refusal or (DRAINING if draining else ""))
        self._retry_puts()
        return True

    # publishing

    @property
    def refusal(self) -> str:
        """Return the reason for which the node takes no messages in this turn; "": it does."""
        return self.context.refusal

    def _set_refusal(self, refusal: str) -> None:
        changes = bool(refusal) != bool(self.context.refusal)
        self.context.refusal = refusal
        if changes:  # a text alone may change in each turn, as the space that is left does
            for topic in self.topics.values():
                topic.update_shut()

    def check_open(self) -> None:
        """Raise NotTaken if the node takes no messages."""
        if self.context.refusal:
            raise NotTaken(self.context.refusal)

    def admit(self, name: str, make: Callable[[str], Topic] | None = None) -> Topic:
        """Return the topic to which a message is to be published, made by `make` if it does not exist; None: by `topic`.

        This is the rule for messages of all protocols; Tubes has that for jobs. Where every message counts they check
        `Topic.shut` of a topic that exists, if it is True `Topic.has_room`, and come here if there is none. Raises NotTaken,
        TooFewCopies, TopicFull, and what `make` raises.
        """
        self.check_open()
        topic = self.topics.get(name) or (make or self.topic)(name)
        if topic.shut:
            topic.check_open()
        return topic

    def resume(self) -> None:
        """Resume deliveries after a pause of the process: other nodes have reported the leaders of its logs."""
        self.agenda.resume()
        for one in self.logs:
            one.tubes.offer_all()

    def set_copies(self, available: int) -> None:
        """Set how many nodes can have a copy of a message now, this one included.

        0: not even this one, because it has not received the configurations of the cluster's topics yet.
        """
        has_more = available > self.context.copies
        self.context.copies = available
        for topic in self.topics.values():
            topic.update_shut()
        if has_more:
            self._retry_puts()

    def _retry_puts(self) -> None:
        waiters, self.put_waiters = self.put_waiters, {}
        for waiter in waiters:
            waiter.retry_put()

    def read_completed(self, topic_number: int) -> None:
        """Have the topic's readers continue: the store has read what it returned None for."""
        topic = self.directory.by_number.get(topic_number)
        if topic is not None:
            for reader in list(topic.readers.values()):
                reader.read_completed()

    # pauses

    def pause(self, item: Topic | Channel, paused: bool, by: str = "", until: int = 0) -> None:
        """Pause or resume a topic or a channel. `by`: who pauses it. `until`: s since the epoch; 0: the pause has no end."""
        self.set_pause(item, Pause(by, self.agenda.wall // SECOND, until) if paused else None)

    def set_pause(self, item: Topic | Channel, pause: Pause | None) -> None:
        """Give a topic or a channel a pause that is known; None: resume it."""
        item.pause(pause)
        if pause is not None:
            self.registry.pauses.remember(item.key, pause)
        else:
            self.registry.pauses.forget(item.key)
        self.registry.note_change(ChangeKind.PAUSED, *item.key)
        for promoted in self.logs[1:]:
            same = promoted.find_item(item.key)
            if same is not None and same.paused != pause:
                promoted.set_pause(same, pause)

    def end_pauses(self, at: int, limit: int) -> list[Key]:
        """Resume up to `limit` topics and channels whose pauses end by `at` (s since the epoch). Returns their keys."""
        ended = self.registry.pauses.take_due(at, limit)
        for key in ended:
            self.pause(self.paused_item(key), False)
        for promoted in self.logs[1:]:
            ended += promoted.end_pauses(at, limit)
        return ended

    def paused_item(self, key: Key) -> Topic | Channel:
        """Return the topic or channel of that key. Raises KeyError if it does not exist or is not paused."""
        item = self.find_item(key)
        if item is None or not item.paused:
            raise KeyError(key)
        return item

    def find_item(self, key: Key) -> Topic | Channel | None:
        """Return the topic or channel of that key; None: it does not exist."""
        topic = self.topics.get(key[0])
        return topic.channels.get(key[1]) if topic is not None and key[1] else topic

    # readers and queries

    def revive(self, topic: Topic, kind: ReaderKind, name: str, number: int) -> Reader:
        """Make a reader of that kind that existed before the restart. The caller still has to fill it."""
        if kind is ReaderKind.CHANNEL:
            return topic.distribution.revive_channel(name, number)
        return topic.attach(kind, name, self._makers[kind], number)

    @property
    def unready(self) -> str:
        """Return the reason for clients to use another node while this one is well: DRAINING or NO_COPIES. "": none."""
        if self.draining_since:
            return DRAINING
        return NO_COPIES if not self.context.copies else ""

    @property
    def now(self) -> int:
        """Return the time of this turn, in monotonic ns."""
        return self.agenda.now

    @property
    def wall(self) -> int:
        """Return the time of this turn, in ns since the epoch."""
        return self.agenda.wall

    @property
    def waiting_bytes(self) -> int:
        """Return about how many bytes of memory delayed and deferred messages take. Looks at every channel if there are any."""
        return self._waiting_bytes() if self.agenda.index else 0  # an idle node asks every second, too

    def _waiting_bytes(self) -> int:
        in_topics = sum(topic.offsets.delay_queue.waiting.memory for topic in self.topics.values())
        return in_topics + sum(c.deferred.memory for topic in self.topics.values() for c in topic.channels.values())

    def check(self) -> None:
        """Raise AssertionError if an invariant of the core does not hold. Tests call it last."""
        self.scan.check()
        assert self.waiting_bytes == self._waiting_bytes()
        self.registry.pauses.check()
        for key, pause in self.registry.pauses.details.items():
            assert self.paused_item(key).paused == pause
        self.directory.check()
        self.tubes.check()
        self.receives.check()
        self.context.batches.check()
        for promoted in self.logs[1:]:
            promoted.check()

    def __repr__(self) -> str:
        return f"<Broker: {self.directory!r}, {self.agenda!r}>"


def _new_scan(agenda: Agenda, limits: Limits, random_below: Callable[[int], int]) -> ScanPool:
    return ScanPool(agenda, limits.queue_scan_selection_count, limits.queue_scan_worker_pool_max, random_below)
