"""The broker: a node's topics, and the steps of a turn that concern them all.

One object, one thread. Whoever calls a command runs inside a turn: `begin` set the clocks, `seal` gives what was published
its place, `serve` hands out what can be handed out, `tick` does what is due, and `commit` writes all of that as one group.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import Consumer
from nsqd.core.commons import Commons
from nsqd.core.directory import Directory
from nsqd.core.limits import Limits
from nsqd.core.measurement.outcomes import Events
from nsqd.core.message.ids import IdSource
from nsqd.core.pauses import Key, Pause
from nsqd.core.reader import Kind, Parts, Reader
from nsqd.core.registry import Change, ChangeKind, Registry
from nsqd.core.sequence.mark import Promise
from nsqd.core.sequence.store import Store
from nsqd.core.story import Story, told
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.scan import ScanPool
from nsqd.core.topic import Topic
from nsqd.core.tubes import Tubes
from shared.values import SECOND

DRAINING = "DRAINING"  # why nothing can be published while the node drains


class Broker:
    """See above."""

    def __init__(
        self,
        limits: Limits,
        store: Store,
        ids: IdSource,
        random_below: Callable[[int], int],
        story: Story | None = None,
    ) -> None:
        """`story`: where what happens to each message is noted; None: nowhere."""
        self.limits = limits
        self.story = story
        self.store = store = told(store, story) if story is not None else store
        self.ids = ids
        self.agenda = agenda = Agenda()
        self.settle, self.seal, self.serve = agenda.settle, agenda.seal, agenda.serve  # steps of the turn
        self.registry = Registry(limits)
        self.scan = ScanPool(agenda, limits.queue_scan_selection_count, limits.queue_scan_worker_pool_max, random_below)
        self.commons = Commons(
            limits, store, ids, random_below, agenda, self.registry, self.scan, Events(limits.events)
        )
        self.directory = Directory(self.commons)
        self.topics = self.directory.topics
        self.named = self.directory.named  # the same, by the names as protocols read them
        self.topic = self.directory.topic  # finds or creates one
        self.delete_topic = self.directory.delete
        self.tubes = Tubes(self.directory)
        self._makers: dict[Kind, Callable[[Parts], Reader]] = {Kind.WORK_QUEUE: self.tubes.new_tube}  # of further kinds
        self.refusal = ""  # why nothing can be published in this turn; "": it can
        self.draining_since = 0  # ns since the epoch; 0: it does not drain

    # the turn

    def begin(self, now: int, wall: int) -> None:
        """A turn begins at `now` (monotonic ns, which never steps) and `wall` (ns since the epoch, which may).

        Said again, the same turn goes on with them.
        """
        agenda = self.agenda
        if agenda.unsettled:
            agenda.settle()
        agenda.now = now
        agenda.wall = wall
        self.store.begin(now, wall)
        self.refusal = self.store.refusal or (DRAINING if self.draining_since else "")

    def tick(self) -> int | None:
        """Expire and release what is due. Returns when to come back at the latest (ns), or None."""
        self.scan.turn(self.agenda.now)
        return self.agenda.now if self.agenda.awake else self.scan.next_turn()

    def commit(self) -> Sequence[Promise]:
        """Write the turn's group: what was published, finished and delivered. Returns what Store.commit does."""
        agenda = self.agenda
        if agenda.unsettled or agenda.unsealed:
            agenda.seal()
        return self.store.commit()

    def drain(self, draining: bool) -> bool:
        """Take no more messages and jobs, and go on handing out what there is; or take them again. False: it is so already."""
        if draining == bool(self.draining_since):
            return False
        self.draining_since = self.agenda.wall if draining else 0
        self.refusal = self.store.refusal or (DRAINING if draining else "")
        return True

    def read_completed(self, topic_number: int) -> None:
        """The store has what it answered None for."""
        topic = self.directory.by_number.get(topic_number)
        if topic is not None:
            for reader in list(topic.readers.values()):
                reader.read_completed()

    # pauses

    def pause(self, item: Topic | Channel, paused: bool, by: str = "", until: int = 0) -> None:
        """Pause or resume a topic or a channel. `by`: who pauses it; `until`: s since the epoch; 0: it has no end."""
        item.pause(paused)
        key = item.key
        if paused:
            self.registry.pauses.keep(key, Pause(by, self.agenda.wall // SECOND, until))
        else:
            self.registry.pauses.forget(key)
        self.registry.tell(ChangeKind.PAUSED, *key)

    def end_pauses(self, at: int, limit: int) -> list[Key]:
        """Resume up to `limit` of what was paused until `at` (s since the epoch) or before. Returns what."""
        ended = self.registry.pauses.take_due(at, limit)
        for key in ended:
            self.pause(self.paused_item(key), False)
        return ended

    def paused_item(self, key: Key) -> Topic | Channel:
        """The topic or channel of that name. Raises KeyError if it is not there, or not paused."""
        topic = self.topics[key[0]]
        item = topic.channels[key[1]] if key[1] else topic
        if not item.paused:
            raise KeyError(key)
        return item

    # what others ask

    def revive(self, topic: Topic, kind: Kind, name: str, number: int) -> Reader:
        """After a restart: the topic has a reader of that kind, which is still to be filled."""
        if kind is Kind.CHANNEL:
            return topic.revive_channel(name, number)
        return topic.attach(kind, name, self._makers[kind], number)

    def unsubscribe(self, channel: Channel, consumer: Consumer) -> None:
        """The consumer is gone; an ephemeral channel, and with it an ephemeral topic, goes with its last one."""
        self.directory.unsubscribe(channel, consumer)

    def fetch_changes(self) -> list[Change]:
        """What happened to the topology since the last call."""
        return self.registry.fetch_changes()

    @property
    def now(self) -> int:
        """Monotonic ns, of this turn."""
        return self.agenda.now

    @property
    def wall(self) -> int:
        """ns since the epoch, of this turn."""
        return self.agenda.wall

    @property
    def refused(self) -> Counter[str]:
        """What a limit did not let in, by the limit."""
        return self.registry.refused

    @property
    def waiting_bytes(self) -> int:
        """Bytes of memory, about, of what waits for a time. Looks at every channel."""
        lanes = sum(topic.edge.lane.waiting.memory for topic in self.topics.values())
        return lanes + sum(c.deferred.memory for topic in self.topics.values() for c in topic.channels.values())

    def check(self) -> None:
        """Raise AssertionError if a sentence in the core is false. Tests call it last."""
        self.scan.check()
        self.registry.pauses.check()
        for key in self.registry.pauses.known:
            self.paused_item(key)
        self.directory.check()
        self.tubes.check()

    def __repr__(self) -> str:
        return f"<Broker: {self.directory!r}, {self.agenda!r}>"
