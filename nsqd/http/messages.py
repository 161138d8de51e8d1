"""Look at the messages of a channel without changing anything.

    GET /channel/messages?topic=t&channel=c&state=ready|in_flight|deferred|buried[&limit=100][&after=NEXT][&preview=256]

    {"total": 3, "messages": [{"id","offset","timestamp","attempts","body_size","body" or "body_base64", ...}], "next": "..."}

`next` is present if there may be more messages: give it as `after`. A page has messages of one of the logs that the node owns,
and the last page may be empty; offsets in logs adopted from other nodes are above 2^48. Bodies are cut after `preview` bytes.
Messages published with headers, a key or a producer have "headers", "key", "producer" and "sequence". Deferred messages have
`ready_at`, messages in flight `times_out_at`, buried ones `buried_at` and `reason`; times are ns since the epoch. A message
that cannot be read has no id. In a cluster, a message that waits for its copies is listed with `waiting_for_copies`: true,
without body and headers.

    GET /channel/message?topic=t&channel=c&offset=7         the whole body of one message, as application/octet-stream

404 MESSAGE_NOT_FOUND if it cannot be read, or not any more; 409 MESSAGE_WAITS_FOR_COPIES if it cannot be read yet.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.listing import ListedMessage, MessageState, list_messages
from nsqd.core.message.attributes import NONE
from nsqd.core.message.frame import HEADER_SIZE, STAMP, message_id
from nsqd.core.topic import Topic
from nsqd.http.arguments import bounded, topic_and_channel
from nsqd.http.inspection import Bodies, FrameLookup, read_page
from nsqd.http.node import Node
from nsqd.http.parts import offset_of, ordinals_in, page_of, parts_of_channel
from shared.http.api import V1_HEADERS, Routes, json_response, query
from shared.http.errors import HttpError

MOST_OFFSET = (1 << 63) - 1


class Messages:
    """The two routes that show the messages of a channel."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> Routes:
        """Return every path, its method and its handler."""
        return {"/channel/messages": {"GET": self.messages}, "/channel/message": {"GET": self.body}}

    async def body(self, request: Request) -> Response:
        """Answer the whole body of one message."""
        arguments = query(request)
        topic, channel = topic_and_channel(arguments)
        if "offset" not in arguments:
            raise HttpError(400, "MISSING_ARG_OFFSET")
        offset = bounded(arguments, "offset", 0, MOST_OFFSET)
        lookup = FrameLookup(self._node, attributes=False)

        def choose() -> tuple[Topic, list[int]]:
            topics = [one for one, _ in parts_of_channel(self._node.broker, topic, channel)]
            found = next((one for one in topics if ordinals_in(one, [offset])), None)
            if found is None:
                raise HttpError(404, "MESSAGE_NOT_FOUND")
            return found, ordinals_in(found, [offset])

        await lookup.fetch(choose)
        ((ordinal, frame),) = lookup.frames.items()
        if not frame:
            raise HttpError(404, "MESSAGE_NOT_FOUND")
        if lookup.is_held(ordinal):
            raise HttpError(409, "MESSAGE_WAITS_FOR_COPIES")
        headers = V1_HEADERS | {"X-Nsq-Message-Id": message_id(frame).decode()}
        return Response(frame[HEADER_SIZE:], headers=headers, media_type="application/octet-stream")

    async def messages(self, request: Request) -> Response:
        """Answer a page of the channel's messages in one state."""
        arguments = query(request)
        topic, channel = topic_and_channel(arguments)
        state, page = read_state(arguments), read_page(arguments)
        lookup, messages_page = FrameLookup(self._node), MessagesPage()

        def choose() -> tuple[Topic, list[int]]:
            parts = parts_of_channel(self._node.broker, topic, channel)
            try:
                found, messages_page.messages, messages_page.following = page_of(
                    parts, page.after, lambda one, place: list_messages(one, state, place, page.limit)
                )
            except ValueError:
                raise HttpError(400, "INVALID_ARG_AFTER") from None
            messages_page.base = offset_of(found, 0)
            messages_page.total = sum(_total(one, state) for _, one in parts)
            messages_page.wall_offset = self._node.broker.wall - self._node.broker.now
            return found, [one.ordinal for one in messages_page.messages]

        await lookup.fetch(choose)
        answer: dict[str, Any] = {
            "total": messages_page.total,
            "messages": messages_page.describe(state, lookup, page.preview),
        }
        if messages_page.following:
            answer["next"] = messages_page.following
        return json_response(answer)


class MessagesPage:
    """The messages of a page, and the state of their channel."""

    def __init__(self) -> None:
        self.messages: list[ListedMessage] = []
        self.following = ""
        self.base = 0  # what to add to an ordinal to get the offset
        self.total = 0
        self.wall_offset = 0  # ns from the monotonic clock to the wall clock

    def describe(self, state: MessageState, lookup: FrameLookup, preview: int) -> list[dict[str, Any]]:
        """Return the messages as dicts for JSON."""
        bodies, entries = Bodies(preview), []
        for one in self.messages:
            entry: dict[str, Any] = {"offset": self.base + one.ordinal, "attempts": one.attempts}
            frame = lookup.frames[one.ordinal]
            if frame:
                entry["id"] = message_id(frame).decode()
                entry["timestamp"] = int.from_bytes(frame[STAMP], "big")
                is_held = lookup.is_held(one.ordinal)
                entry |= bodies.describe(frame, is_held)
                entry |= {} if is_held else lookup.attributes.get(one.ordinal, NONE).as_dict()
            if state is MessageState.DEFERRED:
                entry["ready_at"] = one.due + self.wall_offset
            elif state is MessageState.IN_FLIGHT:
                entry["times_out_at"] = one.due + self.wall_offset
            elif state is MessageState.BURIED:
                entry |= {"buried_at": one.buried, "reason": one.reason}
            entries.append(entry)
        return entries


def read_state(arguments: dict[str, str]) -> MessageState:
    """Return the state that the argument `state` names. Raises HttpError 400."""
    try:
        return MessageState(arguments.get("state"))
    except ValueError:
        raise HttpError(400, "INVALID_ARG_STATE") from None


def _total(channel: Channel, state: MessageState) -> int:
    match state:
        case MessageState.READY:
            return channel.depth
        case MessageState.IN_FLIGHT:
            return channel.in_flight_count
        case MessageState.DEFERRED:
            return channel.deferred_count
        case MessageState.BURIED:
            return len(channel.buried)
