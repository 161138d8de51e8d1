"""Promoted logs: how a node delivers the unfinished messages of another node's log, in addition to those of its own log.

A promoted log has a Broker of its own, into which nothing is published. It takes part in the turns of the node's own broker:
both have one agenda and one scan, and a turn ends with a group in each log. Each topic and channel of the promoted log exists
in the node's own broker as well, where clients and operators find it; the promoted one is a *shard* of it. What operators do to
a topic or channel is done to its shards.

See docs/contributing/design/channel.md#shards.
"""

from collections.abc import Iterator

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.window import link
from nsqd.core.message.ids import IdSource
from nsqd.core.reader import Reader
from nsqd.core.sequence.store import Store
from nsqd.core.topic import Topic
from nsqd.core.work_queue.tube import Tube
from penstock.protocol.names import is_ephemeral
from shared.topic_config import TopicConfig


def promoted_broker(node: Broker, store: Store, ids: IdSource) -> Broker:
    """Return an empty broker for a promoted log, which takes part in the turns of `node` once it is attached.

    `ids` are those of the node that published into the log (NoIds: nothing more is published). The caller fills the broker
    (nsqd/core/recovery.py), in any thread, and then attaches it.
    """
    broker = Broker(node.limits, store, ids, node.context.random_below, None, node)
    node.last_position += 1
    broker.context.position = node.last_position
    broker.registry.is_open = True  # the topics and channels of the log exist already
    return broker


class Deletions:
    """Deletions on the node while a log that it leads is not attached: they are repeated in that log when it is."""

    def __init__(self, node: Broker) -> None:
        """Begin to record what is deleted from now on."""
        self._directory = node.directory
        self._names: dict[tuple[str, str], None] = {}  # of topics, and of channels ("": the topic), in that order
        node.directory.on_deleted.append(self._note)

    def _note(self, topic: str, channel: str) -> None:
        if not is_ephemeral(channel) and not is_ephemeral(topic):  # those are in no log
            self._names[topic, channel] = None

    def end(self) -> None:
        """Record nothing more. It may be called more than once."""
        if self._note in self._directory.on_deleted:
            self._directory.on_deleted.remove(self._note)

    def __repr__(self) -> str:
        return f"Deletions({len(self._names)} names)"

    def repeat(self, promoted: Broker) -> None:
        """Delete the same from a promoted broker that has joined the node's own, and record nothing more."""
        self.end()
        for topic, channel in self._names:
            shard = promoted.topics.get(topic)
            if shard is None:
                continue
            if not channel:
                promoted.delete_topic(topic)
            elif channel in shard.channels:
                promoted.directory.delete_channel(shard, channel)


