"""Find places in a topic as arguments name them: an offset, a time, or the earliest or the latest message."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import TypeVar

from nsqd.core.message.frame import STAMP
from nsqd.core.retention.history import MessageBatch, MessagesGone, OffsetRange, Plan
from nsqd.http.logs import ReplicaReader, TopicInLog, find_topic
from nsqd.http.node import Node
from shared.http.argument import Argument, number
from shared.http.errors import HttpError
from shared.log import log
from shared.values import parse_duration

P = TypeVar("P")
T = TypeVar("T")
TRIES = 5
EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class OffsetArgument:
    """A place in a topic, as an argument names it: one of the fields is set."""

    offset: int | None = None
    stamp: int | None = None  # ns since the epoch: the place of the first message published then or later
    ago: int | None = None  # ns before now: the place of the first message published since then
    word: str = ""  # EARLIEST or LATEST


def place(name: str, default: OffsetArgument | None = None) -> Argument:
    """Declare `earliest`, `latest`, an offset, a time as 2026-11-21T10:00:00Z, or a duration ago as -15m."""
    return Argument(name, _read_place, default, "a place")


def _read_place(text: str) -> OffsetArgument:
    if text in (EARLIEST, LATEST):
        return OffsetArgument(word=text)
    if text.isascii() and text.isdigit():
        return OffsetArgument(offset=number(text))
    if text.startswith("-"):
        return OffsetArgument(ago=parse_duration(text[1:]))
    return OffsetArgument(stamp=_stamp(text))


def _stamp(text: str) -> int:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("it has no time zone")
    whole = int(time.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + time.microsecond * 1000


@dataclass(frozen=True, slots=True)
class PendingOffset:
    """A place as far as the trio thread knows it: in `plan`, or else at `offset`."""

    offset: int
    stamp: int = 0
    plan: Plan | None = None

    def resolve(self) -> int:
        """Return the offset; this may read from disk. Runs in any thread. Raises MessagesGone, OSError."""
        return self.offset if self.plan is None else _first_since(self.plan.read()[0], self.stamp, self.offset)


class OffsetFinder:
    """Finds places in topics, and reads from disk."""

    def __init__(self, node: Node, replicas: ReplicaReader) -> None:
        self._node = node
        self._replicas = replicas

    async def offset(self, name: str, log_id: str, argument: OffsetArgument) -> int:
        """Return the offset of a place in a topic. For `log_id` see nsqd.http.logs. Raises HttpError."""

        async def plan() -> PendingOffset:
            replica = await self._replicas.open(log_id)

            def work() -> PendingOffset:
                found = find_topic(self._node, name, log_id, 0, replica)
                return find_offset(argument, found, self._node.broker.wall)

            return await self._node.bridge.call(work)

        if argument.offset is not None:
            return argument.offset
        return await self.from_disk(plan, PendingOffset.resolve)

    @staticmethod
    async def from_disk(plan: Callable[[], Awaitable[P]], read: Callable[[P], T]) -> T:
        """Read in a thread what `plan` returns; plan again if files were removed meanwhile. Raises HttpError 503."""
        for _ in range(TRIES):
            try:
                return await asyncio.to_thread(read, await plan())
            except MessagesGone:
                continue
            except OSError as error:
                log.error("HTTP: cannot read messages back from the log: %s", error)
                break
        raise HttpError(503, "CANNOT_READ")


def find_offset(argument: OffsetArgument, found: TopicInLog, wall: int) -> PendingOffset:
    """Look for a place. `wall` is the present time in ns since the epoch. Runs in the trio thread."""
    if argument.offset is not None:
        return PendingOffset(argument.offset)
    if argument.word:
        return PendingOffset(found.window.first if argument.word == EARLIEST else found.window.next)
    stamp = argument.stamp if argument.stamp is not None else wall - (argument.ago or 0)
    offset, plan = found.history.plan_for(found.number, stamp)
    return PendingOffset(offset, stamp, plan)


def _first_since(batches: list[MessageBatch], stamp: int, otherwise: int) -> int:
    messages = chain.from_iterable(batch.messages() for batch in batches)
    return next((offset for offset, frame in messages if int.from_bytes(frame[STAMP], "big") >= stamp), otherwise)


def check_offset(start: int, window: OffsetRange) -> None:
    """Raise HttpError 410 or 416 if nothing can be read from `start` on."""
    headers = {"X-Nsq-First-Offset": str(window.first), "X-Nsq-Next-Offset": str(window.next)}
    if start < window.first:
        raise HttpError(410, "OFFSET_GONE", headers)
    if start > window.next:
        raise HttpError(416, "OFFSET_IN_FUTURE", headers)
