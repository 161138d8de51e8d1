"""Read a topic back, whether its messages are finished or not. This changes nothing, and shows only what survives a power cut.

    GET /topic/offsets?topic=t[&time=T][&log=ID]
        the retained range: {"topic","node","log","kind","origin","first","next","bytes","first_timestamp","last_timestamp"},
        and with `time` the "offset" of the first message published then or later. `kind` is own, promoted or replica, and
        `origin` the number of the node that published into the log. A refusal has the "node" as X-Nsq-Node. If the log
        continues others, because the node was restored from a backup or another one leads its log now, "parents":
        [{"log", "next"}, ...]
    GET /topic/read?topic=t[&from=PLACE][&to=PLACE][&limit=N][&max_bytes=N][&wait_ms=N[&min=N]][&log=ID]
        messages from `from` (earliest) up to `to` (latest). At most `limit` and about `max_bytes`: X-Nsq-Next-Offset is next.
        `wait_ms`: how long to wait until there are `min` (1). A client that follows a busy topic saves nsqd work with a higher
        `min`

`log` is the "log" of an earlier answer, or the id of a log, with which that begins. Without it, the node's own log is read. It
may name a log that this node has promoted, or of which it keeps a replica: messages of a dead node can be read on
others. A replica is read as far as it was durable some seconds ago, and `wait_ms` waits that long. The first request for a
replica takes as long as the start of a node with that log.

A PLACE is an offset, earliest, latest, a time (2026-11-21T10:00:00Z) or a duration ago (-15m). Accept chooses the form:

    application/x-ndjson (also without an Accept header): a line for each message,
        {"offset":7,"timestamp":NS,"id":"...","body":"text"}, or "body_base64" where the body is not UTF-8, and for messages
        published with them "headers", "key", "producer" and "sequence"
    application/msgpack: [first offset, count, frames] one after the other; the frames are those that consumers get over TCP
        (size, type, timestamp, attempts, id, body), end to end: copied from the log, with no work for each message.
        Messages with attributes have a fourth element: {"headers", "key", "producer", "sequence"}, as far as they are set,
        with the sequence of the first message

An answer counts in -buffer-budget until it is sent: 503 BUFFER_BUDGET_EXCEEDED with Retry-After while there is no room.

X-Nsq-Missing counts the messages before X-Nsq-Next-Offset that are corrupt on disk, if there are any.

400 for invalid arguments, 404 TOPIC_NOT_FOUND, 404 LOG_NOT_FOUND where `log` is the id of no log here, 503 LOG_OPENING while
the node cannot read it yet, 409 OTHER_LOG where `log` is not this topic's, 410 OFFSET_GONE below the first offset, 416
OFFSET_IN_FUTURE beyond the next one. Offsets of a parent are accepted up to its "next"; beyond that the answer is 409, and
X-Nsq-Restored-Offset is where that ends.
"""

import asyncio
import base64
import contextlib
import json
from typing import Any

import msgpack
from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.message.attributes import Attributes
from nsqd.core.message.frame import HEADER_SIZE, STAMP, message_id
from nsqd.core.retention.history import Amount, MessageBatch, OffsetRange, PastLog, Plan
from nsqd.http.arguments import LOG, TOPIC
from nsqd.http.logs import ReplicaReader, TopicInLog, find_topic
from nsqd.http.node import Node
from nsqd.http.offsets import (
    EARLIEST,
    OffsetArgument,
    OffsetFinder,
    check_offset,
    place,
)
from shared.auth.verbs import Verb
from shared.http.api import V1_HEADERS, json_response
from shared.http.argument import bounded
from shared.http.errors import HttpError
from shared.http.exchange import exchange_of
from shared.http.route import Route, on_topic
from shared.values import MILLISECOND

