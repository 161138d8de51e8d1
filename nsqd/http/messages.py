"""Looking at what a channel has, without touching it.

    GET /channel/messages?topic=t&channel=c&state=ready|in_flight|deferred|buried[&limit=100][&after=NEXT][&preview=256]

    {"total": 3, "messages": [{"id","offset","timestamp","attempts","body_size","body" or "body_base64", ...}], "next": "..."}

`next` is there if there is more: give it as `after`. Bodies are cut after `preview` bytes. What was published with headers, a
key or a producer has "headers", "key", "producer" and "sequence". With deferred come `ready_at`, with
in flight `times_out_at`, with buried `buried_at` and `reason`; times are ns since the epoch. What cannot be read has no id.
"""

import base64
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.attributes import NONE, Attributes
from nsqd.core.channel import Channel
from nsqd.core.frame import HEADER_SIZE, STAMP, message_id
from nsqd.core.history import Plan
from nsqd.core.listing import Listed, State, listed
from nsqd.http.arguments import bounded, existing_channel, topic_and_channel
from nsqd.http.node import Node
from nsqd.http.offsets import Places
from shared.http.api import Routes, json_response, query
from shared.http.errors import HttpError

LIMIT, MOST = 100, 1000  # messages in an answer
PREVIEW, MOST_PREVIEW = 256, 64 * 1024  # bytes of a body
MOST_READ = 64 * 1024 * 1024  # bytes of messages that are read from disk for one request
MOST_BODY = 4 * 1024 * 1024  # bytes of bodies in an answer; what does not fit comes without its body


class Messages:
    """The route."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._places = Places(node)

    def routes(self) -> Routes:
        """The path and its method."""
        return {"/channel/messages": {"GET": self.messages}}

    async def messages(self, request: Request) -> Response:
        """A page of them."""
        arguments = query(request)
        topic, channel = topic_and_channel(arguments)
        state = read_state(arguments)
        limit = max(1, bounded(arguments, "limit", LIMIT, MOST))
        preview = bounded(arguments, "preview", PREVIEW, MOST_PREVIEW)
        look, told = Look(), _Told()

        def choose(found: Channel) -> list[int]:
            try:
                told.messages, told.following = listed(found, state, arguments.get("after", ""), limit)
            except ValueError:
                raise HttpError(400, "INVALID_ARG_AFTER") from None
            told.total = _total(found, state)
            told.wall_offset = found.broker.wall - found.broker.now
            return [one.ordinal for one in told.messages]

        async def plan() -> list[Plan]:
            return await self._node.bridge.call(lambda: look.plan(self._node, topic, channel, choose))

        await self._places.from_disk(plan, look.read)
        answer: dict[str, Any] = {"total": told.total, "messages": told.pictures(state, look, preview)}
        if told.following:
            answer["next"] = told.following
        return json_response(answer)


class Look:
    """Messages' frames, from memory and from disk."""

    def __init__(self) -> None:
        self.frames: dict[int, bytes] = {}  # by ordinal; b"" for what cannot be read
        self.attributes: dict[int, Attributes] = {}  # of those that have any

    def plan(self, node: Node, topic: str, name: str, choose: Callable[[Channel], list[int]]) -> list[Plan]:
        """Take what is in memory of the messages that `choose` names, and say how to read the rest. (trio thread)"""
        channel = existing_channel(node.broker, topic, name)
        number, store = channel.topic.number, channel.topic.store
        self.frames = {ordinal: store.look(number, ordinal) for ordinal in choose(channel)}
        missing = [ordinal for ordinal, frame in self.frames.items() if not frame]
        return [] if channel.topic.ephemeral else list(node.history.plans_of(number, missing))

    def read(self, plans: list[Plan]) -> None:
        """Get what is on disk only. Raises Gone, OSError; HttpError if that is too much at once. (any thread)"""
        room = MOST_READ
        for plan in plans:
            for batch in plan.read()[0]:
                for ordinal, frame in batch.messages():
                    if ordinal not in self.frames:
                        continue
                    self.frames[ordinal] = frame
                    if batch.packed:
                        self.attributes[ordinal] = batch.attributes.behind(ordinal - batch.first)
                    room -= len(frame)
                    if room < 0:
                        raise HttpError(413, "TOO_MUCH_AT_ONCE")


class _Told:
    """What is told of a channel."""

    def __init__(self) -> None:
        self.messages: list[Listed] = []
        self.following = ""
        self.total = 0
        self.wall_offset = 0  # from the monotonic clock to the wall clock, ns

    def pictures(self, state: State, look: Look, preview: int) -> list[dict[str, Any]]:
        """For JSON."""
        room, pictures = MOST_BODY, []
        for one in self.messages:
            picture: dict[str, Any] = {"offset": one.ordinal, "attempts": one.attempts}
            frame = look.frames[one.ordinal]
            if frame:
                picture["id"] = message_id(frame).decode()
                picture["timestamp"] = int.from_bytes(frame[STAMP], "big")
                picture["body_size"] = len(frame) - HEADER_SIZE
                part = frame[HEADER_SIZE : HEADER_SIZE + preview]
                if len(part) <= room:
                    room -= len(part)
                    picture |= _told(part, len(part) < picture["body_size"])
                picture |= look.attributes.get(one.ordinal, NONE).told()
            if state is State.DEFERRED:
                picture["ready_at"] = one.due + self.wall_offset
            elif state is State.IN_FLIGHT:
                picture["times_out_at"] = one.due + self.wall_offset
            elif state is State.BURIED:
                picture |= {"buried_at": one.buried, "reason": one.reason}
            pictures.append(picture)
        return pictures


def _told(part: bytes, cut: bool) -> dict[str, str]:
    """A body, or its beginning: then its last character may be cut."""
    try:
        return {"body": part.decode()}
    except UnicodeDecodeError as error:
        if cut and error.start >= len(part) - 3 and error.reason == "unexpected end of data":
            return {"body": part[: error.start].decode()}
        return {"body_base64": base64.b64encode(part).decode()}


def read_state(arguments: dict[str, str]) -> State:
    """The argument `state`."""
    try:
        return State(arguments.get("state"))
    except ValueError:
        raise HttpError(400, "INVALID_ARG_STATE") from None


def _total(channel: Channel, state: State) -> int:
    match state:
        case State.READY:
            return channel.depth
        case State.IN_FLIGHT:
            return channel.in_flight_count
        case State.DEFERRED:
            return channel.deferred_count
        case State.BURIED:
            return len(channel.buried)