class Attachment:
    """The attachment of one promoted broker to the node's own, made and taken back step by step."""

    def __init__(self, node: Broker, promoted: Broker, deletions: Deletions | None = None) -> None:
        """Begin without shards, within a turn. `promoted` comes from `promoted_broker`, and has its topics.

        `deletions`: deletions in this node's own log since it leads the promoted one; None: none.
        """
        self._node = node
        self._promoted = promoted
        self._attached: set[str] = set()  # names of the topics whose local channels get shards
        self._shared: set[str] = set()  # names of promoted topics whose readers were all made for the local channels
        self._held: Topic | None = None  # the local topic that distributes nothing until its channels are made
        promoted.join(node)
        if deletions is not None:
            deletions.repeat(promoted)
        self._steps = self._attach(list(promoted.topics))
        node.registry.on_channel_created.append(self._channel_created)

    def attach_batch(self, limit: int) -> bool:
        """Attach up to `limit` topics or channels. Returns True if there are more. Consumers get messages of each at once.

        A step takes about 15 us, and 5 us for each consumer of the channel.
        """
        return _advance(self._steps, limit)

    def detach_batch(self, limit: int) -> bool:
        """Take back up to `limit` topics or channels. Returns True if there are more; else the promoted broker is gone.

        Messages in flight are forgotten: FINs for them fail. Until the last call the others continue, and the log must be open.
        """
        registry = self._node.registry
        if self._channel_created in registry.on_channel_created:
            registry.on_channel_created.remove(self._channel_created)
            self._node.directory.shards.remove(self._promoted.directory)
            self._node.context.batches.shards.remove(self._promoted.context.batches)
            self._node.tubes.shards.remove(self._promoted.tubes)
            self._release()
            self._steps = self._detach()
        return _advance(self._steps, limit)

    # steps

    def _attach(self, names: list[str]) -> Iterator[None]:
        for name in names:
            shard = self._promoted.topics.get(name)
            if shard is None:
                continue  # it was deleted since
            local = self._attach_topic(shard)
            if not (local.readers or local.starting):
                self._held, local.starting = local, True  # all of the channels get what waits in the local topic
            yield
            for channel in list(shard.channels):
                if channel in shard.channels:  # else it was deleted since
                    self._attach_channel(local, shard, channel)
                    yield
            self._release()
            if not shard.deleted:
                self._attach_tube(local, shard)
                self._share_waiting(local, shard)

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.start()

    def _attach_topic(self, shard: Topic) -> Topic:
        """Make the local topic if there is none, and let it know the shard. A pause of either holds for the shard."""
        node, name = self._node, shard.name
        is_new = name not in node.topics
        local = self._beyond_limits(name, "")
        if is_new:
            local.is_tubes_own = shard.is_tubes_own
            if shard.config != TopicConfig():
                local.configure(shard.config)
        local.shards += (shard,)
        self._attached.add(name)
        shard.move(node.agenda)
        for reader in shard.readers.values():
            node.scan.add(reader)
        if local.paused and not shard.paused:
            self._promoted.set_pause(shard, local.paused)
        return local

    def _attach_channel(self, local: Topic, shard: Topic, name: str) -> None:
        if name in local.channels:
            self._link(local, shard, name)
        else:
            self._beyond_limits(local.name, name)  # which calls `_channel_created`

    def _link(self, local: Topic, shard: Topic, name: str) -> None:
        channel, channel_shard = local.channels[name], shard.channels[name]
        if channel_shard in channel.shards:
            return
        if channel.paused and not channel_shard.paused:
            self._promoted.set_pause(channel_shard, channel.paused)
        link(channel, channel_shard)

    def _attach_tube(self, local: Topic, shard: Topic) -> None:
        """Let workers reserve the jobs of the promoted topic's tube, if it has one."""
        tube = self._promoted.tubes.tube(shard.name)
        if tube is not None:
            registry = self._node.registry
            before, registry.is_open = registry.is_open, True
            local_tube = self._node.tubes.attach(local)
            registry.is_open = before
            self._node.last_shard -= 1
            tube.become_shard(local_tube, self._node.last_shard)

    def _beyond_limits(self, topic: str, channel: str) -> Topic:
        """Return the local topic of that name, with that channel unless it is "". What exists is not refused."""
        registry = self._node.registry
        before, registry.is_open = registry.is_open, True
        local = self._node.topic(topic)
        if channel:
            local.channel(channel)
        registry.is_open = before
        return local

    def _share_waiting(self, local: Topic, shard: Topic) -> None:
        """Give what the promoted topic has for no reader yet to the channels of the local topic."""
        is_shared = local.name in self._shared or not shard.readers
        if not is_shared or not shard.depth or not local.channels:
            return
        self._shared.add(local.name)
        shard.starting = True  # all of the channels get all of it
        for name in local.channels:
            shard.channel(name)
            self._link(local, shard, name)
        shard.starting = local.starting
        shard.distribute()

    def _channel_created(self, topic: str, name: str) -> None:
        """Give a local channel that was just made its shard."""
        if topic not in self._attached:
            return
        shard = self._promoted.topics.get(topic)
        if shard is None:
            return  # it was deleted; the local topic of that name is another one
        local = self._node.topics[topic]
        if name in shard.channels:
            self._link(local, shard, name)
        else:
            self._share_waiting(local, shard)

    def _detach(self) -> Iterator[None]:
        node, promoted = self._node, self._promoted
        for shard in list(promoted.topics.values()):
            local = node.topics.get(shard.name)
            if local is not None:
                local.shards = tuple(one for one in local.shards if one is not shard)
            if shard.name not in self._attached:
                continue
            node.agenda.cancel_scan(shard.distribution)
            for reader in list(shard.readers.values()):
                if not reader.deleted:
                    self._forget(reader)
                yield
        node.logs.remove(promoted)

    def _forget(self, reader: Reader) -> None:
        if isinstance(reader, Channel):
            reader.dispatch.close()
            reader.journal.detach()
        elif isinstance(reader, Tube) and reader.key < 0:
            reader.end_shard(self._node.tubes.tube(reader.topic_name))
        self._node.scan.discard(reader)
        self._node.agenda.remove_reader(reader)

    def __repr__(self) -> str:
        return f"<Attachment of {self._promoted!r}: {len(self._attached)} topics>"


def _advance(steps: Iterator[None], limit: int) -> bool:
    """Take up to `limit` steps. Returns True if there may be more."""
    return all(next(steps, True) is None for _ in range(limit))
