"""The clients and operators of a node: they do anything, and note in the history what they did and saw."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from nsqd.core.channel.actions import ChosenMessage, bury, finish, finish_buried, kick, requeue
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.listing import MessageState, list_messages
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.frame import HEADER_SIZE, message_id
from nsqd.core.retention.policy import Durability, StoragePolicy, TopicConfig
from nsqd.core.topic import Topic
from penstock.protocol.names import is_ephemeral
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import MS, SECOND, Delivery, Inbox
from tests.nsqd.storage.history import ChannelState, History, Item, TopicState
from tests.nsqd.storage.sim_node import SimNode
from tests.nsqd.storage.survey import PRODUCER, attributes_in

TOPICS = ("t", "t", "u", "e#ephemeral")
CHANNELS = ("a", "a", "b", "c", "x#ephemeral")
DELAYS = (0, 0, 50, 700, 3000, 90_000)  # ms
NODE = StoragePolicy()
CONFIGS = (
    TopicConfig(), TopicConfig(Durability.ALWAYS, retention=3600 * SECOND),
    TopicConfig(Durability.OS, retention=3600 * SECOND),
    TopicConfig(Durability.INTERVAL, retention_bytes=3000, max_attempts=4), TopicConfig(retention=2 * SECOND),
)  # fmt: skip
TIMEOUTS = (200 * MS, 2 * SECOND, 60 * SECOND)
Command = Callable[[], None]


class User:
    """A consumer, and what it was given and has not answered."""

    def __init__(self, consumer: Client, inbox: Inbox) -> None:
        self.consumer = consumer
        self.inbox = inbox
        self.holds: list[Delivery] = []


class Users:
    """See above. They live as long as the node."""

    def __init__(self, node: SimNode, history: History, random: Random) -> None:
        self._node = node
        self._broker = node.broker
        self._history = history
        self._random = random
        self._users: list[User] = []
        self._changed = False  # something was made, deleted or paused in this turn: no group undoes what is done in it
        self._bodies = {message_id: body for body, message_id in history.ids.items()}
        node.before_seal = history.seal
        node.before_commit = self._deliver
        node.after_serve = self._observe

    def commands(self) -> list[Command]:
        self._changed = False
        usual = (
            [self._publish] * 4
            + [self._publish_keyed, self._publish_numbered, self._publish_to_one]
            + [self._publish_deferred, self._subscribe]
            + [self._finish] * 5
            + [self._requeue] * 3
        )
        rare = [
            self._create, self._create_from, self._delete_channel, self._delete_topic, self._pause_channel,
            self._pause_topic, self._configure, self._empty_channel, self._empty_topic, self._kick, self._act,
            self._act, self._finish_buried, self._touch, self._ready, self._leave,
        ]  # fmt: skip
        random = self._random
        return [random.choice(rare if random.random() < 0.3 else usual) for _ in range(random.choice((0, 1, 1, 2, 4)))]

    def _topic(self) -> str | None:
        name = self._random.choice(TOPICS)
        if name not in self._broker.topics:
            if self._changed:
                return None
            self._changed = True
            self._broker.topic(name)
            self._history.world[name] = TopicState()
        return name

    def _body(self, kind: str = "") -> bytes:
        """It tells with what attributes it is published: survey.attributes_in."""
        size = self._random.choice((0, 7, 7, 100, 700))
        return b"%d.%s." % (self._history.new_number(), kind.encode()) + b"x" * size

    def _publish(self) -> None:
        name = self._topic()
        if name is not None:
            bodies = [self._body() for _ in range(self._random.choice((1, 1, 3, 20)))]
            self._broker.topics[name].publish(bodies, sum(map(len, bodies)))
            self._history.world[name].pending.update(dict.fromkeys(bodies, 0))

    def _publish_deferred(self) -> None:
        name = self._topic()
        if name is not None:
            body, delay = self._body(), self._random.choice(DELAYS[2:]) * MS
            self._broker.topics[name].publish_deferred(body, self._node.clock.now + delay)
            self._history.world[name].pending_apart[body] = self._node.clock.true + delay

    def _publish_keyed(self) -> None:
        """Something new, or once more what was published already; at once or with a delay."""
        name = self._topic()
        if name is None:
            return
        state, random = self._history.world[name], self._random
        delay = random.choice(DELAYS) * MS
        due = self._node.clock.now + delay if delay else 0
        if state.keys and random.random() < 0.4:
            key = random.choice(sorted(state.keys))
            assert self._broker.topics[name].publish_with([b"again"], Attributes(key=key), due) == 1, key
            return
        body = self._body(f"k{random.getrandbits(30)}")
        attributes = attributes_in(body)
        assert not self._broker.topics[name].publish_with([body], attributes, due)
        state.keys.add(attributes.key)
        state.pending_apart[body] = self._node.clock.true + delay if delay else 0

    def _publish_numbered(self) -> None:
        """Some of the messages may have been published already."""
        name = self._topic()
        if name is None:
            return
        state, random = self._history.world[name], self._random
        first = max(0, state.last + random.choice((-3, -1, 1, 1, 1, 2)))
        bodies = [self._body(f"p{first + index}") for index in range(random.choice((1, 1, 3, 20)))]
        known = min(len(bodies), max(0, state.last + 1 - first))
        told = self._broker.topics[name].publish_with(bodies, Attributes(producer=PRODUCER, sequence=first))
        assert told == known, f"{told} of {len(bodies)} from {first} on were there, and the last was {state.last}"
        state.pending_apart.update(dict.fromkeys(bodies[known:], 0))
        state.last = max(state.last, first + len(bodies) - 1)

    def _publish_to_one(self) -> None:
        """For one channel alone: the others never see it."""
        channel = self._some_channel()
        if channel is None or self._topic_of(channel).ephemeral or self._topic_of(channel).paused:
            return
        topic, random = self._topic_of(channel), self._random
        keyed = random.random() < 0.3
        bodies = [self._body(f"k{random.getrandbits(30)}" if keyed else "") for _ in range(1 if keyed else 3)]
        state, attributes = self._history.world[topic.name], attributes_in(bodies[0])
        assert topic.publish_to(channel, bodies, attributes) == 0
        state.keys.update([attributes.key] if keyed else [])
        state.retained += bodies
        state.sure.update(bodies)
        state.channels[channel.name].items.update(dict.fromkeys(bodies, Item()))

    def _create(self) -> None:
        name = self._topic()
        channel = self._random.choice(CHANNELS)
        if name is not None and channel not in self._broker.topics[name].channels and not self._changed:
            self._changed = True
            self._broker.topics[name].channel(channel)
            topic = self._history.world[name]
            topic.channels[channel] = ChannelState()
            topic.distribute()

    def _create_from(self) -> None:
        """A channel that begins with something that is retained, whoever has finished it."""
        name = self._random.choice([name for name in TOPICS if not is_ephemeral(name)])
        topic = self._broker.topics.get(name)
        free = [channel for channel in CHANNELS if topic is not None and channel not in topic.channels]
        if topic is None or not free or self._changed or self._node.log.writer.group:
            return
        window = self._node.log.history().window(topic.number)
        if window.first >= topic.offsets.distributed:
            return
        self._changed = True
        channel, start = self._random.choice(free), self._random.randrange(window.first, topic.offsets.distributed)
        topic.channel_from(channel, start, self._node.clock.now)
        state = self._history.world[name]
        newest = len(state.retained) - topic.offsets.end  # of `retained` to the ordinal, as an index
        given = state.retained[newest + start : newest + topic.offsets.distributed]
        assert newest + start >= 0
        assert len(given) == topic.offsets.distributed - start
        dues = dict(state.dues)
        for other in state.channels.values():  # it waits as long as the channel that waits longest
            for body in dues.keys() & other.items.keys():
                dues[body] = max(dues[body], other.items[body].due)
        items = {body: Item(dues.get(body, 0), vague=body in dues, in_sequence=body not in dues) for body in given}
        state.channels[channel] = ChannelState(items=items)
        state.distribute()

    def _some_channel(self) -> Channel | None:
        channels = [channel for topic in self._broker.topics.values() for channel in topic.channels.values()]
        return self._random.choice(channels) if channels else None

    def _topic_of(self, channel: Channel) -> Topic:
        return self._node.broker.topics[channel.topic_name]

    def _state(self, channel: Channel) -> ChannelState:
        return self._history.world[channel.topic_name].channels[channel.name]

    def _delete_channel(self) -> None:
        channel = self._some_channel()
        if channel is not None and not self._changed:
            self._changed = True
            self._node.broker.directory.delete_channel(self._topic_of(channel), channel.name)
            self._settle()

    def _delete_topic(self) -> None:
        names = list(self._broker.topics)
        if names and not self._changed and self._random.random() < 0.5:
            self._changed = True
            self._broker.delete_topic(self._random.choice(names))
            self._settle()

    def _settle(self) -> None:
        """What is gone from the node, ephemeral things by themselves, is gone from the world."""
        self._users = [user for user in self._users if not user.inbox.gone]
        world, topics = self._history.world, self._broker.topics
        for name, topic in list(world.items()):
            left = topics[name].channels if name in topics else {}
            for channel in [channel for channel in topic.channels if channel not in left]:
                self._history.gone[name, channel] = topic.channels.pop(channel).items
            if name not in topics:
                del world[name]

    def _pause_channel(self) -> None:
        channel = self._some_channel()
        if channel is not None and not self._changed:
            self._changed = True
            state = self._state(channel)
            state.paused = not state.paused
            self._broker.pause(channel, state.paused)

    def _pause_topic(self) -> None:
        name = self._topic()
        if name is not None and not self._changed:
            self._changed = True
            state = self._history.world[name]
            state.paused = not state.paused
            self._broker.pause(self._broker.topics[name], state.paused)
            state.distribute()

    def _configure(self) -> None:
        name = self._topic()
        if name is None or self._changed or is_ephemeral(name):
            return
        self._changed = True
        config = self._random.choice(CONFIGS)
        self._broker.topics[name].configure(config)
        topic = self._history.world[name]
        if not (topic.config.over(NODE).retains and config.over(NODE).retains):
            topic.retained.clear()
        topic.sure.clear()
        topic.config = config

    def _empty_channel(self) -> None:
        channel = self._some_channel()
        if channel is not None:
            channel.empty()
            self._state(channel).items.clear()

    def _empty_topic(self) -> None:
        name = self._topic()
        if name is not None:
            self._broker.topics[name].empty()
            self._history.world[name].backlog.clear()

    def _kick(self) -> None:
        channel = self._some_channel()
        if channel is not None:
            for message_id in self._graves(channel, 2):
                assert kick(channel, [message_id]) == 1
                self._state(channel).items[self._bodies[message_id]] = Item(in_sequence=False)

    def _graves(self, channel: Channel, most: int) -> list[bytes]:
        """Buried messages of a channel that lasts. Not of this turn: a group may be cut between that and what comes of it."""
        if channel.ephemeral or self._topic_of(channel).ephemeral:
            return []
        items = self._state(channel).items
        return [one for one in channel.buried.oldest(most) if items[self._bodies[one]].buried]

    def _finish_buried(self) -> None:
        channel = self._some_channel()
        if channel is not None:
            for message_id in self._graves(channel, 1):
                assert finish_buried(channel, [message_id]) == 1
                del self._state(channel).items[self._bodies[message_id]]

    def _act(self) -> None:
        """On single messages of a channel, wherever they are."""
        channel = self._some_channel()
        if channel is None or channel.ephemeral or self._topic_of(channel).ephemeral:
            return
        random, items = self._random, self._state(channel).items
        page, _ = list_messages(channel, random.choice(list(MessageState)), "", 20)
        some = random.sample(page, min(len(page), random.choice((1, 1, 2, 5))))
        frames = [self._frame(self._topic_of(channel), one.ordinal) for one in some]
        known = [(one, frame) for one, frame in zip(some, frames, strict=True) if frame]  # else it is not written yet
        chosen = [ChosenMessage(one.ordinal, message_id(frame)) for one, frame in known]
        bodies = [frame[HEADER_SIZE:] for _, frame in known]
        for one, body in zip(chosen, bodies, strict=True):
            self._bodies[one.message_id] = body
            assert self._history.ids.setdefault(body, one.message_id) == one.message_id
        in_lane = set(channel.offsets.lane.ordinals(0, channel.offsets.distributed)).intersection(
            one.ordinal for one in chosen
        )
        if in_lane and len(self._topic_of(channel).channels) > 1:
            return  # each channel would wait for it alone, which the history does not know
        now, what = self._node.clock.now, random.randrange(4)
        if what == 0:
            assert finish(self._topic_of(channel), channel, chosen) == len(chosen)
            for body in bodies:
                del items[body]
        elif what == 1 or any(items[body].buried for body in bodies):
            assert requeue(self._topic_of(channel), channel, chosen, 0, now, afresh=True) == len(chosen)
            items.update((body, Item(in_sequence=False)) for body in bodies)
        elif what == 2:
            delay = random.choice(DELAYS) * MS
            assert requeue(self._topic_of(channel), channel, chosen, now + delay if delay else 0, now) == len(chosen)
            due = self._node.clock.true + delay if delay else 0
            for one, body in zip(some, bodies, strict=False):
                items[body] = Item(due, one.attempts, one.attempts, in_sequence=False)
        else:
            assert bury(self._topic_of(channel), channel, chosen, "by hand") == len(chosen)
            for body in bodies:
                items[body] = replace(items[body], vague=False, in_sequence=False)

    def _frame(self, topic: Topic, ordinal: int) -> bytes:
        """Return the frame of a message, from memory or else from the log's files."""
        frame = topic.journal.frame_in_memory(ordinal)
        for plan in self._node.log.history().plans_of(topic.number, [ordinal]) if not frame else ():
            frame = next((one for batch in plan.read()[0] for at, one in batch.messages() if at == ordinal), frame)
        return frame

    def _subscribe(self) -> None:
        channel = self._some_channel()
        if channel is None or len(self._users) > 6:
            self._create()
            return
        inbox = Inbox()
        consumer = Client(channel, inbox, self._random.choice(TIMEOUTS), 0)
        consumer.set_ready(self._random.choice((1, 3, 10, 50)))
        self._users.append(User(consumer, inbox))

    def _user(self) -> User | None:
        users = [user for user in self._users if user.holds] or self._users
        return self._random.choice(users) if users else None

    def _ready(self) -> None:
        user = self._user()
        if user is not None:
            user.consumer.set_ready(self._random.choice((0, 1, 10, 50)))

    def _leave(self) -> None:
        user = self._user()
        if user is not None and not (self._changed and user.consumer.channel.ephemeral):
            self._users.remove(user)
            user.consumer.leave(self._node.broker)
            self._settle()

    def _finish(self) -> None:
        user = self._user()
        if user is None or not user.holds:
            return
        chosen = user.holds[: self._random.randrange(1, 10)]
        if self._random.random() < 0.4:
            self._random.shuffle(chosen)
            chosen = chosen[: self._random.randrange(1, 4)]
        chosen = list({one.id: one for one in chosen}.values())  # it may hold two deliveries of a message
        failed = {message_id for message_id, _ in user.consumer.finish(b"".join(one.id for one in chosen))}
        for one in chosen:
            user.holds.remove(one)
            if one.id not in failed:
                self._state(user.consumer.channel).items.pop(one.body, None)

    def _requeue(self) -> None:
        user = self._user()
        if user is None or not user.holds:
            return
        one = self._random.choice(user.holds)
        user.holds.remove(one)
        delay = self._random.choice(DELAYS) * MS
        if user.consumer.requeue(one.id, delay, self._node.clock.now):
            return
        channel = user.consumer.channel
        item = self._state(channel).items.get(one.body)
        if item is not None:
            due = self._node.clock.true + delay if delay else 0
            self._state(channel).items[one.body] = replace(item, noted=item.attempts, due=due, vague=False)

    def _touch(self) -> None:
        user = self._user()
        if user is not None and user.holds:
            user.consumer.touch(self._random.choice(user.holds).id, SECOND, 10 * SECOND, self._node.clock.now)

    def _deliver(self) -> None:
        self._look_at_graves()
        self._history.deliver()

    def _observe(self) -> None:
        arrived = [(one.number, user, one) for user in self._users for one in user.inbox.take()]
        for _, user, one in sorted(arrived, key=lambda entry: entry[0]):
            user.holds.append(one)
            if not user.consumer.channel.ephemeral and not self._topic_of(user.consumer.channel).ephemeral:
                self._delivered(self._state(user.consumer.channel), one)
        self._look_at_graves()

    def _delivered(self, channel: ChannelState, one: Delivery) -> None:
        assert one.body in channel.items, f"{one!r} was not to be delivered"
        assert self._history.ids.setdefault(one.body, one.id) == one.id, f"{one!r} has another id"
        assert self._bodies.setdefault(one.id, one.body) == one.body, f"{one!r} has the id of another"
        item = channel.items[one.body]
        assert item.vague or item.due <= self._node.clock.true, (
            f"{one!r} comes {item.due - self._node.clock.true} ns early"
        )
        assert one.attempts == item.attempts + 1, f"{one!r} after {item.attempts}"
        channel.items[one.body] = replace(item, due=0, vague=False, attempts=one.attempts, noted=one.attempts)

    def _look_at_graves(self) -> None:
        """The history learns who was buried: by REQ, by time-out, because its consumer left."""
        for name, topic in self._history.world.items():
            for channel_name, state in () if is_ephemeral(name) else topic.channels.items():
                if is_ephemeral(channel_name):
                    continue
                for one, grave in self._broker.topics[name].channels[channel_name].buried.after(None, 1 << 30):
                    item = state.items[self._bodies[one]]
                    if not item.buried:
                        assert grave.attempts == item.attempts
                        state.items[self._bodies[one]] = replace(item, buried=grave.reason, due=0)
