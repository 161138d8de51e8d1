"""Consume a channel without a client that keeps a connection: receive messages, and finish them by their receipts.

    POST /channel/receive?topic=t&channel=c[&max=10][&wait=20s][&timeout=5m]
        up to `max` messages (1), and about 1 MiB: {"messages": [{"id", "receipt", "timestamp", "attempts", "body"}, ...]}.
        "body_base64" instead where the body is not UTF-8, and "headers" for messages published with them. The answer
        comes as soon as there is a message, and after `wait` (0) without one. Topic and channel are made, as SUB makes them.
        `timeout`: after which a message is delivered again (-msg-timeout)
    POST /channel/finish?topic=t&channel=c&receipt=R                     end the message for the channel
    POST /channel/requeue?topic=t&channel=c&receipt=R[&delay=10s]        deliver it again, after a delay if one is given
    POST /channel/touch?topic=t&channel=c&receipt=R[&timeout=5m]         begin its timeout again

Instead of `receipt`, the body may have several, as lines or as an array of JSON, in up to 64 KiB. The answer is
{"finished": N, "expired": [RECEIPT, ...]} (requeued, touched), once that is as durable as the topic promises, and 410
RECEIPT_EXPIRED if no receipt is valid. A receipt names one delivery of one message. It expires when the message is finished,
requeued or timed out, when an operator acts on it, and when the node restarts.

`Accept: application/msgpack` gives the same as msgpack, with each body as bytes.

All messages of an answer are in flight like those of a consumer over TCP, for which it counts in /stats, and time out together.
If the client disconnects while it waits, it gets none. If it disconnects later, those that it was sent time out.

503 TOO_MANY_RECEIVES with Retry-After: 1,000 requests wait on the node, or the messages of 20,000 are in flight. 503
TOO_MANY_CONSUMERS: -max-channel-consumers is reached. 429 TOO_MANY_IN_FLIGHT: the sender has as many messages in flight as its
limits in the auth file allow. 403 AUTH_FILE_REQUIRED: only authorization servers know who may consume, and HTTP does not ask
them.

See docs/contributing/design/channel.md#receives.
"""

import asyncio
import base64
import json
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from nsqd.core.channel.channel import Channel
from nsqd.core.limits import TooMany
from nsqd.core.message.frame import ATTEMPTS, HEADER_SIZE, ID_SIZE, MESSAGE_WITH_HEADERS, STAMP, TYPE, message_id
from nsqd.core.receives import Receive
from nsqd.http.arguments import TOPIC_AND_CHANNEL, existing_channel, made_channel, made_topic
from nsqd.http.node import Node
from nsqd.http.read_back import MSGPACK, wants_msgpack
from penstock.protocol.headers import split_headers
from shared.auth.verbs import Verb
from shared.http.api import V1_HEADERS, json_response, read_body
from shared.http.argument import Argument, bounded, duration
from shared.http.errors import HttpError
from shared.http.exchange import exchange_of
from shared.http.route import Route, on_channel
from shared.values import MILLISECOND, SECOND

MOST = 1000  # messages in an answer
MOST_WAIT = 60 * SECOND
DISK_WAIT = 1.0  # s to wait in any case while messages of the channel are being read from disk
TOKEN_BYTES = 12
MOST_BODY = 64 * 1024  # bytes of receipts in a request
AT_ONCE = 100  # receipts that are handled in one turn: each takes about 5 us
_RECEIPT = re.compile(f"[0-9a-f]{{{ID_SIZE + 2 * TOKEN_BYTES}}}")
_PUNCTUATION = bytes.maketrans(b'[",]', b"    ")


def read_receipt(text: str) -> str:
    """Return the receipt. Raises ValueError if it cannot be one."""
    if not _RECEIPT.fullmatch(text):
        raise ValueError("not a receipt")
    return text


RECEIPT = Argument("receipt", read_receipt, None, "the receipt of a message", "INVALID_RECEIPT")
Act = Callable[[Channel, list[str]], list[str]]  # acts on the messages, and returns the receipts that have expired


