"""Reading a topic back, whoever has finished its messages. It changes nothing, and shows only what survives a power cut.

    GET /topic/offsets?topic=t[&time=T][&log=ID]
        what is there: {"topic","node","log","first","next","bytes","first_timestamp","last_timestamp"}, and with `time` the
        "offset" of the first message published then or later
    GET /topic/read?topic=t[&from=PLACE][&to=PLACE][&limit=N][&max_bytes=N][&wait_ms=N][&log=ID]
        messages from `from` (earliest) up to `to` (latest). At most `limit` and about `max_bytes`: go on at X-Nsq-Next-Offset.
        `wait_ms`: how long to wait for the first one

A PLACE is an offset, earliest, latest, a time (2026-11-21T10:00:00Z) or a duration ago (-15m). Accept chooses the form:

    application/x-ndjson (also where nothing is asked for): a line for each message,
        {"offset":7,"timestamp":NS,"id":"...","body":"text"}, or "body_base64" where the body is not UTF-8
    application/msgpack: [first offset, count, frames] one behind the other; the frames are those that consumers get over TCP
        (size, type, timestamp, attempts, id, body), end to end: copied from the log, with no work for each message

400 for what makes no sense, 404 TOPIC_NOT_FOUND, 409 OTHER_LOG where `log` is not this topic's, 410 OFFSET_GONE below the first
offset, 416 OFFSET_IN_FUTURE beyond the next one.
"""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgpack
from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.frame import HEADER_SIZE, ID_SIZE
from nsqd.core.history import Batch, Gone, Plan, Window
from nsqd.core.topic import Topic
from nsqd.http.arguments import topic_name
from nsqd.http.node import Node
from nsqd.http.offsets import EARLIEST, LATEST, STAMP_AT, Found, Place, find, look, read_place
from shared.http.api import V1_HEADERS, Routes, json_response, query
from shared.http.errors import HttpError
from shared.log import log

T = TypeVar("T")
LIMIT, MOST = 100_000, 10_000_000  # messages in an answer
MAX_BYTES, MOST_BYTES = 1024 * 1024, 8 * 1024 * 1024  # bytes of frames in an answer
MOST_WAIT = 60_000  # ms
LOOK_EVERY = 0.025  # s, while waiting
AT_ONCE = 2  # answers that are read and written out at a time: each takes several times its size
TRIES = 5
NDJSON, MSGPACK = "application/x-ndjson", "application/msgpack"
_MSGPACK = (MSGPACK, "application/x-msgpack", "application/vnd.msgpack")


