"""POST /topic/* and /channel/*: create, delete, empty, pause, unpause. All are idempotent except for the 404s.

The arguments for pausing that NSQ lacks, and /pauses, are in pauses.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.topology import TopologySnapshot
from nsqd.http.arguments import (
    ANY_TOPIC,
    LOG,
    TOPIC,
    TOPIC_AND_CHANNEL,
    check_open,
    existing_channel,
    existing_topic,
    made_channel,
    made_topic,
    require,
    topic_or_channel,
)
from nsqd.http.logs import ReplicaReader, topic_and_window
from nsqd.http.node import Node
from nsqd.http.offsets import OffsetArgument, OffsetFinder, check_offset, place
from nsqd.http.pauses import BY, UNTIL, check_end
from nsqd.http.topic_config import SETTINGS_ARGUMENTS, change_to, changes_what_is_there, check_dead_letter, configure
from shared.auth.verbs import Verb
from shared.http.api import empty_response
from shared.http.errors import HttpError
from shared.http.route import Route, on_channel, on_topic
from shared.values import SECOND


class Topology:
    """The ten routes that create, delete, empty and pause topics and channels."""

    def __init__(self, node: Node, replicas: ReplicaReader) -> None:
        self._node = node
        self._offset_finder = OffsetFinder(node, replicas)

    def routes(self) -> list[Route]:
        return [
            Route("POST /topic/create", self.create_topic, on_topic(Verb.CREATE), (TOPIC, *SETTINGS_ARGUMENTS),
                  "Create a topic"),
            Route("POST /topic/delete", self._simple(_delete_topic), on_topic(Verb.DELETE), (ANY_TOPIC,),
                  "Delete a topic with its channels and messages"),
            Route("POST /topic/empty", self._simple(_empty_topic), on_topic(Verb.DELETE), (TOPIC,),
                  "Drop the messages that no channel has been given yet"),
            Route("POST /topic/pause", self._pausing(True), on_topic(Verb.ACT), (ANY_TOPIC, BY, UNTIL),
                  "Hold messages back from the channels"),
            Route("POST /topic/unpause", self._pausing(False), on_topic(Verb.ACT), (ANY_TOPIC,), "End the pause"),
            Route("POST /channel/create", self.create_channel, on_channel(Verb.CREATE),
                  (*TOPIC_AND_CHANNEL, place("from"), LOG), "Create a channel, at the next message or `from` a retained one"),
            Route("POST /channel/delete", self._simple(_delete_channel), on_channel(Verb.DELETE), TOPIC_AND_CHANNEL,
                  "Delete a channel with its messages"),
            Route("POST /channel/empty", self._simple(_empty_channel), on_channel(Verb.DELETE), TOPIC_AND_CHANNEL,
                  "Drop all messages of a channel"),
            Route("POST /channel/pause", self._pausing(True), on_channel(Verb.ACT), (*TOPIC_AND_CHANNEL, BY, UNTIL),
                  "Deliver no messages"),
            Route("POST /channel/unpause", self._pausing(False), on_channel(Verb.ACT), TOPIC_AND_CHANNEL, "End the pause"),
        ]  # fmt: skip

    async def create_topic(self, request: Request, topic: str, **settings: Any) -> Response:
        """Create a topic. The answer comes when nsqlookupd knows a new topic, or after a bounded time.

        The right to create a topic includes the settings of a new one. Changes of settings need the right to configure.
        """
        change = change_to(topic, settings, bool(self._node.options.cluster_address))
        check_dead_letter(request, settings)

        def create() -> bool:
            if change is not None and changes_what_is_there(self._node, topic, change):
                require(request, Verb.CONFIGURE, topic)
            made = made_topic(self._node, request, topic)
            if change is not None:
                configure(self._node, made, change)
            return made.starting

        if await self._node.bridge.call(create):
            await self._node.registered(topic)
        return empty_response()

    async def create_channel(
        self, request: Request, topic: str, channel: str, from_: OffsetArgument | None, log: str
    ) -> Response:
        """Create a channel at the topic's distributed offset, or `from` a place in what the topic retains.

        Places are described in read_back.py. With `from` the channel must be new.
        """
        if from_ is None:
            await self._create_channel(topic, lambda: self._create_at_distributed(topic, channel))
            return empty_response()
        start, named = await self._offset_finder.offset(topic, log, from_), from_.offset or 0
        await self._create_channel(topic, lambda: self._create_from(topic, log, channel, start, named))
        return empty_response()

    async def _create_channel(self, topic: str, create: Callable[[], None]) -> None:
        """Call `create`, and return when nsqlookupd knows a new channel, or after a bounded time."""
        broker = self._node.broker

        def act() -> bool:
            before = broker.registry.channel_count
            create()
            return broker.directory.ask_for_channels and broker.registry.channel_count > before

        if await self._node.bridge.call(act):
            await self._node.registered(topic)

    def _create_at_distributed(self, topic: str, channel: str) -> None:
        """Create the channel where the topic's distribution stands. Runs in the trio thread."""
        made_channel(existing_topic(self._node.broker, topic), channel)

    def _create_from(self, name: str, log_id: str, channel: str, start: int, named: int) -> None:
        """Create the channel at the offset `start` of the topic. Runs in the trio thread. Raises HttpError.

        `named`: as `offset` of `topic_and_window`.
        """
        topic, window = topic_and_window(self._node, name, log_id, named)
        check_offset(start, window)
        if channel in topic.channels:
            raise HttpError(409, "CHANNEL_EXISTS")
        check_open(self._node.broker)  # a message that is not written cannot be read back for the channel
        try:
            topic.channel_from(channel, start, self._node.broker.now)
        except TooMany:
            raise HttpError(503, "TOO_MANY_CHANNELS") from None

    def _simple(self, act: Callable[..., None]) -> Callable[..., Awaitable[Response]]:
        """Return a handler that calls `act` with the broker and the names, in the trio thread."""

        async def handler(request: Request, **names: str) -> Response:
            await self._node.bridge.call(lambda: act(self._node.broker, **names))
            return empty_response()

        return handler

    def _pausing(self, paused: bool) -> Callable[..., Awaitable[Response]]:
        """Return a handler that pauses or unpauses.

        The pause is durable before the answer, as in the original, and so are who paused and until when.
        """

        async def handler(request: Request, topic: str, channel: str = "", by: str = "", until: int = 0) -> Response:
            broker = self._node.broker

            def act() -> TopologySnapshot:
                check_end(until, broker.wall // SECOND)
                broker.pause(topic_or_channel(broker, topic, channel), paused, by, until)
                return self._node.take_topology()

            await asyncio.to_thread(self._node.save_topology, await self._node.bridge.call(act))
            return empty_response()

        return handler


def _delete_topic(broker: Broker, topic: str) -> None:
    broker.delete_topic(existing_topic(broker, topic).name)


def _empty_topic(broker: Broker, topic: str) -> None:
    existing_topic(broker, topic).empty()


def _delete_channel(broker: Broker, topic: str, channel: str) -> None:
    existing_channel(broker, topic, channel)
    broker.directory.delete_channel(broker.topics[topic], channel)


def _empty_channel(broker: Broker, topic: str, channel: str) -> None:
    existing_channel(broker, topic, channel).empty()