class Receiving:
    """The four routes for consumers without a connection."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._receives = node.broker.receives
        options = node.options
        self._longest = options.max_msg_timeout
        most = min(MOST, options.max_rdy_count)
        timeout = duration("timeout", options.msg_timeout, MILLISECOND, options.max_msg_timeout)
        self._routes = [
            Route("POST /channel/receive", self.receive, on_channel(Verb.CONSUME),
                  (*TOPIC_AND_CHANNEL, bounded("max", most, 1, 1), duration("wait", 0, 0, MOST_WAIT), timeout),
                  "Return messages, and put them in flight"),
            Route("POST /channel/finish", self._handler("finished", lambda: self._receives.finish),
                  on_channel(Verb.CONSUME), (*TOPIC_AND_CHANNEL, RECEIPT), "Finish received messages"),
            Route("POST /channel/requeue", self._handler("requeued", self._requeue), on_channel(Verb.CONSUME),
                  (*TOPIC_AND_CHANNEL, RECEIPT, duration("delay", 0, 0, options.max_req_timeout)),
                  "Requeue received messages"),
            Route("POST /channel/touch", self._handler("touched", self._touch), on_channel(Verb.CONSUME),
                  (*TOPIC_AND_CHANNEL, RECEIPT, duration("timeout", 0, MILLISECOND, options.max_msg_timeout)),
                  "Extend the timeout of received messages"),
        ]  # fmt: skip

    def routes(self) -> list[Route]:
        return self._routes

    # receive

    async def receive(self, request: Request, topic: str, channel: str, max_: int, wait: int, timeout: int) -> Response:
        """Answer with up to `max_` messages, as soon as there are any, and at the latest after `wait` ns."""
        node, receives, packs = self._node, self._receives, wants_msgpack(request)
        if node.options.auth_http_address and not node.options.auth_file:
            raise HttpError(403, "AUTH_FILE_REQUIRED")
        await read_body(request, MOST_BODY, "BODY_TOO_BIG")  # what follows in `_wait` is the end of the connection
        await node.until_started()
        arrived, token = asyncio.Event(), secrets.token_hex(TOKEN_BYTES)

        def notify() -> None:
            node.bridge.post(arrived.set)

        receive = await node.bridge.call(lambda: self._open(request, topic, channel, max_, token, timeout, notify))
        try:
            await self._wait(request, receive, arrived, wait / SECOND)
            frames = await node.bridge.call(lambda: receives.answer(receive))
            if frames is None:
                raise HttpError(404, "CHANNEL_NOT_FOUND")
            content = _packed(frames, token) if packs else _written(frames, token)
            exchange_of(request.scope).hold(len(content))
        except (HttpError, ClientDisconnect):
            await node.bridge.call(lambda: receives.abandon(receive))
            raise
        kind = MSGPACK if packs else "application/json; charset=utf-8"
        return Response(content, media_type=kind, headers=V1_HEADERS)

    def _open(
        self,
        request: Request,
        topic: str,
        channel: str,
        count: int,
        token: str,
        timeout: int,
        notify: Callable[[], None],
    ) -> Receive:
        """Subscribe. Runs in the trio thread. Raises HttpError."""
        count, group = self._room(request, count)
        found = made_channel(made_topic(self._node, request, topic), channel)
        most = self._node.options.max_channel_consumers
        if 0 < most <= len(found.consumers):
            raise HttpError(503, "TOO_MANY_CONSUMERS")
        try:
            return self._receives.open(found, count, token, timeout, notify, group)
        except TooMany:
            raise HttpError(503, "TOO_MANY_RECEIVES", {"Retry-After": "1"}) from None

    def _room(self, request: Request, count: int) -> tuple[int, dict[Receive, None]]:
        """Return the number of messages that the sender may be given, and its open receives. Raises HttpError 429 for none."""
        accounts, identity = self._node.accounts, getattr(request.state, "identity", None)
        if accounts is None or identity is None:
            return count, {}
        account, most = accounts.account(identity.name), identity.limits.in_flight
        if most:
            count = min(count, most - account.in_flight() - sum(one.open_window for one in account.receives))
        if count <= 0:
            account.refused += 1
            raise HttpError(429, "TOO_MANY_IN_FLIGHT", {"Retry-After": "1"})
        return count, account.receives

    async def _wait(self, request: Request, receive: Receive, arrived: asyncio.Event, seconds: float) -> None:
        """Wait until the receive can be answered, for some seconds at most. Raises ClientDisconnect."""
        if arrived.is_set():
            return
        arrival, end = asyncio.ensure_future(arrived.wait()), asyncio.ensure_future(request.receive())
        try:
            done, _ = await asyncio.wait((arrival, end), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not done and await self._node.bridge.observe(receive.is_reading):
                await asyncio.wait((arrival, end), timeout=DISK_WAIT, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                raise ClientDisconnect
        finally:
            arrival.cancel()
            end.cancel()

    # receipts

    def _requeue(self, delay: int) -> Act:
        return lambda channel, receipts: self._receives.requeue(channel, receipts, delay)

    def _touch(self, timeout: int) -> Act:
        return lambda channel, receipts: self._receives.touch(channel, receipts, timeout, self._longest)

    def _handler(self, done: str, prepare: Callable[..., Act]) -> Callable[..., Awaitable[Response]]:
        """Return a handler that acts on the messages of a request's receipts; `done` is the key of their number."""

        async def handler(request: Request, topic: str, channel: str, receipt: str | None, **more: int) -> Response:
            receipts = [receipt] if receipt is not None else await _receipts_in(request)
            act, broker, expired = prepare(**more), self._node.broker, list[str]()
            for at in range(0, len(receipts), AT_ONCE):
                batch = receipts[at : at + AT_ONCE]
                expired += await self._node.bridge.call(
                    lambda batch=batch: act(existing_channel(broker, topic, channel), batch)  # type: ignore[misc]
                )
            if len(expired) == len(receipts):
                raise HttpError(410, "RECEIPT_EXPIRED")
            return json_response({done: len(receipts) - len(expired), "expired": expired})

        return handler