class ReadBack:
    """The two routes."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._slots = asyncio.Semaphore(AT_ONCE)

    def routes(self) -> Routes:
        """Every path and its method."""
        return {"/topic/offsets": {"GET": self.offsets}, "/topic/read": {"GET": self.read}}

    async def offsets(self, request: Request) -> Response:
        """What is there."""
        arguments = query(request)
        name, known = topic_name(arguments), arguments.get("log", "")
        at = read_place(arguments, "time", Place())

        def work() -> tuple[Window, Found | None]:
            topic, window = look(self._node, name, known)
            return window, find(at, self._node.history, topic, window) if "time" in arguments else None

        window, found = await self._node.bridge.call(work)
        told: dict[str, Any] = {
            "topic": name,
            "node": self._node.options.node_number(),
            "log": window.log,
            "first": window.first,
            "next": window.next,
            "bytes": window.size,
            "first_timestamp": window.oldest,
            "last_timestamp": window.newest,
        }
        if found is not None:
            told["offset"] = await self._settled(found, work)
        return json_response(told)

    async def _settled(self, found: Found, again: Callable[[], tuple[Window, Found | None]]) -> int:
        async def look_again() -> Found:
            anew = (await self._node.bridge.call(again))[1]
            assert anew is not None
            return anew

        return await self._from_disk(found, Found.settle, look_again)

    async def read(self, request: Request) -> Response:
        """Messages."""
        arguments = query(request)
        name, known = topic_name(arguments), arguments.get("log", "")
        first, last = (
            read_place(arguments, "from", Place(word=EARLIEST)),
            read_place(arguments, "to", Place(word=LATEST)),
        )
        limit = _number(arguments, "limit", LIMIT, MOST)
        most = _number(arguments, "max_bytes", MAX_BYTES, MOST_BYTES)
        wait = _number(arguments, "wait_ms", 0, MOST_WAIT)
        packed = _wants_msgpack(request)

        def places() -> tuple[Topic, Window, Found, Found]:
            topic, window = look(self._node, name, known)
            history = self._node.history
            return topic, window, find(first, history, topic, window), find(last, history, topic, window)

        async with self._slots:
            start = await self._offset(places, 2)
            if arguments.get("to") is None:
                stop = start + limit
            else:
                stop = min(start + limit, await self._offset(places, 3))
        window = await self._wait(name, known, start, stop, wait)

        async def plan() -> Plan:
            return await self._node.bridge.call(lambda: self._plan(name, known, start, min(stop, window.next), most))

        async with self._slots:
            batches = await self._from_disk(await plan(), lambda plan: plan.read(), plan)
            content = await asyncio.to_thread(_pack if packed else _lines, batches)
        after = batches[-1].first + batches[-1].count if batches else max(start, min(stop, window.next))
        headers = {
            "X-Nsq-Log": window.log,
            "X-Nsq-First-Offset": str(window.first),
            "X-Nsq-Next-Offset": str(after),
            "X-Nsq-End-Offset": str(window.next),
        }
        return Response(content, media_type=MSGPACK if packed else NDJSON, headers=V1_HEADERS | headers)

    async def _offset(self, places: Callable[[], tuple[Topic, Window, Found, Found]], which: int) -> int:
        async def look_again() -> Found:
            found = (await self._node.bridge.call(places))[which]
            assert isinstance(found, Found)
            return found

        return await self._from_disk(await look_again(), Found.settle, look_again)

    def _plan(self, name: str, known: str, start: int, stop: int, most: int) -> Plan:
        """What is to be read, if it is all there. (trio thread)"""
        topic, window = look(self._node, name, known)
        _check(start, window)
        return self._node.history.plan(topic.number, start, stop, most)

    async def _wait(self, name: str, known: str, start: int, stop: int, ms: int) -> Window:
        """Until there is something from `start` on, or for so long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + ms / 1000
        while True:
            window = await self._node.bridge.call(lambda: look(self._node, name, known)[1])
            _check(start, window)
            if window.next > start or stop <= start or loop.time() >= until:
                return window
            await asyncio.sleep(LOOK_EVERY)

    async def _from_disk(self, plan: Any, read: Callable[[Any], T], again: Callable[[], Any]) -> T:
        """Read in a thread; what was removed meanwhile is looked for anew."""
        for _ in range(TRIES):
            try:
                return await asyncio.to_thread(read, plan)
            except Gone:
                plan = await again()
            except OSError as error:
                log.error("HTTP: cannot read back: %s", error)
                raise HttpError(503, "CANNOT_READ") from None
        raise HttpError(503, "CANNOT_READ")


def _check(start: int, window: Window) -> None:
    headers = {"X-Nsq-First-Offset": str(window.first), "X-Nsq-Next-Offset": str(window.next)}
    if start < window.first:
        raise HttpError(410, "OFFSET_GONE", headers)
    if start > window.next:
        raise HttpError(416, "OFFSET_IN_FUTURE", headers)


def _number(arguments: dict[str, str], name: str, default: int, most: int) -> int:
    text = arguments.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)) or int(text) > most:
        raise HttpError(400, f"INVALID_ARG_{name.upper()}")
    return int(text)


def _wants_msgpack(request: Request) -> bool:
    """NotAcceptable is said by 406."""
    kinds = [kind.partition(";")[0].strip().lower() for kind in request.headers.get("accept", "*/*").split(",")]
    for kind in kinds:
        if kind in _MSGPACK:
            return True
        if kind in (NDJSON, "application/json", "application/*", "text/*", "*/*", ""):
            return False
    raise HttpError(406, "NOT_ACCEPTABLE")


def _pack(batches: list[Batch]) -> bytes:
    """Batches that follow upon each other are one. (any thread)"""
    packer, packed, place = msgpack.Packer(autoreset=True), [], 0
    while place < len(batches):
        begin, end = place, batches[place].first
        while place < len(batches) and batches[place].first == end:
            end += batches[place].count
            place += 1
        first = batches[begin].first
        frames = b"".join([batch.frames for batch in batches[begin:place]])
        packed.append(packer.pack([first, end - first, frames]))
    return b"".join(packed)


def _lines(batches: list[Batch]) -> bytes:
    """(any thread)"""
    lines = []
    for batch in batches:
        at = 0
        for offset in range(batch.first, batch.first + batch.count):
            end = at + 4 + int.from_bytes(batch.frames[at : at + 4], "big")
            lines.append(_line(offset, batch.frames[at:end]))
            at = end
    lines.append("")
    return "\n".join(lines).encode()


def _line(offset: int, frame: bytes) -> str:
    told: dict[str, Any] = {
        "offset": offset,
        "timestamp": int.from_bytes(frame[STAMP_AT : STAMP_AT + 8], "big"),
        "id": frame[HEADER_SIZE - ID_SIZE : HEADER_SIZE].decode(),
    }
    body = frame[HEADER_SIZE:]
    try:
        told["body"] = body.decode()
    except UnicodeDecodeError:
        told["body_base64"] = base64.b64encode(body).decode()
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False)