LIMIT, MOST = 100_000, 10_000_000  # messages in an answer
MAX_BYTES, MOST_BYTES = 1024 * 1024, 8 * 1024 * 1024  # bytes of frames in an answer
MOST_WAIT = 60_000  # ms
# Answers that are built at a time: each takes several times its size in memory. Answers that are being sent are bounded by the
# budget instead; if they kept their slot, two clients that read slowly would keep all others out.
AT_ONCE = 2
NDJSON, MSGPACK = "application/x-ndjson", "application/msgpack"
_MSGPACK = (MSGPACK, "application/x-msgpack", "application/vnd.msgpack")


class ReadBack:
    """The two routes that read topics back."""

    def __init__(self, node: Node, replicas: ReplicaReader) -> None:
        self._node = node
        self._replicas = replicas
        self._offset_finder = OffsetFinder(node, replicas)
        self._slots = asyncio.Semaphore(AT_ONCE)

    def routes(self) -> list[Route]:
        return [
            Route("GET /topic/offsets", self.offsets, on_topic(Verb.READ), (TOPIC, place("time"), LOG),
                  "Return the retained range"),
            Route("GET /topic/read", self.read, on_topic(Verb.READ),
                  (TOPIC, place("from", OffsetArgument(word=EARLIEST)), place("to"), bounded("limit", MOST, LIMIT),
                   bounded("max_bytes", MOST_BYTES, MAX_BYTES), bounded("wait_ms", MOST_WAIT, 0), bounded("min", MOST, 1), LOG),
                  "Read retained messages"),
        ]  # fmt: skip

    async def offsets(self, request: Request, topic: str, time: OffsetArgument | None, log: str) -> Response:
        """Answer the range of offsets that can be read, and the offset of a time if one is given."""
        replica = await self._replicas.open(log)
        try:
            found, amount = await self._node.bridge.call(lambda: self._amount(topic, log, replica))
        except HttpError as error:
            error.headers["X-Nsq-Node"] = str(self._node.options.node_number())
            raise
        window = found.window
        answer: dict[str, Any] = {
            "topic": topic,
            "node": self._node.options.node_number(),
            "log": window.log,
            "kind": found.kind,
            "origin": found.origin,
            "first": window.first,
            "next": window.next,
            "bytes": amount.size,
            "first_timestamp": amount.oldest,
            "last_timestamp": amount.newest,
        }
        if window.parents:
            answer["parents"] = [{"log": parent, "next": end} for parent, end in window.parents]
        if time is not None:
            answer["offset"] = await self._offset_finder.offset(topic, log, time)
        return json_response(answer)

    def _amount(self, name: str, log_id: str, replica: PastLog | None) -> tuple[TopicInLog, Amount]:
        """Return the topic, and the amount that can be read of it. Runs in the trio thread. Raises HttpError."""
        found = find_topic(self._node, name, log_id, 0, replica)
        return found, found.history.amount(found.number)

    async def read(
        self,
        request: Request,
        topic: str,
        from_: OffsetArgument,
        to: OffsetArgument | None,
        limit: int,
        max_bytes: int,
        wait_ms: int,
        min_: int,
        log: str,
    ) -> Response:
        """Answer messages from one place up to another."""
        if min_ > max(1, limit):
            raise HttpError(400, "INVALID_ARG_MIN")
        packed = wants_msgpack(request)
        named = max(from_.offset or 0, (to and to.offset) or 0)  # the highest offset in the request
        await self._replicas.open(log)  # it may take long, and blocks no other request
        async with self._slots:
            start = await self._offset_finder.offset(topic, log, from_)
            stop = start + limit
            if to is not None:
                stop = min(stop, await self._offset_finder.offset(topic, log, to))
        if wait_ms:
            await self._wait(topic, log, named, start, min(stop, start + min_), wait_ms)
        window = OffsetRange("", 0, 0)

        async def plan() -> Plan:
            replica = await self._replicas.open(log)

            def work() -> Plan:
                nonlocal window
                found = find_topic(self._node, topic, log, named, replica, start)
                window = found.window
                check_offset(start, window)
                return found.history.plan(found.number, start, min(stop, window.next), max_bytes)

            return await self._node.bridge.call(work)

        exchange = exchange_of(request.scope)
        async with self._slots:
            exchange.hold(max_bytes)
            content, count, after = await self._offset_finder.from_disk(plan, _packed if packed else _lined)
        exchange.hold(len(content))
        missing = {"X-Nsq-Missing": str(after - start - count)} if after - start > count else {}
        headers = missing | {
            "X-Nsq-Log": window.log,
            "X-Nsq-First-Offset": str(window.first),
            "X-Nsq-Next-Offset": str(after),
            "X-Nsq-End-Offset": str(window.next),
        }
        return Response(content, media_type=MSGPACK if packed else NDJSON, headers=V1_HEADERS | headers)

    async def _wait(self, name: str, log_id: str, named: int, start: int, stop: int, ms: int) -> None:
        """Wait until everything from `start` to `stop` can be read, or for `ms` milliseconds. Raises HttpError.

        `named`: as `offset` of `find_topic`.
        """
        broker, bridge, readable = self._node.broker, self._node.bridge, asyncio.Event()
        replica = await self._replicas.open(log_id)

        def work() -> bool:
            found = find_topic(self._node, name, log_id, named, replica, start)
            check_offset(start, found.window)
            if found.window.next < stop and found.topic is not None:  # a replica reports no new messages
                until = broker.now + ms * MILLISECOND
                found.history.await_messages(found.number, stop, until, lambda: bridge.post(readable.set))
            return found.window.next >= stop

        if not await bridge.call(work):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(readable.wait(), ms / 1000)


