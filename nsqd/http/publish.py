"""POST /pub and /mpub: publish messages. The answer leaves after the turn's commit, like a PUB's over TCP.

In addition to NSQ's arguments both take the following, for all messages of the request:

    X-Nsq-Header-NAME: VALUE     headers of the messages: for consumers that ask for them, and where messages are listed
    group=G                      the same as the header `group`: a channel may deliver messages of a group in order
    priority=P                   the same as the header `priority`: 0, the most urgent, to 9; 5 without one
    ttl=T                        the same as the header `ttl`: not delivered later than T (30s, 1h30m) after the publish
    key=K                        not published again under the same key (/mpub: all of them together)
    producer=P&sequence=N        not published again if P has published N already; the messages of /mpub are N, N+1, ...
    deliver_at=TIME              the same as the header `deliver-at`: not delivered before that time, such as
                                 2030-01-01T00:00:00Z, which is at most ten years ahead; not with defer or channel
    batch=B                      the same as the header `batch`: the messages are members of a batch
    after=B                      the same as the header `after`: the node keeps the messages, and publishes each when that batch
                                 is done, with the headers after-finished and after-buried; not with producer, unique, channel
                                 or defer
    unique=pending               with a key, /pub only: not published while a message that was published so under the same key
                                 is pending, instead of for some time; the answer's X-Nsq-Message-Id is the id of that
                                 message then. The header `unique: K` does the same, without an id
    channel=C                    for this channel alone: the topic's others never see them. 404 CHANNEL_NOT_FOUND if it does
                                 not exist, 409 TOPIC_PAUSED while the topic holds messages back; not with defer
    replicate=N                  in a cluster: the answer waits for N copies, if the topic does not ask for more; at most
                                 1 + -replicas, or else -replicate

Groups, keys and producers have 1 to 128 printable ASCII characters, batches at most 64; a sequence is below 2^62.

/pub also takes id=true: the answer's X-Nsq-Message-Id is the message's id as consumers see it (16 hex digits). A message that
was published before, or that an ephemeral topic had no room for, has none.

A repeated message is answered as the first one was, once that is as durable as the topic promises, and X-Nsq-Duplicates
counts the request's messages that were repeated. 400 for INVALID_KEY, INVALID_GROUP, INVALID_PRIORITY, INVALID_TTL,
INVALID_PRODUCER, INVALID_SEQUENCE, INVALID_BATCH, INVALID_AFTER, INVALID_DELIVER_AT, INVALID_UNIQUE, INVALID_HEADER,
TOO_MANY_HEADERS. 404 BATCH_NOT_FOUND for `after`; 409 BATCH_DONE for a member that comes too late, BATCH_CYCLE for messages of
a batch that would wait for itself. 503 TOO_MANY_BATCHES, BATCH_TOO_LARGE, TOO_MANY_FOLLOW_UPS, DRAINING while the node drains,
DISK_FULL and the reason while it cannot write to its disk.

See docs/contributing/design/nsq-http.md#publishing.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nsqd.core.limits import HeaderRefused, TooFewCopies
from nsqd.core.message.attributes import MOST_SEQUENCE, MOST_WORD, NONE, Attributes, is_word, read_ttl
from nsqd.core.message.deliver_at import read_time
from nsqd.http.arguments import TOPIC, check_open, existing_channel, topic_to_publish_to
from nsqd.http.batches import batch_name, refused_header
from nsqd.http.node import Node
from nsqd.protocols.nsq.batch import MpubBatch
from nsqd.protocols.nsq.commands import INT32
from nsqd.protocols.nsq.fast import equal_bodies
from penstock.protocol.headers import (
    AFTER,
    BATCH,
    DELIVER_AT,
    GROUP,
    MOST_PRIORITY,
    PRIORITY,
    TTL,
    Headers,
    TooManyHeaders,
    check_headers,
)
from shared.auth.verbs import Verb
from shared.http.api import V1_HEADERS, query, read_body
from shared.http.argument import Argument, any_text, bounded, choice, flag, values_in
from shared.http.errors import HttpError
from shared.http.route import Route, on_topic
from shared.values import MILLISECOND, SECOND

T = TypeVar("T")

SPLIT_AT_ONCE = 64 * 1024  # bytes of lines: about 1 ms
_HEADER = b"x-nsq-header-"  # the beginning of a header's name, in the server's spelling
# Matches numbers that are not negative and have no more than 18 digits after leading zeros.
_INTEGER = re.compile(r"(?=[+-]?[0-9])(?:\+|-(?=0+$))?0*([0-9]{0,18})")


class _Ok(Response):
    """The answer OK, built once: the hot path allocates no headers."""

    _start = {  # noqa: RUF012 - never changed
        "type": "http.response.start",
        "status": 200,
        "headers": [
            (b"content-length", b"2"),
            (b"content-type", b"text/plain; charset=utf-8"),
            *((name.lower().encode(), value.encode()) for name, value in V1_HEADERS.items()),
        ],
    }
    _body = {"type": "http.response.body", "body": b"OK"}  # noqa: RUF012

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(self._start)
        await send(self._body)


OK = _Ok()


def _word(name: str) -> Argument:
    def read(text: str) -> str:
        if not is_word(text):
            raise ValueError("not a word")
        return text

    return Argument(name, read, None, f"1 to {MOST_WORD} printable ASCII characters", f"INVALID_{name.upper()}")


def _text(name: str, check: Callable[[str], object], expected: str) -> Argument:
    """Declare a text for which `check` raises no ValueError."""

    def read(text: str) -> str:
        check(text)
        return text

    return Argument(name, read, None, expected, f"INVALID_{name.upper()}")


_HEADERS = {  # the headers of messages that have an argument
    GROUP: _word("group"),
    PRIORITY: bounded("priority", MOST_PRIORITY, None, invalid="INVALID_PRIORITY"),
    TTL: _text("ttl", read_ttl, "a duration"),
    BATCH: batch_name("batch", None),
    AFTER: batch_name("after", None),
    DELIVER_AT: _text("deliver_at", read_time, "a time as in RFC 3339"),
}
ATTRIBUTES = (
    choice("unique", {"pending": True}, False),
    _word("key"),
    _word("producer"),
    bounded("sequence", MOST_SEQUENCE, None, invalid="INVALID_SEQUENCE"),
    *_HEADERS.values(),
)


class Publishing:
    """The two routes that publish messages."""

    def __init__(self, node: Node) -> None:
        self._node = node
        most_copies = node.options.most_copies()
        common = (*ATTRIBUTES, any_text("channel", None), bounded("replicate", most_copies, 0, 1, "INVALID_REPLICATE"))
        self._arguments_of_pub = (TOPIC, any_text("defer", None), flag("id", ("true", "1")), *common)
        self._arguments_of_mpub = (TOPIC, Argument("binary", lambda text: text not in ("false", "0"), False), *common)
        self._max_msg_size = node.options.max_msg_size
        self._max_body_size = node.options.max_body_size

    def routes(self) -> list[Route]:
        need = on_topic(Verb.PUBLISH)
        pub, mpub = "Publish the body as one message; `defer` in ms", "Publish one message for each line of the body"
        return [
            Route("POST /pub", self.pub, need, self._arguments_of_pub, pub, parses_itself=True),
            Route("POST /mpub", self.mpub, need, self._arguments_of_mpub, mpub, parses_itself=True),
        ]

    async def pub(self, request: Request) -> Response:
        """Publish one message, at once or deferred."""
        body = await read_body(request, self._max_msg_size, "MSG_TOO_BIG")
        if not body:
            raise HttpError(400, "MSG_EMPTY")
        arguments = query(request)
        topic, headers = TOPIC.value_in(arguments), read_headers(request)
        if headers or len(arguments) > 1:
            return await self._pub_otherwise(request, body, headers, **values_in(arguments, self._arguments_of_pub))

        def publish() -> bool:
            self._admit(request, 1, len(body))
            to = topic_to_publish_to(self._node, request, topic)
            to.publish([body], len(body))
            self._note(request, topic, 1)
            return to.starting

        await self._node.until_started()
        if await self._node.bridge.call(publish):
            await self._node.registered(topic)
        return OK

    def _admit(self, request: Request, messages: int, size: int) -> None:
        """Count messages for the sender of a request, before they are published. Runs in the trio thread.

        Raises HttpError 429 if the sender is over its rate.
        """
        accounts, identity = self._node.accounts, getattr(request.state, "identity", None)
        if accounts is None or identity is None:
            return
        account = accounts.account(identity.name)
        wait = account.admit(identity.limits, messages, size, self._node.broker.now)
        if wait:
            account.refused += 1
            raise HttpError(429, "TOO_MANY_MESSAGES", {"Retry-After": str(-(-wait // SECOND))})

    def _note(self, request: Request, topic: str, messages: int) -> None:
        """Count messages that are published for the address of their sender. Runs in the trio thread."""
        address = request.client.host if request.client is not None else ""
        self._node.publishers.note(address, topic, messages, self._node.broker.wall)

    async def _pub_otherwise(
        self,
        request: Request,
        body: bytes,
        headers: Headers,
        topic: str,
        defer: str | None,
        id_: bool,
        channel: str | None,
        replicate: int,
        **identity: Any,
    ) -> Response:
        """Publish one message with attributes, a delay, a channel, or a request for its id."""
        attributes = _attributes(headers, **identity)
        if defer is not None and channel is not None:
            raise HttpError(400, "INVALID_DEFER")

        def publish() -> int:
            self._admit(request, 1, len(body))
            self._ask_for_copies(request, topic, replicate)
            if defer is not None:
                duplicates = self._publish_deferred(request, topic, body, defer, attributes)
            else:
                duplicates = self._publish_now(request, topic, [body], len(body), attributes, channel)
            self._note(request, topic, 1 - duplicates)
            return duplicates

        def act() -> tuple[int, bytes]:
            duplicates, message_id = self._apart(topic, publish) if id_ else (publish(), b"")
            if duplicates and attributes.while_pending:
                message_id = b"%016x" % self._node.broker.topics[topic].pending_id(attributes.key)
            return duplicates, message_id

        return _answer(*await self._call(topic, act))

    async def _call(self, name: str, publish: Callable[[], T]) -> T:
        """Run `publish` in the trio thread, and return its result; for a new topic, once nsqlookupd knows it."""

        def act() -> tuple[T, bool]:
            try:
                result = publish()
            except HeaderRefused as refused:
                raise refused_header(refused) from None
            topic = self._node.broker.topics.get(name)
            return result, topic is not None and topic.starting

        await self._node.until_started()
        result, starting = await self._node.bridge.call(act)
        if starting:
            await self._node.registered(name)
        return result

    def _apart(self, name: str, publish: Callable[[], int]) -> tuple[int, bytes]:
        """Return the result of `publish`, and the id of the one message that it published; b"": none. Runs in the trio thread.

        The message is sealed apart from everything else that the turn publishes.
        """
        broker = self._node.broker
        self._seal(name)
        number = broker.ids.next
        duplicates = publish()
        self._seal(name)
        return duplicates, broker.ids.id_bytes(number) if broker.ids.next > number else b""

    def _seal(self, name: str) -> None:
        topic = self._node.broker.topics.get(name)
        if topic is not None:
            topic.seal(self._node.broker.wall)

    async def mpub(self, request: Request) -> Response:
        """Publish many messages: one a line or, with binary=true, as in the MPUB of TCP without its outer length."""
        body = await read_body(request, self._max_body_size, "BODY_TOO_BIG")
        values = values_in(query(request), self._arguments_of_mpub)
        topic, binary, channel, copies = (values.pop(name) for name in ("topic", "binary", "channel", "replicate"))
        if values["unique"]:
            raise HttpError(400, "INVALID_ARG_UNIQUE")
        attributes = _attributes(read_headers(request), **values)
        try:
            bodies = binary_bodies(body, self._max_msg_size, self._max_body_size) if binary else self._lines(body)
        except HttpError:
            await self._publish(request, topic, [], NONE, channel, copies)  # the original has created the topic by now
            raise
        return _answer(await self._publish(request, topic, bodies, attributes, channel, copies))

    async def _publish(
        self, request: Request, name: str, bodies: list[bytes], attributes: Attributes, channel: str | None, copies: int
    ) -> int:
        """Publish in batches, or only make sure that the topic exists. Return how many had been published before."""
        batch, duplicates = MpubBatch(bodies, attributes), 0
        size = sum(map(len, bodies)) if self._node.accounts is not None else 0

        def publish() -> int:
            if batch.is_new:
                self._admit(request, len(bodies), size)
            return self._publish_batch(request, name, batch, channel, copies)

        while True:
            duplicates += await self._call(name, publish)
            if batch.is_done:
                return duplicates

    def _ask_for_copies(self, request: Request, name: str, count: int) -> None:
        """Have the messages that follow in this turn wait for `count` copies. Runs in the trio thread. Raises HttpError 503."""
        if count:
            try:
                topic_to_publish_to(self._node, request, name).ask_for_copies(count)
            except TooFewCopies:
                raise HttpError(503, "NOREPL") from None

    def _publish_batch(self, request: Request, name: str, batch: MpubBatch, channel: str | None, copies: int) -> int:
        """Publish the next batch. Return how many had been published before. Runs in the trio thread."""
        self._ask_for_copies(request, name, copies)
        topic = self._node.broker.topics.get(name)
        known = batch.skip_duplicates(topic) if topic is not None else 0
        if known:
            return known
        bodies, attributes = batch.next_portion()
        duplicates = self._publish_now(request, name, bodies, sum(map(len, bodies)), attributes, channel)
        self._note(request, name, len(bodies) - duplicates)
        return duplicates

    def _publish_now(
        self, request: Request, name: str, bodies: list[bytes], size: int, attributes: Attributes, channel: str | None
    ) -> int:
        """Publish at once. Return how many had been published before. Runs in the trio thread."""
        if channel is not None:
            return self._publish_to(request, name, channel, bodies, attributes)
        topic = topic_to_publish_to(self._node, request, name)
        if bodies and attributes:
            return topic.publish_with(bodies, attributes)
        if bodies:
            topic.publish(bodies, size)
        return 0

    def _publish_to(
        self, request: Request, name: str, channel: str, bodies: list[bytes], attributes: Attributes
    ) -> int:
        """Publish to one channel. Return how many had been published before. Runs in the trio thread."""
        check_open(self._node.broker)
        only = existing_channel(self._node.broker, name, channel)
        topic = topic_to_publish_to(self._node, request, name)
        if topic.starting:
            # nsqlookupd is being asked for the topic's channels: the client may try again
            raise HttpError(503, "TOPIC_STARTING")
        if topic.paused:
            raise HttpError(409, "TOPIC_PAUSED")
        return 0 if not bodies else topic.publish_to(only, bodies, attributes)

    def _publish_deferred(self, request: Request, name: str, body: bytes, defer: str, attributes: Attributes) -> int:
        """Publish after a delay. Return 1 if the message had been published before, else 0. Runs in the trio thread."""
        broker = self._node.broker
        topic = topic_to_publish_to(self._node, request, name)
        longest = self._node.options.max_req_timeout // MILLISECOND
        match = _INTEGER.fullmatch(defer)
        delay = int(match[1] or "0") if match else -1
        if not 0 <= delay <= longest:
            raise HttpError(400, "INVALID_DEFER")
        return topic.publish_with([body], attributes, broker.now + delay * MILLISECOND if delay else 0)

    def _lines(self, body: bytes) -> list[bytes]:
        """Return the lines that are not empty. They are split in pieces, because one call lets no other thread run."""
        lines: list[bytes] = []
        start, size = 0, len(body)
        while start < size:
            end = body.find(b"\n", start + SPLIT_AT_ONCE)
            end = size if end < 0 else end
            part = list(filter(None, body[start:end].split(b"\n")))
            if max(map(len, part), default=0) > self._max_msg_size:
                raise HttpError(413, "MSG_TOO_BIG")
            lines += part
            start = end + 1
        return lines


def binary_bodies(body: bytes, max_msg_size: int, max_body_size: int) -> list[bytes]:
    """Return the bodies of a binary MPUB. Raises HttpError 413 unless all of it is well-formed."""
    equal = equal_bodies(body, 0, len(body), max_msg_size)
    if equal is not None and len(equal) <= (max_body_size - 4) // 5:
        return equal
    if len(body) < 4:
        raise HttpError(413, "BAD_BODY")
    count = INT32.unpack_from(body)[0]
    if not 0 < count <= (max_body_size - 4) // 5:
        raise HttpError(413, "BAD_BODY")
    bodies, at = [], 4
    for _ in range(count):
        size = INT32.unpack_from(body, at)[0] if at + 4 <= len(body) else 0
        if not 0 < size <= max_msg_size or at + 4 + size > len(body):
            raise HttpError(413, "BAD_MESSAGE")
        bodies.append(body[at + 4 : at + 4 + size])
        at += 4 + size
    return bodies


def _answer(duplicates: int, message_id: bytes = b"") -> Response:
    """Return OK, with the number of messages that had been published before, and with the id of a message unless it is b""."""
    if not duplicates and not message_id:
        return OK
    headers = {"X-Nsq-Duplicates": str(duplicates)} if duplicates else {}
    if message_id:
        headers["X-Nsq-Message-Id"] = message_id.decode()
    return Response("OK", headers=V1_HEADERS | headers, media_type="text/plain")


def _attributes(
    headers: Headers, unique: bool, key: str | None, producer: str | None, sequence: int | None, **named: Any
) -> Attributes:
    """Return the attributes that a request gives its messages. Raises HttpError 400."""
    more = tuple((name, str(value)) for name, one in _HEADERS.items() if (value := named[one.keyword]) is not None)
    if more:
        headers = _checked((*headers, *more))
    if key is not None and producer is not None:
        raise HttpError(400, "INVALID_KEY")
    if (producer is None) != (sequence is None):
        raise HttpError(400, "MISSING_ARG_PRODUCER" if producer is None else "MISSING_ARG_SEQUENCE")
    if unique and key is None:
        raise HttpError(400, "MISSING_ARG_KEY")
    return Attributes(headers, key or "", producer or "", sequence or 0, while_pending=unique)


def read_headers(request: Request) -> Headers:
    """Return the request's headers for messages: names in lower case, as HTTP has them, and values. Raises HttpError 400."""
    raw = [(name, value) for name, value in request.scope["headers"] if name.startswith(_HEADER)]
    if not raw:
        return ()
    try:
        headers = tuple((name[len(_HEADER) :].decode("ascii"), value.decode()) for name, value in raw)
    except ValueError:
        raise HttpError(400, "INVALID_HEADER") from None
    return _checked(headers)


def _checked(headers: Headers) -> Headers:
    """Return the headers. Raises HttpError 400 if no message may have them."""
    try:
        check_headers(headers)
    except TooManyHeaders:
        raise HttpError(400, "TOO_MANY_HEADERS") from None
    except ValueError:
        raise HttpError(400, "INVALID_HEADER") from None
    return headers
