"""Read-only listing of a channel's messages in one state, page by page.

Pages follow the order in which the messages are likely to be delivered: the retry queue before the sequence, messages that are
due soon before those due later. The channel continues between two pages, and between two steps that look for the messages of
one page, so a message that moves may appear twice or never, and a page may have fewer messages although there are more.
A *place* is the string with which the caller asks for the next page.
"""

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from heapq import nsmallest
from itertools import chain, islice
from typing import TypeAlias, TypeVar

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.inflight import DeliveryOwner, Run
from nsqd.core.timing.deferred import Deferred
from nsqd.core.timing.duequeue import WALKED_AT_ONCE


class MessageState(Enum):
    """The state of a message in a channel."""

    READY = "ready"
    IN_FLIGHT = "in_flight"
    DEFERRED = "deferred"
    BURIED = "buried"


@dataclass(frozen=True, slots=True)
class ListedMessage:
    """One message on a page of a listing."""

    ordinal: int
    attempts: int  # deliveries it had
    failures: int = 0  # of these, those that failed; for buried messages only
    due: int = 0  # when it will be ready, or time out if it is in flight (monotonic ns); 0: now
    reason: str = ""  # why it is buried
    buried: int = 0  # when it was buried, ns since the epoch
    owner: DeliveryOwner | None = None  # the consumer that has it in flight; None: it is not in flight


Page = tuple[list[ListedMessage], str]  # the messages, and the place after which the next page begins; "": no more
T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]  # work that yields where it may be interrupted, and its result
MOST = 1 << 63  # more than any ordinal


def list_messages(channel: Channel, state: MessageState, after: str, limit: int) -> Steps[Page]:
    """Return up to `limit` messages after the place `after` ("": the beginning). Raise ValueError if it is not a place.

    Each step takes a few ms. The channel may change between two of them.
    """
    if state is MessageState.READY:
        return _ready(channel, after, limit)
    if state is MessageState.BURIED:
        return _buried(channel, after, limit)
    list_in = _in_flight if state is MessageState.IN_FLIGHT else _deferred
    found, following = yield from list_in(channel, after, limit)
    return [one for one in found if one.ordinal >= channel.start], following  # it may have been emptied meanwhile


def _ready(channel: Channel, after: str, limit: int) -> Page:
    """List ready messages. A place is `r` and a number of messages of the retry queue, or an ordinal of the sequence."""
    found: list[ListedMessage] = []
    if not after or after[0] == "r":
        passed = int(after[1:] or 0) if after else 0
        returned = islice(channel.backlog.returned(passed), limit)
        found = [ListedMessage(message.ordinal, message.attempts) for message in returned]
        if len(found) == limit:
            return found, f"r{passed + limit}"
        start = channel.backlog.cursor
    else:
        start = max(channel.backlog.cursor, int(after) + 1)
    room = limit - len(found)
    spans = channel.backlog.ahead(start)
    ordinals = list(islice(chain.from_iterable(range(first, first + count) for first, count in spans), room + 1))
    found += [ListedMessage(ordinal, 0) for ordinal in ordinals[:room]]
    return found, str(ordinals[room - 1]) if len(ordinals) > room else ""


def _buried(channel: Channel, after: str, limit: int) -> Page:
    """List buried messages, the first buried first. A place is an id."""
    letters = channel.buried.after(after.encode() or None, limit + 1)
    found = [ListedMessage(g.ordinal, g.attempts, g.failures, 0, g.reason, g.buried) for _, g in letters[:limit]]
    return found, letters[limit - 1][0].decode() if len(letters) > limit else ""


def _in_flight(channel: Channel, place: str, limit: int) -> Steps[Page]:
    """List messages in flight by ordinal. A place is an ordinal."""
    # (ordinal, index of the run, run); the index decides before runs are compared
    found: list[tuple[int, int, Run]] = []
    after, walked = int(place or -1), 0
    last = MOST  # messages with this ordinal or a higher one are not on the page
    for index, run in enumerate(channel.in_flight.runs()):
        ordinals = run.ordinals()
        if isinstance(ordinals, range):
            ordinals = range(max(ordinals.start, after + 1), min(ordinals.stop, last))[: limit + 1]
        found += [(ordinal, index, run) for ordinal in ordinals if after < ordinal < last]
        walked += 1 + min(len(run), limit if run.is_span else len(run))
        if walked >= WALKED_AT_ONCE:
            found, walked = nsmallest(limit + 1, found), 0
            last = found[limit][0] if len(found) > limit else MOST
            yield
    found = nsmallest(limit + 1, found)
    left = {run: set(run.ordinals()) for run in {run for _, _, run in found}}  # some may have ended meanwhile
    page = [
        ListedMessage(ordinal, run.attempts, due=run.deadline, owner=run.owner)
        for ordinal, _, run in found[:limit]
        if ordinal in left[run]
    ]
    return page, str(found[limit - 1][0]) if len(found) > limit else ""


def _deferred(channel: Channel, after: str, limit: int) -> Steps[Page]:
    """List requeued messages, then those published with a delay. A place is `c:` or `t:` and a place of Deferred.page."""
    part, _, place = after.partition(":")
    found: list[ListedMessage] = []
    if part not in ("", "c", "t"):
        raise ValueError("no such place")
    if part != "t":
        found, place = yield from _page(channel.deferred, place, limit, 0, MOST)
        if place:
            return found, f"c:{place}"
        if len(found) == limit:
            return found, "t:" if channel.delayed else ""
    waiting, place = yield from _page(
        channel.offsets.delay_queue.waiting, place, limit - len(found), channel.start, channel.offsets.distributed
    )
    return found + waiting, f"t:{place}" if place else ""


def _page(deferred: Deferred, place: str, limit: int, first: int, end: int) -> Steps[Page]:
    entries, following = yield from deferred.page(place, limit, first, end)
    return [ListedMessage(ordinal, attempts, due=due) for ordinal, due, attempts in entries], following