def wants_msgpack(request: Request) -> bool:
    """Return whether the client accepts msgpack before JSON. Raises HttpError 406 if it accepts neither."""
    kinds = [kind.partition(";")[0].strip().lower() for kind in request.headers.get("accept", "*/*").split(",")]
    for kind in kinds:
        if kind in _MSGPACK:
            return True
        if kind in (NDJSON, "application/json", "application/*", "text/*", "*/*", ""):
            return False
    raise HttpError(406, "NOT_ACCEPTABLE")


def _packed(plan: Plan) -> tuple[bytes, int, int]:
    """Return the content as msgpack, how many messages are in it, and where to continue. Runs in any thread."""
    batches, after = plan.read()
    return _pack(batches), sum(batch.count for batch in batches), after


def _lined(plan: Plan) -> tuple[bytes, int, int]:
    """Return the content as lines, how many messages are in it, and where to continue. Runs in any thread."""
    batches, after = plan.read()
    return _lines(batches), sum(batch.count for batch in batches), after


def _pack(batches: list[MessageBatch]) -> bytes:
    """Pack batches as msgpack; those that follow each other, without attributes, become one. Runs in any thread."""
    packer, packed, place = msgpack.Packer(autoreset=True), [], 0
    while place < len(batches):
        begin, one = place, batches[place]
        if one.packed:
            packed.append(packer.pack([one.first, one.count, one.frames, one.attributes.as_dict()]))
            place += 1
            continue
        end = one.first
        while place < len(batches) and batches[place].first == end and not batches[place].packed:
            end = batches[place].end
            place += 1
        frames = b"".join([batch.frames for batch in batches[begin:place]])
        packed.append(packer.pack([one.first, end - one.first, frames]))
    return b"".join(packed)


def _lines(batches: list[MessageBatch]) -> bytes:
    """Write the messages as lines of JSON. Runs in any thread."""
    lines: list[str] = []
    for batch in batches:
        attributes = batch.attributes
        for offset, frame in batch.messages():
            lines.append(_line(offset, frame, attributes.behind(offset - batch.first)))
    return "\n".join([*lines, ""]).encode()


def _line(offset: int, frame: bytes, attributes: Attributes) -> str:
    fields: dict[str, Any] = {
        "offset": offset,
        "timestamp": int.from_bytes(frame[STAMP], "big"),
        "id": message_id(frame).decode(),
    }
    body = frame[HEADER_SIZE:]
    try:
        fields["body"] = body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(body).decode()
    if attributes:
        fields |= attributes.as_dict()
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
