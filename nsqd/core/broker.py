"""The broker: all topics of a node, its ids, and the turn's steps that concern them all.

One object, one thread. Whoever calls a command runs inside a turn: `begin` set the clocks, `seal` gives what was published
its place, `serve` hands out what can be handed out, `tick` does what is due, and `commit` writes all of that as one group.
What the outside must be told (a topic came, a channel went) collects in `changes`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from nsqd.core.channel.channel import Channel
from nsqd.core.limits import Limits, TooMany
from nsqd.core.message.ids import IdSource
from nsqd.core.observation.latency import Latency
from nsqd.core.observation.outcomes import Events, Outcomes
from nsqd.core.pauses import Key, Pause, Pauses
from nsqd.core.sequence.seen import Remembered
from nsqd.core.sequence.store import Store
from nsqd.core.timing.scan import Queue, ScanPool
from nsqd.core.topic import Topic
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.tubes import Tubes
from penstock.protocol.names import is_valid_name
from shared.histogram import Histogram
from shared.values import SECOND

DRAINING = "DRAINING"  # why nothing can be published while the node drains


class ChangeKind(Enum):
    """What can happen to the topology."""

    TOPIC_CREATED = "topic created"
    TOPIC_DELETED = "topic deleted"
    CHANNEL_CREATED = "channel created"
    CHANNEL_DELETED = "channel deleted"
    PAUSED = "paused or unpaused"


@dataclass(frozen=True, slots=True)
class Change:
    """Something the outside (nsqlookupd, the metadata file) has to be told."""

    kind: ChangeKind
    topic: str
    channel: str = ""

    @property
    def lasting(self) -> bool:
        """False if it concerns only what is ephemeral, and so is not written down."""
        return not (self.channel or self.topic).endswith("#ephemeral") and not self.topic.endswith("#ephemeral")


class Broker:
    """See above."""

    def __init__(self, limits: Limits, store: Store, ids: IdSource, random_below: Callable[[int], int]) -> None:
        self.limits = limits
        self.store = store
        self.ids = ids
        self.random_below = random_below
        self.topics: dict[str, Topic] = {}
        self.named: dict[bytes, Topic] = {}  # the same, by the names as protocols read them
        self.unsealed: list[Topic] = []  # topics with messages published in this turn
        self.unsettled: list[Topic] = []  # topics with jobs put in this turn
        # channels with messages, and consumers that have room for them; tubes with ready jobs
        self.awake: dict[Channel | Tube, None] = {}
        self.tubes = Tubes(self)
        self.remembered = Remembered()  # by the topics, of their publishers
        self.pauses = Pauses()  # what is known of those that `pause` has paused
        self.changes: list[Change] = []  # what happened and was not fetched yet
        self.ask_for_channels = False  # True: a new topic waits until Topic.start() (nsqlookupd is asked)
        self.scan = ScanPool(limits.queue_scan_selection_count, limits.queue_scan_worker_pool_max, random_below)
        self.refusal = ""  # why nothing can be published in this turn; "": it can
        self.draining_since = 0  # ns since the epoch; 0: it does not drain
        self.now = 0  # monotonic ns, of this turn
        self.wall = 0  # ns since the epoch, of this turn
        self.channel_count = 0  # of all topics
        self.refused: Counter[str] = Counter()  # what a limit did not let in, by the limit
        self.latencies = Histogram()  # of all messages finished, while percentiles are configured
        self.events = Events(limits.events)
        self._by_number: dict[int, Topic] = {}
        self._next_number = 1

    # the turn

    def begin(self, now: int, wall: int) -> None:
        """A turn begins. The wall clock may step; the monotonic one must not. Said again, the same turn goes on with them."""
        self.settle()
        self.now = now
        self.wall = wall
        self.store.begin(now, wall)
        self._refuse()

    def _refuse(self) -> None:
        self.refusal = self.store.refusal or (DRAINING if self.draining_since else "")

    def drain(self, draining: bool) -> bool:
        """Take no more messages and jobs, and go on handing out what there is; or take them again. False: it is so already."""
        if draining == bool(self.draining_since):
            return False
        self.draining_since = self.wall if draining else 0
        self._refuse()
        return True

    def settle(self) -> None:
        """The jobs that were put so far exist: for whoever looks at them in the same turn."""
        topics, self.unsettled = self.unsettled, []
        for topic in topics:
            topic.settle()

    def seal(self) -> None:
        """Give what this turn published so far its ids and places: it can be delivered from now on."""
        self.settle()
        unsealed, self.unsealed = self.unsealed, []
        for topic in unsealed:
            topic.seal(self.now, self.wall)

    def commit(self) -> int:
        """Write the turn's group: what was published, finished and delivered. Returns what Store.commit does."""
        self.seal()
        return self.store.commit()

    def serve(self) -> None:
        """Give every channel that can deliver one round of its consumers."""
        awake, self.awake = self.awake, {}
        for channel in awake:
            channel.serve(self.now)

    def tick(self) -> int | None:
        """Expire and release what is due. Returns when to come back at the latest (ns), or None."""
        self.scan.turn(self.now)
        return self.now if self.awake else self.scan.next_turn()

    def read_completed(self, topic_number: int) -> None:
        """The store has what it answered None for."""
        topic = self._by_number.get(topic_number)
        if topic is not None:
            for channel in topic.readers():
                channel.read_completed()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of memory, about, of what waits for a time. Looks at every channel."""
        lanes = sum(topic.delay_lane.memory for topic in self.topics.values())
        return lanes + sum(c.deferred.memory for topic in self.topics.values() for c in topic.channels.values())

    # topics

    def topic(self, name: str) -> Topic:
        """The topic of that name, created if it is not there. The name is valid: protocols check it. Raises TooMany."""
        topic = self.topics.get(name)
        if topic is None:
            if len(self.topics) >= self.limits.max_topics:
                raise self.exceeded("max_topics", f"topics exceed limit of {self.limits.max_topics}")
            topic = self.topics[name] = Topic(self, name, self.next_number())
            self.named[name.encode()] = topic
            self._by_number[topic.number] = topic
            topic.starting = self.ask_for_channels and is_valid_name(name)
            self._tell(Change(ChangeKind.TOPIC_CREATED, name))
            if name in self.tubes.listed.users:  # it had been deleted while workers were there
                topic.work()
        return topic

    def delete_topic(self, name: str) -> None:
        """Drop the topic with its channels, messages and connections."""
        topic = self.topics.pop(name)
        del self.named[name.encode()]
        del self._by_number[topic.number]
        topic.delete()
        self.pauses.forget((name, ""))
        self._tell(Change(ChangeKind.TOPIC_DELETED, name))

    def pause(self, item: Topic | Channel, paused: bool, by: str = "", until: int = 0) -> None:
        """Pause or resume a topic or a channel. `by`: who pauses it; `until`: s since the epoch; 0: it has no end."""
        item.pause(paused)
        key = (item.topic.name, item.name) if isinstance(item, Channel) else (item.name, "")
        if paused:
            self.pauses.keep(key, Pause(by, self.wall // SECOND, until))
        else:
            self.pauses.forget(key)
        self._tell(Change(ChangeKind.PAUSED, *key))

    def end_pauses(self, at: int, limit: int) -> list[Key]:
        """Resume up to `limit` of what was paused until `at` (s since the epoch) or before. Returns what."""
        ended = self.pauses.take_due(at, limit)
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

    def _tell(self, change: Change) -> None:
        if is_valid_name(change.topic):  # else it is a tube that no client of NSQ can name
            self.changes.append(change)

    def fetch_changes(self) -> list[Change]:
        """What happened since the last call."""
        changes, self.changes = self.changes, []
        return changes

    # what topics and channels tell

    def next_number(self) -> int:
        """A number for a topic or channel, never given before."""
        number = self._next_number
        self._next_number = number + 1
        return number

    def adopt(self, topic: Topic) -> None:
        """After a restart: this one is there already."""
        self.topics[topic.name] = topic
        self.named[topic.name.encode()] = topic
        self._by_number[topic.number] = topic

    @property
    def highest_number(self) -> int:
        """That a topic or channel was given."""
        return self._next_number - 1

    def continue_numbers(self, number: int) -> None:
        """After a restart: lower ones were given."""
        self._next_number = max(self._next_number, number)

    def admit_channel(self) -> None:
        """A topic is about to make a channel. Raises TooMany."""
        if self.channel_count >= self.limits.max_channels:
            raise self.exceeded("max_channels", f"channels exceed limit of {self.limits.max_channels}")

    def exceeded(self, limit: str, text: str) -> TooMany:
        """A limit does not let something in: that is counted. Returns what is to be raised."""
        self.refused[limit] += 1
        return TooMany(text)

    def new_latency(self) -> Latency | None:
        """What a new channel measures with."""
        limits = self.limits
        if not limits.latency_percentiles:
            return None
        return Latency(limits.latency_percentiles, limits.latency_window, self.latencies)

    def new_outcomes(self, topic: Topic, channel: str) -> Outcomes | None:
        """Likewise, for the statistics topic."""
        return Outcomes(topic.name, channel, topic.producers, self.events) if topic.producers is not None else None

    def channel_created(self, channel: Channel) -> None:
        """A topic made a channel."""
        self.channel_count += 1
        self.scan.add(channel)
        self._tell(Change(ChangeKind.CHANNEL_CREATED, channel.topic.name, channel.name))

    def channel_deleted(self, channel: Channel) -> None:
        """A topic dropped a channel."""
        self.channel_count -= 1
        self.scan.discard(channel)
        self.awake.pop(channel, None)
        self.pauses.forget((channel.topic.name, channel.name))
        self._tell(Change(ChangeKind.CHANNEL_DELETED, channel.topic.name, channel.name))

    def watch(self, queue: Queue, due: int) -> None:
        """`queue` must be scanned by `due`."""
        self.scan.watch(queue, due)

    def unwatch(self, queue: Queue) -> None:
        """`queue` needs no scan."""
        self.scan.unwatch(queue)

    def check(self) -> None:
        """Raise AssertionError if a sentence in the core is false. Tests call it last."""
        self.scan.check()
        self.pauses.check()
        for key in self.pauses.known:
            self.paused_item(key)
        assert [name.encode() for name in self.topics] == list(self.named)
        for name, topic in self.topics.items():
            assert topic.name == name
            assert self.named[name.encode()] is topic
            assert not topic.deleted
            topic.check()
        assert self.channel_count == sum(len(topic.channels) for topic in self.topics.values())
        for channel in self.awake:
            assert not channel.deleted
