"""Read the messages that a topic of one nsqd retains, over HTTP."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterator, Mapping

import anyio
import httpx

from penstock.protocol.names import is_valid_name
from penstock.sansio.errors import ReadError
from penstock.sansio.records import MAX_ANSWER, Record, records_of
from penstock.sansio.requests import request_context, request_headers
from penstock.sansio.settings import Settings

log = logging.getLogger("penstock.client")

ANSWER_BYTES = 1 << 20  # asked for at once
WAIT_MS = 20_000  # for which a follower lets nsqd wait for the next message
SHORTEST_S = 0.5  # between two requests without messages
RETRY_S = 30.0  # how long an nsqd that does not answer, or that is busy, is asked again
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 5.0
BUSY = 503  # the status while the node's budget of buffers is used up, or it starts


class Reader:
    """The retained messages of `topic` on the nsqd whose HTTP address is `address` (host:port or a URL), in their order.

    It reads from `start` to `end`, each of which is an offset, "earliest", "latest", a time as 2026-11-21T10:00:00Z, or a
    duration ago as "-15m". Without an `end` it ends with the newest message there is when it begins; a reader that follows
    (`follow=True`) continues with those that come. With a `cursor`, it begins where the last `commit` under that name on that
    node says, and at `start` the first time; `owner` and `hold` (as "24h") are the cursor's.

    It is a context manager. Iteration raises ReadError, with the server's code OFFSET_GONE if retention passed the place, and
    OTHER_LOG if the topic was deleted and recreated meanwhile. A node that does not answer is asked again for `retry_s`.
    The auth_secret of `settings` is the bearer token, and those of TLS are for an https address.

    Example::

        async with Reader("127.0.0.1:4151", "orders", cursor="archive") as reader:
            async for record in reader:
                print(record.offset, record.body)
            await reader.commit()
    """

    def __init__(
        self,
        address: str,
        topic: str,
        start: int | str = "earliest",
        end: int | str | None = None,
        *,
        follow: bool = False,
        cursor: str = "",
        owner: str = "",
        hold: str = "",
        retry_s: float = RETRY_S,
        settings: Settings | None = None,
    ) -> None:
        if not is_valid_name(topic) or (cursor and not is_valid_name(cursor)):
            raise ValueError(f"not a legal name: {topic if not is_valid_name(topic) else cursor!r}")
        self.topic = topic
        self.next_offset: int | None = None  # after the last record that was delivered; None: not known yet
        self._base = _base(address)
        self._start, self._end = start, end
        self._follow = follow
        self._cursor, self._owner, self._hold = cursor, owner, hold
        self._retry_s = retry_s
        self._settings = Settings() if settings is None else settings
        self._log = ""

    async def __aenter__(self) -> Reader:
        self._connect()
        return self

    def _connect(self) -> None:
        headers = {"Accept": "application/msgpack", **request_headers(self._settings)}
        timeout = httpx.Timeout(10.0, read=WAIT_MS / 1000 + 20.0)
        verify = request_context(self._settings, [self._base])
        self._client = httpx.AsyncClient(base_url=self._base, timeout=timeout, headers=headers, verify=verify)
        self._pid = os.getpid()

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Yield the records in the order of their offsets. Raises ReadError."""
        at, end = await self._begin()
        while self._follow or at < end:
            wanted: dict[str, str | int] = {"from": at, "max_bytes": ANSWER_BYTES}
            wanted |= {"wait_ms": WAIT_MS} if self._follow else {"to": end}
            asked_at = anyio.current_time()
            headers, answer = await self._ask("GET", "/topic/read", wanted)
            self._log = headers.get("X-Nsq-Log", self._log)  # another one: the node was restored, with what was read
            for record in records_of(answer):
                self.next_offset = record.offset + 1
                yield record
            after = _number(headers, "X-Nsq-Next-Offset")
            if after <= at and not self._follow:
                raise ReadError(f"{self._base}: nothing to read at offset {at}, before the end at {end}")
            if after <= at:  # it has waited for WAIT_MS, or does not wait at all
                await anyio.sleep(max(0.0, asked_at + SHORTEST_S - anyio.current_time()))
            at = self.next_offset = max(at, after)

    async def commit(self, offset: int | None = None) -> None:
        """Move the cursor to `offset`; None: after the last record that was delivered. Raises ReadError, ValueError."""
        if not self._cursor:
            raise ValueError("a reader without a cursor has nothing to commit")
        to = self.next_offset if offset is None else offset
        if to is not None:
            await self._move({"to": to})

    async def _begin(self) -> tuple[int, int]:
        """Return the offsets at which to begin and to end."""
        _, answer = await self._ask("GET", "/topic/offsets", {})
        offsets = _object(answer)
        self._log = str(offsets.get("log", ""))
        known = {"earliest": _integer(offsets, "first"), "latest": _integer(offsets, "next")}
        at = await self._cursor_offset()
        if at is None:
            at = await self._offset(self._start, known)
            if self._cursor:
                await self._move({"to": at})
        self.next_offset = at
        return at, await self._offset("latest" if self._end is None else self._end, known)

    async def _offset(self, where: int | str, known: Mapping[str, int]) -> int:
        """Return the offset of an argument. `known`: those of earliest and latest."""
        if isinstance(where, int) or where.isdecimal():
            return int(where)
        if where in known:
            return known[where]
        _, answer = await self._ask("GET", "/topic/offsets", {"time": where})
        return _integer(_object(answer), "offset")

    async def _cursor_offset(self) -> int | None:
        """Return the offset of the cursor, or None if there is none."""
        if not self._cursor:
            return None
        _, answer = await self._ask("GET", "/topic/cursors", {})
        cursors = _object(answer).get("cursors")
        if not isinstance(cursors, list):
            raise ReadError(f"{self._base}: the answer is not that of /topic/cursors")
        mine = [one for one in cursors if isinstance(one, dict) and one.get("name") == self._cursor]
        return _integer(mine[0], "offset") if mine else None

    async def _move(self, change: dict[str, str | int]) -> None:
        given = {"name": self._cursor, "owner": self._owner, "hold": self._hold}
        await self._ask("POST", "/topic/cursor", {**{name: value for name, value in given.items() if value}, **change})

    # one request

    async def _ask(self, method: str, path: str, arguments: dict[str, str | int]) -> tuple[Mapping[str, str], bytes]:
        """Return the headers and the body of an answer. Raises ReadError."""
        arguments = {"topic": self.topic, **arguments} | ({"log": self._log} if self._log else {})
        until, delay = anyio.current_time() + self._retry_s, FIRST_RETRY_S
        while True:
            try:
                status, headers, answer = await self._send(method, path, arguments)
                if status == 200:
                    return headers, answer
                problem = ReadError(f"{self._base}{path}: {status} {_code(answer)}", _code(answer))
                if status != BUSY:
                    raise problem
            except httpx.HTTPError as error:
                problem = ReadError(f"{self._base}{path}: {error or type(error).__name__}")
            if anyio.current_time() + delay > until:
                raise problem
            log.warning("%s; asking again in %g s", problem, delay)
            await anyio.sleep(delay)
            delay = min(2 * delay, LAST_RETRY_S)

    async def _send(
        self, method: str, path: str, arguments: dict[str, str | int]
    ) -> tuple[int, Mapping[str, str], bytes]:
        if os.getpid() != self._pid:  # the connections of the parent are left to it
            self._connect()
        async with self._client.stream(method, path, params=arguments) as reply:
            if reply.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise ReadError(f"{self._base}: the answer is compressed, although that was not requested")
            content = bytearray()
            async for part in reply.aiter_raw():
                content += part
                if len(content) > MAX_ANSWER:
                    raise ReadError(f"{self._base}: an answer of more than {MAX_ANSWER} bytes")
            return reply.status_code, reply.headers, bytes(content)

    def __repr__(self) -> str:
        return f"<Reader: {self.topic} at {self._base}, next offset {self.next_offset}>"


def _base(address: str) -> str:
    """Return the URL of an address. Raises ValueError."""
    base = (address if "://" in address else f"http://{address}").rstrip("/")
    try:
        url = httpx.URL(base)
    except httpx.InvalidURL as error:
        raise ValueError(f"not an address: {address!r}: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"not an address of HTTP: {address!r}")
    return base


def _object(answer: bytes) -> dict[str, object]:
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ReadError(f"not an nsqd: it answered {answer[:60]!r}")
    return value


def _integer(value: dict[str, object], name: str) -> int:
    number = value.get(name)
    if type(number) is not int or number < 0:
        raise ReadError(f"not an nsqd: {name} is {str(number)[:60]}")
    return number


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ReadError(f"not an nsqd: {name} is {text[:60]!r}")
    return int(text)


def _code(answer: bytes) -> str:
    """Return the server's code from the body of a refusal."""
    try:
        return str(_object(answer).get("message", ""))[:100]
    except ReadError:
        return ""
