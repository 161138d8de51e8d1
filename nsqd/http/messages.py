"""Look at the messages of a channel without changing anything.

    GET /channel/messages?topic=t&channel=c&state=ready|in_flight|deferred|buried[&limit=100][&after=NEXT][&preview=256]

    {"total": 3, "counts": {"ready": 3, "in_flight": 0, "deferred": 0, "buried": 0}, "next": "...",
     "messages": [{"id","offset","timestamp","attempts","body_size","body" or "body_base64", ...}]}

`next` is present if there may be more messages: give it as `after`. A page has messages of one of the logs that the node owns;
any page may have fewer than `limit`, and the last one may be empty; offsets in logs promoted from other nodes are above 2^48.
Bodies are cut after `preview` bytes. Messages published with headers, a key or a producer have "headers", "key", "producer" and
"sequence"; the first two are left out with `preview=0`, which needs no right to read. Deferred messages have `ready_at`,
messages in flight `times_out_at`, buried ones `buried_at` and `reason`; times are ns since the epoch. Messages in flight to a
client that is still connected have "client": {"client_id", "hostname", "remote_address", "user_agent"}, as in /stats. A message
that cannot be read has no id. In a cluster, a message that waits for its copies is listed with `waiting_for_copies`: true,
without body and headers.

With filters the answer has only those of the `limit` messages that meet all of them, and "scanned": how many it looked at.
Times are ns since the epoch. `reason` is a part of the reason for which a message is buried, `contains` a part of the id, of
the key, of the first 64 KiB of the body, or of a header, both in any case of letters. `header` is NAME or NAME=VALUE: the name
in any case, the value as a whole. A message that cannot be read meets no condition about its time or content, and one that
waits for its copies meets none about its content. `header` and `contains` need the right to read, as a preview does.

    GET /channel/message?topic=t&channel=c&offset=7[&format=json]    the body of one message, as application/octet-stream

With format=json it is an object as in "messages", with its headers and the body, unless that has more than 4 MiB. 404
MESSAGE_NOT_FOUND if it cannot be read, or no longer exists; 409 MESSAGE_WAITS_FOR_COPIES if it cannot be read yet.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import Consumer
from nsqd.core.channel.inflight import DeliveryOwner
from nsqd.core.channel.listing import ListedMessage, MessageState, Steps, list_messages
from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.message.frame import HEADER_SIZE, STAMP, message_id
from nsqd.core.topic import Topic
from nsqd.http.arguments import TOPIC_AND_CHANNEL
from nsqd.http.inspection import MOST_BODY, PAGE, Bodies, FrameLookup
from nsqd.http.message_filter import FILTER, MessageFilter, matching
from nsqd.http.node import Node
from nsqd.http.parts import offset_of, ordinals_in, page_of, parts_of_channel
from nsqd.http.stats_client import address_of
from nsqd.protocols.nsq.peer import Peer
from shared.auth.verbs import Verb
from shared.http.api import V1_HEADERS, json_response
from shared.http.argument import any_text, bounded, choice
from shared.http.errors import HttpError
from shared.http.route import Need, Route, on_channel

MOST_OFFSET = (1 << 63) - 1
CONTENTS = ("headers", "key")  # attributes of a message that are shown with its body only
STATES = {state.value: state for state in MessageState}


class Messages:
    """The two routes that show the messages of a channel."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /channel/messages", self.messages,
                  Need(Verb.BROWSE, "topic", "channel", preview="preview", reading=("contains", "header")),
                  (*TOPIC_AND_CHANNEL, choice("state", STATES), *PAGE, *FILTER),
                  "List messages of a channel, without touching them"),
            Route("GET /channel/message", self.body, on_channel(Verb.READ),
                  (*TOPIC_AND_CHANNEL, bounded("offset", MOST_OFFSET), any_text("format", "")),
                  "Send the body of one message, or with its headers as JSON"),
        ]  # fmt: skip

    async def body(self, request: Request, topic: str, channel: str, offset: int, format_: str) -> Response:
        """Answer the whole body of one message."""
        as_json = format_ == "json"
        lookup = FrameLookup(self._node, attributes=as_json)

        def choose() -> Steps[tuple[Topic, list[int]]]:
            yield from ()  # all in one step
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
        if as_json:
            return json_response({"offset": offset} | _content(frame, lookup.attributes.get(ordinal, NONE), MOST_BODY))
        headers = V1_HEADERS | {"X-Nsq-Message-Id": message_id(frame).decode()}
        return Response(frame[HEADER_SIZE:], headers=headers, media_type="application/octet-stream")

    async def messages(
        self,
        request: Request,
        topic: str,
        channel: str,
        state: MessageState,
        limit: int,
        after: str,
        preview: int,
        **conditions: Any,
    ) -> Response:
        """Answer a page of the channel's messages in one state. The other arguments are conditions of the filter."""
        wanted = MessageFilter(**conditions)
        lookup, messages_page = FrameLookup(self._node), MessagesPage()

        def choose() -> Steps[tuple[Topic, list[int]]]:
            parts = parts_of_channel(self._node.broker, topic, channel)
            try:
                found, listed, messages_page.following = yield from page_of(
                    parts, after, lambda one, place: list_messages(one, state, place, max(1, limit))
                )
            except ValueError:
                raise HttpError(400, "INVALID_ARG_AFTER") from None
            messages_page.scanned = len(listed)
            messages_page.messages = [one for one in listed if wanted.meets_listing(one)]
            messages_page.base = offset_of(found, 0)
            messages_page.counts = _counts(one for _, one in parts_of_channel(self._node.broker, topic, channel))
            messages_page.wall_offset = self._node.broker.wall - self._node.broker.now
            if state is MessageState.IN_FLIGHT:
                messages_page.clients = clients_of(messages_page.messages, self._node.peers())
            return found, [one.ordinal for one in messages_page.messages]

        await lookup.fetch(choose)
        if wanted.needs_content:
            messages_page.messages = await asyncio.to_thread(
                matching, wanted, messages_page.messages, lookup.frames, lookup.attributes, lookup.is_held
            )
        return json_response(messages_page.describe(state, lookup, preview, is_filtered=bool(wanted)))


