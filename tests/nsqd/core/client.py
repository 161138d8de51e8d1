"""A client of a channel: a consumer together with its channel, as a connection has them."""

from typing import Any

from nsqd.core.broker import Broker
from nsqd.core.channel import commands
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import ELSEWHERE, ConsumerSink


class Client:
    """It subscribes at once. What it has not it reads from its consumer: `in_flight`, `ready`, the counts."""

    def __init__(
        self, channel: Channel, sink: ConsumerSink, timeout: int, rate: int = 0, distance: int = ELSEWHERE
    ) -> None:
        self.channel = channel
        self.consumer = channel.subscribe(sink, timeout, rate, distance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.consumer, name)

    def set_ready(self, count: int) -> None:
        commands.set_ready(self.channel, self.consumer, count)

    def finish(self, ids: bytes) -> list[tuple[bytes, str]]:
        return commands.finish(self.channel, self.consumer, ids)

    def requeue(self, message_id: bytes, delay: int, now: int) -> str:
        return commands.requeue(self.channel, self.consumer, message_id, delay, now)

    def touch(self, message_id: bytes, timeout: int, longest: int, now: int) -> str:
        return commands.touch(self.channel, self.consumer, message_id, timeout, longest, now)

    def refresh(self) -> None:
        self.channel.refresh(self.consumer)

    def leave(self, broker: Broker) -> None:
        broker.unsubscribe(self.channel, self.consumer)