async def _receipts_in(request: Request) -> list[str]:
    """Return the receipts in the body of a request, each once. Raises HttpError."""
    body = await read_body(request, MOST_BODY, "BODY_TOO_BIG")
    words = body.translate(_PUNCTUATION).decode("latin-1").split()
    if not words:
        raise HttpError(400, "MISSING_ARG_RECEIPT")
    try:
        return list(dict.fromkeys(map(read_receipt, words)))
    except ValueError:
        raise HttpError(400, "INVALID_RECEIPT") from None


def _fields(frame: bytes, token: str) -> tuple[dict[str, Any], bytes]:
    """Return the fields of a message in an answer, except for its body, and the body."""
    content, name = frame[HEADER_SIZE:], message_id(frame).decode()
    fields: dict[str, Any] = {
        "id": name,
        "receipt": name + token,
        "timestamp": int.from_bytes(frame[STAMP], "big"),
        "attempts": int.from_bytes(frame[ATTEMPTS], "big"),
    }
    if int.from_bytes(frame[TYPE], "big") == MESSAGE_WITH_HEADERS:
        headers, content = split_headers(content)
        fields["headers"] = dict(headers)
    return fields, content


def _packed(frames: list[bytes], token: str) -> bytes:
    """Return the answer in msgpack, which has each body as bytes instead of text or base64."""
    messages = [fields | {"body": body} for fields, body in (_fields(frame, token) for frame in frames)]
    packed: bytes = msgpack.packb({"messages": messages})
    return packed


def _written(frames: list[bytes], token: str) -> bytes:
    """Return the answer as JSON, written message by message: during one call no other thread runs."""
    texts = []
    for frame in frames:
        fields, body = _fields(frame, token)
        try:
            fields["body"] = body.decode()
        except UnicodeDecodeError:
            fields["body_base64"] = base64.b64encode(body).decode()
        texts.append(json.dumps(fields, separators=(",", ":"), ensure_ascii=False))
    return f'{{"messages":[{",".join(texts)}]}}'.encode()