class MessagesPage:
    """The messages of a page, and the state of their channel."""

    def __init__(self) -> None:
        self.messages: list[ListedMessage] = []
        self.following = ""
        self.base = 0  # what to add to an ordinal to get the offset
        self.scanned = 0  # messages that were listed, whether they match or not
        self.counts: dict[str, int] = {}  # messages of the channel by state
        self.clients: dict[int, dict[str, str]] = {}  # clients that have the messages in flight, by ordinal
        self.wall_offset = 0  # ns from the monotonic clock to the wall clock

    def describe(self, state: MessageState, lookup: FrameLookup, preview: int, *, is_filtered: bool) -> dict[str, Any]:
        """Return the page for JSON, with up to `preview` bytes of each body."""
        entries = self._entries(state, lookup, preview)
        answer: dict[str, Any] = {"total": self.counts[state.value], "counts": self.counts, "messages": entries}
        if is_filtered:
            answer["scanned"] = self.scanned
        if self.following:
            answer["next"] = self.following
        return answer

    def _entries(self, state: MessageState, lookup: FrameLookup, preview: int) -> list[dict[str, Any]]:
        bodies, entries = Bodies(preview), []
        for one in self.messages:
            entry: dict[str, Any] = {"offset": self.base + one.ordinal, "attempts": one.attempts}
            frame = lookup.frames[one.ordinal]
            if frame:
                entry["id"] = message_id(frame).decode()
                entry["timestamp"] = int.from_bytes(frame[STAMP], "big")
                is_held = lookup.is_held(one.ordinal)
                entry |= bodies.describe(frame, is_held)
                named = {} if is_held else lookup.attributes.get(one.ordinal, NONE).as_dict()
                entry |= {name: value for name, value in named.items() if preview or name not in CONTENTS}
            if state is MessageState.DEFERRED:
                entry["ready_at"] = one.due + self.wall_offset
            elif state is MessageState.IN_FLIGHT:
                entry["times_out_at"] = one.due + self.wall_offset
                client = self.clients.get(one.ordinal)
                entry |= {"client": client} if client is not None else {}
            elif state is MessageState.BURIED:
                entry |= {"buried_at": one.buried, "reason": one.reason, "failures": one.failures}
            entries.append(entry)
        return entries


def _content(frame: bytes, attributes: Attributes, most: int) -> dict[str, Any]:
    """Return the fields of a message, for JSON, with up to `most` bytes of its body."""
    named = {"id": message_id(frame).decode(), "timestamp": int.from_bytes(frame[STAMP], "big")}
    return named | Bodies(most).describe(frame, is_held=False) | attributes.as_dict()


def clients_of(listed: list[ListedMessage], peers: list[Peer]) -> dict[int, dict[str, str]]:
    """Return the clients that have the messages in flight, by ordinal, without those that are gone. Runs in the trio thread."""
    homes = {one.ordinal: _home(one.owner) for one in listed}
    wanted = set(homes.values())
    found = {peer.consumer: _client(peer) for peer in peers if peer.consumer is not None and peer.consumer in wanted}
    return {ordinal: found[home] for ordinal, home in homes.items() if home in found}


def _home(owner: DeliveryOwner | None) -> Consumer | None:
    """Return the consumer of the local channel for an owner, which may be its member in a shard."""
    if not isinstance(owner, Consumer):
        return None
    return owner.window.local if owner.window is not None else owner


def _client(peer: Peer) -> dict[str, str]:
    identity = peer.introduction.identity
    return {
        "client_id": identity.client_id,
        "hostname": identity.hostname,
        "remote_address": address_of(peer),
        "user_agent": identity.user_agent,
    }


def _counts(channels: Iterable[Channel]) -> dict[str, int]:
    """Return the numbers of messages in the parts of a channel, by state."""
    ready, in_flight, deferred, buried = map(sum, zip(*(one.counts() for one in channels), strict=True))
    return {"ready": ready, "in_flight": in_flight, "deferred": deferred, "buried": buried}
