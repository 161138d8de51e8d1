"""POST /topic/* and /channel/*: create, delete, empty, pause, unpause. All are idempotent except for the 404s.

The arguments for pausing besides NSQ's, and /pauses, are in pauses.py.
"""

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.limits import TooMany
from nsqd.core.topic import Topic
from nsqd.core.topology import TopologySnapshot
from nsqd.http.arguments import (
    any_topic_name,
    check_open,
    existing_channel,
    existing_topic,
    made_channel,
    made_topic,
    require,
    topic_and_channel,
    topic_name,
)
from nsqd.http.logs import Replicas, topic_and_window
from nsqd.http.node import Node
from nsqd.http.offsets import OffsetArgument, OffsetFinder, check_offset, read_offset_argument
from nsqd.http.pauses import read_pause
from nsqd.http.topic_config import SETTINGS_ARGUMENTS, changes_what_is_there, configure, read_config
from shared.auth.verbs import Verb
from shared.http.api import Handler, empty_response, query
from shared.http.errors import HttpError
from shared.http.route import Route, on_channel, on_topic
from shared.values import SECOND

Find = Callable[[dict[str, str]], Callable[[Broker], Topic | Channel]]


class Topology:
    """The ten routes that create, delete, empty and pause topics and channels."""

    def __init__(self, node: Node, replicas: Replicas) -> None:
        self._node = node
        self._offset_finder = OffsetFinder(node, replicas)

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST /topic/create",
                self.create_topic,
                on_topic(Verb.CREATE),
                f"topic, {SETTINGS_ARGUMENTS}",
                "Create a topic",
            ),
            Route(
                "POST /topic/delete",
                self._simple(_delete_topic),
                on_topic(Verb.DELETE),
                "topic",
                "Delete a topic with its channels and messages",
            ),
            Route(
                "POST /topic/empty",
                self._simple(_empty_topic),
                on_topic(Verb.DELETE),
                "topic",
                "Drop the messages that no channel has been given yet",
            ),
            Route(
                "POST /topic/pause",
                self._pausing(_find_topic, True),
                on_topic(Verb.ACT),
                "topic, ?by, ?until",
                "Hold messages back from the channels",
            ),
            Route(
                "POST /topic/unpause", self._pausing(_find_topic, False), on_topic(Verb.ACT), "topic", "End the pause"
            ),
            Route(
                "POST /channel/create",
                self.create_channel,
                on_channel(Verb.CREATE),
                "topic, channel, ?from, ?log",
                "Create a channel, at the next message or `from` a retained one",
            ),
            Route(
                "POST /channel/delete",
                self._simple(_delete_channel),
                on_channel(Verb.DELETE),
                "topic, channel",
                "Delete a channel with its messages",
            ),
            Route(
                "POST /channel/empty",
                self._simple(_empty_channel),
                on_channel(Verb.DELETE),
                "topic, channel",
                "Drop all messages of a channel",
            ),
            Route(
                "POST /channel/pause",
                self._pausing(_find_channel, True),
                on_channel(Verb.ACT),
                "topic, channel, ?by, ?until",
                "Deliver no messages",
            ),
            Route(
                "POST /channel/unpause",
                self._pausing(_find_channel, False),
                on_channel(Verb.ACT),
                "topic, channel",
                "End the pause",
            ),
        ]

    async def create_topic(self, request: Request) -> Response:
        """Create a topic. The answer comes when nsqlookupd knows a new topic, or after a bounded time.

        Who may create it may set how a new one keeps its messages. What is set already needs the right to configure.
        """
        arguments = query(request)
        name, change = topic_name(arguments), read_config(arguments, bool(self._node.options.cluster_address))

        def create() -> bool:
            if change is not None and changes_what_is_there(self._node, name, change):
                require(request, Verb.CONFIGURE, name)
            topic = made_topic(self._node, request, name)
            if change is not None:
                configure(self._node, topic, change)
            return topic.starting

        if await self._node.bridge.call(create):
            await self._node.registered(name)
        return empty_response()

    async def create_channel(self, request: Request) -> Response:
        """Create a channel at the topic's distributed offset, or `from` a place in what the topic retains.

        Places are described in read_back.py. With `from` the channel must be new.
        """
        arguments = query(request)
        topic, channel = topic_and_channel(arguments)
        if "from" not in arguments:
            await self._create_channel(topic, lambda: self._create_at_distributed(topic, channel))
            return empty_response()
        place, log_id = read_offset_argument(arguments, "from", OffsetArgument()), arguments.get("log", "")
        start = await self._offset_finder.offset(topic, log_id, place)
        await self._create_channel(topic, lambda: self._create_from(topic, log_id, channel, start, place.offset or 0))
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

    def _simple(self, command: Callable[[dict[str, str]], Callable[[Broker], None]]) -> Handler:
        """Return a handler that checks its arguments in the HTTP thread and does its work in the trio thread."""

        async def handler(request: Request) -> Response:
            act = command(query(request))
            await self._node.bridge.call(lambda: act(self._node.broker))
            return empty_response()

        return handler

    def _pausing(self, find: Find, paused: bool) -> Handler:
        """Return a handler that pauses or unpauses.

        The pause is durable before the answer, as in the original, and so are who paused and until when.
        """

        async def handler(request: Request) -> Response:
            arguments = query(request)
            found = find(arguments)
            broker = self._node.broker

            def act() -> TopologySnapshot:
                by, until = read_pause(arguments, broker.wall // SECOND) if paused else ("", 0)
                broker.pause(found(broker), paused, by, until)
                return self._node.take_topology()

            await asyncio.to_thread(self._node.save_topology, await self._node.bridge.call(act))
            return empty_response()

        return handler


def _find_topic(arguments: dict[str, str]) -> Callable[[Broker], Topic]:
    name = any_topic_name(arguments)
    return lambda broker: existing_topic(broker, name)


def _find_channel(arguments: dict[str, str]) -> Callable[[Broker], Channel]:
    topic, channel = topic_and_channel(arguments)
    return lambda broker: existing_channel(broker, topic, channel)


def _delete_topic(arguments: dict[str, str]) -> Callable[[Broker], None]:
    name = any_topic_name(arguments)
    return lambda broker: broker.delete_topic(existing_topic(broker, name).name)


def _empty_topic(arguments: dict[str, str]) -> Callable[[Broker], None]:
    name = topic_name(arguments)
    return lambda broker: existing_topic(broker, name).empty()


def _delete_channel(arguments: dict[str, str]) -> Callable[[Broker], None]:
    topic, channel = topic_and_channel(arguments)

    def act(broker: Broker) -> None:
        existing_channel(broker, topic, channel)
        broker.directory.delete_channel(broker.topics[topic], channel)

    return act


def _empty_channel(arguments: dict[str, str]) -> Callable[[Broker], None]:
    topic, channel = topic_and_channel(arguments)
    return lambda broker: existing_channel(broker, topic, channel).empty()
