"""Promoted logs: how a node delivers what another node's log owes, beside what its own log owes.

A promoted log has a Broker of its own, into which nothing is published. It takes part in the turns of the *home broker*: both
have one agenda and one scan, and a turn ends with a group in each log. Each topic and channel of the promoted log exists in the
home broker as well, where clients and operators find it; the promoted one is a *shard* of it. What operators do to a topic or
channel at home is done to its shards.

See docs/design/channel.md#shards.
"""

from __future__ import annotations

from collections.abc import Iterator

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.window import link, unlink
from nsqd.core.message.ids import IdSource
from nsqd.core.reader import Reader
from nsqd.core.retention.policy import TopicConfig
from nsqd.core.sequence.store import Store
from nsqd.core.topic import Topic
from nsqd.core.work_queue.tube import Tube
from penstock.protocol.names import is_ephemeral


def promoted_broker(home: Broker, store: Store, ids: IdSource) -> Broker:
    """Return an empty broker for a promoted log, which takes part in the turns of `home` once it is attached.

    `ids` are those of the node that published into the log (NoIds: nothing is published any more). The caller fills the broker
    (nsqd/core/recovery.py), in any thread, and then attaches it.
    """
    broker = Broker(home.limits, store, ids, home.context.random_below, None, home)
    home.last_position += 1
    broker.context.position = home.last_position
    broker.registry.is_open = True  # what the log has is there already
    return broker


class Deletions:
    """What is deleted at home while a log that this node owns is not attached: it goes from that log, too, when it is."""

    def __init__(self, home: Broker) -> None:
        """Begin to note what is deleted from now on."""
        self._directory = home.directory
        self._names: dict[tuple[str, str], None] = {}  # of topics, and of channels ("": the topic), in that order
        home.directory.on_deleted.append(self._note)

    def _note(self, topic: str, channel: str) -> None:
        if not is_ephemeral(channel) and not is_ephemeral(topic):  # those are in no log
            self._names[topic, channel] = None

    def end(self) -> None:
        """Note nothing more. It may be called more than once."""
        if self._note in self._directory.on_deleted:
            self._directory.on_deleted.remove(self._note)

    def __repr__(self) -> str:
        return f"Deletions({len(self._names)} names)"

    def repeat(self, promoted: Broker) -> None:
        """Delete the same from a promoted broker that has joined the home broker, and note nothing more."""
        self.end()
        for topic, channel in self._names:
            theirs = promoted.topics.get(topic)
            if theirs is None:
                continue
            if not channel:
                promoted.delete_topic(topic)
            elif channel in theirs.channels:
                promoted.directory.delete_channel(theirs, channel)


