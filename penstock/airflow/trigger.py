"""MessageTrigger: each message of a channel is an event, and finished when Airflow's database has it.

FirstMessageTrigger: one message, for a sensor that is deferred.
"""

from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from airflow.sdk import BaseHook
from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from penstock.airflow.messages import MOST_IN_FLIGHT, MessageStream
from penstock.sansio.message import Message

CONNECTION = "penstock_default"


class _ChannelTrigger(BaseTrigger):
    """A trigger of a channel. `conn_id` names a connection of Airflow: see penstock.airflow.messages.Connection."""

    def __init__(self, topic: str, channel: str, conn_id: str = CONNECTION) -> None:
        super().__init__()
        self.topic, self.channel, self.conn_id = topic, channel, conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the name of this class and the arguments of this trigger."""
        arguments = {"topic": self.topic, "channel": self.channel, "conn_id": self.conn_id}
        return f"{__name__}.{type(self).__qualname__}", arguments


class FirstMessageTrigger(_ChannelTrigger):
    """Yields one message of a channel as an event, and finishes it as soon as the triggerer has the event."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the first message that comes to the channel. Raises ConsumerError."""
        stream = _stream(self.topic, self.channel, self.conn_id, most=1)
        async with aclosing(stream.open()) as messages:
            content, message = await anext(messages)
            yield TriggerEvent(content)
            stream.answer(message, is_stored=True)


class MessageTrigger(_ChannelTrigger, BaseEventTrigger):
    """Yields the messages of a channel as events. All triggers of a channel in a triggerer get each of its messages."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the messages to a caller that is no triggerer; each is finished when the next one is asked for."""
        stream = _stream(self.topic, self.channel, self.conn_id)
        async for content, message in stream.open():
            yield TriggerEvent(content)
            stream.answer(message, is_stored=True)

    def shared_stream_key(self) -> Hashable:
        """Return the key of the consumer that triggers share."""
        return self.conn_id, self.topic, self.channel

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the consumer of a triggerer's triggers."""
        return _Producer(_stream(**kwargs))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each message."""
        async for content in shared_stream:
            yield TriggerEvent(content)


class _Producer(SharedStreamProducer):
    """The consumer of a triggerer, which is asked to answer a message when its events are stored, or cannot be."""

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream

    def open_stream(self) -> AsyncIterator[tuple[dict[str, Any], Message]]:
        return self._stream.open()

    def get_advance_lane(self, broker_payload: Message) -> Hashable:
        return broker_payload.id  # messages of a channel are answered in any order

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        for message, outcome in batch:
            self._stream.answer(message, outcome.is_clean)


def _stream(topic: str, channel: str, conn_id: str = CONNECTION, most: int = MOST_IN_FLIGHT) -> MessageStream:
    return MessageStream(topic, channel, partial(BaseHook.aget_connection, conn_id), most)
