"""The task that moves messages which failed too often to the dead-letter topics of their channels, between turns.

A channel buries such a message first, so the log has it in one place or the other: it is published before it is finished, and
after a crash between the two it exists twice rather than not at all. A message of a promoted log is finished when the node's
own log has it durably. While the dead-letter topic takes nothing (it is full, the node drains, there are too few copies),
messages stay buried, and are tried again. Those that an operator buried are left alone.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice

import trio

from nsqd.core.broker import Broker
from nsqd.core.channel import actions
from nsqd.core.channel.buried import DeadLetter
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.dead_letters import forwarded_headers
from nsqd.core.limits import TooMany
from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.message.frame import HEADER_SIZE
from nsqd.core.retention.history import MessagesGone, read_messages
from nsqd.core.topic import Topic
from shared.log import log
from shared.values import SECOND

EVERY = 1.0  # s
AT_ONCE = 20  # messages that are read and moved together
DURABLE_WITHIN = 10 * SECOND  # ns
Messages = dict[int, tuple[bytes, Attributes]]  # frames and attributes, by ordinal


class DeadLetterTopics:
    """Moves messages of all channels of a node whose settings name a dead-letter topic."""

    def __init__(self, broker: Broker, node: int, wake: Callable[[], None]) -> None:
        """`node`: the number of this node. `wake` makes the turn that commits what was moved."""
        self._broker = broker
        self._node = node
        self._wake = wake
        self._failing: set[tuple[str, str]] = set()  # topics and channels that were reported to be stuck

    async def run(self) -> None:
        """Move messages to their dead-letter topics every second until cancelled."""
        while True:
            await trio.sleep(EVERY)
            await self.forward()

    async def forward(self) -> None:
        """Move all messages that can be moved now."""
        channels = [one for one in self._broker.agenda.dead_letters if isinstance(one, Channel)]
        self._failing &= {channel.key for channel in channels}
        for channel in channels:
            while await self._forward_batch(channel):
                self._wake()
                await trio.lowlevel.checkpoint()
            self._wake()

    async def _forward_batch(self, channel: Channel) -> bool:
        """Move the next messages of a channel. Return True if there are more that may be moved now."""
        source, waiting = self._topic_of(channel), self._broker.agenda.dead_letters.get(channel)
        if source is None:  # the channel was deleted, or its log is led by another node
            self._broker.agenda.dead_letters.pop(channel, None)
            return False
        if not waiting or self._target(channel) is None:
            return False
        chosen = list(islice(waiting, AT_ONCE))
        letters = [letter for message_id in chosen if (letter := _failed(channel, message_id)) is not None]
        try:
            messages = await _read(source, [letter.ordinal for letter in letters])
        except MessagesGone:  # the log was cleaned up meanwhile
            return False
        except OSError as error:
            self._report(channel, f"cannot read them: {error}")
            return False
        if self._broker.agenda.dead_letters.get(channel) is not waiting:
            return False  # the channel was deleted or configured meanwhile
        published, has_more = self._publish(source, channel, waiting, chosen, messages)
        if published and source.context is not self._broker.context:
            is_durable = await self._becomes_durable(channel)
            if self._topic_of(channel) is not source:
                return False
            if not is_durable:
                channel.forward_dead_letters()  # all of them again
                return False
        actions.finish_buried(channel, published)
        return has_more

    def _publish(
        self, source: Topic, channel: Channel, waiting: deque[bytes], chosen: list[bytes], messages: Messages
    ) -> tuple[dict[bytes, None], bool]:
        """Publish those of the `chosen` messages, the first of `waiting`, that may leave.

        Return their ids, and whether there are more that may leave now.
        """
        broker, copied_end, is_refused = self._broker, source.journal.copied_end(), False
        published: dict[bytes, None] = {}
        for message_id in chosen:
            letter = _failed(channel, message_id)
            if letter is not None and message_id not in published:
                target = self._target(channel) if letter.ordinal < copied_end else None
                if target is None:
                    is_refused = True
                    break
                frame, attributes = messages.get(letter.ordinal, (b"", NONE))
                headers = forwarded_headers(attributes.headers, channel, message_id, letter, self._node)
                if frame and headers is not None:
                    target.intake.publish_with([frame[HEADER_SIZE:]], Attributes(headers))
                    published[message_id] = None
            waiting.popleft()
        if published:
            self._failing.discard(channel.key)
            broker.topics[channel.settings.dead_letter].seal(broker.wall)  # its records precede those of the finishing
        if not waiting:
            del broker.agenda.dead_letters[channel]
        return published, bool(waiting) and not is_refused

    async def _becomes_durable(self, channel: Channel) -> bool:
        """Wait until what was published is durable, and has its copies: its log is another one than that of the channel.

        Return False if that takes too long.
        """
        target, history = self._broker.topics[channel.settings.dead_letter], self._broker.context.history
        if history is None:
            return True
        end, ready = target.offsets.end, trio.Event()
        history.await_messages(target.number, end, self._broker.now + DURABLE_WITHIN, ready.set)
        self._wake()
        await ready.wait()
        return history.window(target.number).next >= end

    def _target(self, channel: Channel) -> Topic | None:
        """Return the dead-letter topic of a channel; None: nothing can be moved there now."""
        broker = self._broker
        if broker.agenda.is_held:
            return None  # the log may have another leader
        try:
            return broker.admit(channel.settings.dead_letter)
        except TooMany as refused:
            self._report(channel, str(refused))
            return None

    def _topic_of(self, channel: Channel) -> Topic | None:
        """Return the topic of a channel in the log that has the channel; None: there is none."""
        topics = (broker.topics.get(channel.topic_name) for broker in self._broker.logs)
        return next((one for one in topics if one is not None and one.readers.get(channel.number) is channel), None)

    def _report(self, channel: Channel, why: str) -> None:
        if channel.key not in self._failing:
            self._failing.add(channel.key)
            topic, name = channel.key
            to = channel.settings.dead_letter
            log.warning("DEAD LETTERS: cannot move messages of %s/%s to %s, trying again: %s", topic, name, to, why)


def _failed(channel: Channel, message_id: bytes) -> DeadLetter | None:
    """Return the dead letter with that id; None: it is buried no longer, or by an operator."""
    letter = channel.buried.get(message_id)
    return letter if letter is not None and channel.forwards(letter.reason) else None


async def _read(topic: Topic, ordinals: list[int]) -> Messages:
    """Return the messages, from memory and from disk, except for corrupt ones. Raises MessagesGone, OSError."""
    in_memory = {ordinal: topic.journal.frame_in_memory(ordinal) for ordinal in ordinals}
    found: Messages = {ordinal: (frame, NONE) for ordinal, frame in in_memory.items() if frame}
    missing, history = [ordinal for ordinal in ordinals if ordinal not in found], topic.context.history
    if missing and history is not None:
        plans = history.plans_of(topic.number, missing)
        found |= await trio.to_thread.run_sync(
            lambda: {one: (frame, of) for one, frame, of in read_messages(plans, missing)}
        )
    return found