class Attachment:
    """The attachment of one promoted broker to the home broker, made and taken back step by step."""

    def __init__(self, home: Broker, promoted: Broker, deletions: Deletions | None = None) -> None:
        """Begin without shards, within a turn. `promoted` comes from `promoted_broker`, and has its topics.

        `deletions`: deletions in this node's own log since it leads the promoted one; None: none.
        """
        self._home = home
        self._promoted = promoted
        self._attached: set[str] = set()  # names of the topics whose channels at home get shards
        self._shared: set[str] = set()  # names of promoted topics whose readers were all made for the home's channels
        self._held: Topic | None = None  # the home topic that distributes nothing until its channels are made
        promoted.join(home)
        if deletions is not None:
            deletions.repeat(promoted)
        self._steps = self._attach(list(promoted.topics))
        home.registry.on_channel_created.append(self._channel_created)

    def attach_some(self, limit: int) -> bool:
        """Attach up to `limit` topics or channels. Returns True if there are more. Consumers get messages of each at once.

        A step takes about 15 us, and 5 us for each consumer of the channel.
        """
        return _advance(self._steps, limit)

    def detach_some(self, limit: int) -> bool:
        """Take back up to `limit` topics or channels. Returns True if there are more; else the promoted broker is gone.

        What is in flight is forgotten: FINs for it fail. Until the last call the others go on, and the log must be open.
        """
        registry = self._home.registry
        if self._channel_created in registry.on_channel_created:
            registry.on_channel_created.remove(self._channel_created)
            self._home.directory.shards.remove(self._promoted.directory)
            self._home.tubes.shards.remove(self._promoted.tubes)
            self._release()
            self._steps = self._detach()
        return _advance(self._steps, limit)

    # steps

    def _attach(self, names: list[str]) -> Iterator[None]:
        for name in names:
            theirs = self._promoted.topics.get(name)
            if theirs is None:
                continue  # it was deleted since
            ours = self._attach_topic(theirs)
            if not (ours.readers or ours.starting):
                self._held, ours.starting = ours, True  # all of the channels get what waits at home
            yield
            for channel in list(theirs.channels):
                if channel in theirs.channels:  # else it was deleted since
                    self._attach_channel(ours, theirs, channel)
                    yield
            self._release()
            if not theirs.deleted:
                self._attach_tube(ours, theirs)
                self._share_waiting(ours, theirs)

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.start()

    def _attach_topic(self, theirs: Topic) -> Topic:
        """Make the home topic if there is none, and let it know the shard. A pause of either holds for the shard."""
        home, name = self._home, theirs.name
        is_new = name not in home.topics
        ours = self._beyond_limits(name, "")
        if is_new:
            ours.is_tubes_own = theirs.is_tubes_own
            if theirs.config != TopicConfig():
                ours.configure(theirs.config)
        ours.shards += (theirs,)
        self._attached.add(name)
        theirs.move(home.agenda)
        for reader in theirs.readers.values():
            home.scan.add(reader)
        if ours.paused and not theirs.paused:
            self._promoted.set_pause(theirs, ours.paused)
        return ours

    def _attach_channel(self, ours: Topic, theirs: Topic, name: str) -> None:
        if name in ours.channels:
            self._link(ours, theirs, name)
        else:
            self._beyond_limits(ours.name, name)  # which calls `_channel_created`

    def _link(self, ours: Topic, theirs: Topic, name: str) -> None:
        home, shard = ours.channels[name], theirs.channels[name]
        if shard in home.shards:
            return
        if home.paused and not shard.paused:
            self._promoted.set_pause(shard, home.paused)
        link(home, shard)

    def _attach_tube(self, ours: Topic, theirs: Topic) -> None:
        """Let workers reserve the jobs of the promoted topic's tube, if it has one."""
        tube = self._promoted.tubes.tube(theirs.name)
        if tube is not None:
            registry = self._home.registry
            before, registry.is_open = registry.is_open, True
            home = self._home.tubes.attach(ours)
            registry.is_open = before
            self._home.last_shard -= 1
            tube.become_shard(home, self._home.last_shard)

    def _beyond_limits(self, topic: str, channel: str) -> Topic:
        """Return the home topic of that name, with that channel unless it is "". What exists is not refused."""
        registry = self._home.registry
        before, registry.is_open = registry.is_open, True
        ours = self._home.topic(topic)
        if channel:
            ours.channel(channel)
        registry.is_open = before
        return ours

    def _share_waiting(self, ours: Topic, theirs: Topic) -> None:
        """Give what the promoted topic has for no reader yet to the channels of the home topic."""
        is_shared = ours.name in self._shared or not theirs.readers
        if not is_shared or not theirs.depth or not ours.channels:
            return
        self._shared.add(ours.name)
        theirs.starting = True  # all of the channels get all of it
        for name in ours.channels:
            theirs.channel(name)
            self._link(ours, theirs, name)
        theirs.starting = ours.starting
        theirs.distribute()

    def _channel_created(self, topic: str, name: str) -> None:
        """Give a channel that was just made at home its shard."""
        if topic not in self._attached:
            return
        theirs = self._promoted.topics.get(topic)
        if theirs is None:
            return  # it was deleted; the home topic of that name is another one
        ours = self._home.topics[topic]
        if name in theirs.channels:
            self._link(ours, theirs, name)
        else:
            self._share_waiting(ours, theirs)

    def _detach(self) -> Iterator[None]:
        home, promoted = self._home, self._promoted
        for theirs in list(promoted.topics.values()):
            ours = home.topics.get(theirs.name)
            if ours is not None:
                ours.shards = tuple(one for one in ours.shards if one is not theirs)
            if theirs.name not in self._attached:
                continue
            home.agenda.cancel_scan(theirs.distribution)
            for reader in list(theirs.readers.values()):
                if not reader.deleted:
                    self._forget(reader)
                yield
        home.logs.remove(promoted)

    def _forget(self, reader: Reader) -> None:
        if isinstance(reader, Channel):
            unlink(reader)
        elif isinstance(reader, Tube) and reader.key < 0:
            reader.end_shard(self._home.tubes.tube(reader.topic_name))
        self._home.scan.discard(reader)
        self._home.agenda.remove_reader(reader)

    def __repr__(self) -> str:
        return f"<Attachment of {self._promoted!r}: {len(self._attached)} topics>"


def _advance(steps: Iterator[None], limit: int) -> bool:
    """Take up to `limit` steps. Returns True if there may be more."""
    return all(next(steps, True) is None for _ in range(limit))
