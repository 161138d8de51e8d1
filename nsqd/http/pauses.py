"""GET /pauses: the paused topics and channels, by whom, since when, until when; the arguments of the pausing routes for that.

    POST /topic/pause?topic=t[&by=NAME][&until=S]            and /channel/pause with the same two arguments
    GET  /pauses

    {"pauses": [{"topic": "t", "channel": "", "by": "ann", "at": S, "until": S}, ...], "count": 1}

Times are s since the epoch. `by`: at most 100 printable characters, else 400 INVALID_ARG_BY. `until`: when nsqd ends the pause
automatically, within a second: in the future, and at most 30 days ahead, else 400 INVALID_ARG_UNTIL; a time that passes while
the node is down ends the pause at the start. Pausing again without these arguments forgets them, and so do unpausing and
deleting.

In the answer `channel` is "" where the topic itself is paused, `by` is "" if no name was given, `at` is 0 if it is not known
(an nsqd of NSQ or an earlier Penstock paused it), and `until` is 0 if there is no end. The pauses are sorted by topic and
channel, and are no more than 500; `count` counts all. Everything is kept over a restart, except for ephemeral
topics and channels.
"""

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.pauses import MOST_BY, Key
from nsqd.core.timing.pause import Pause
from nsqd.core.topic import Topic
from nsqd.http.node import Node
from shared.http.api import json_response
from shared.http.argument import bounded, short_text
from shared.http.errors import HttpError
from shared.http.route import STATS, Route

MOST = 500  # pauses in an answer
BATCH = 200  # topics and channels in one turn: less than a millisecond
FARTHEST = 30 * 24 * 3600  # s from now
BY = short_text("by", MOST_BY, "", is_printable=True)  # "": not known
UNTIL = bounded("until", 10**12, 0, 1)


class PausesRoute:
    """The route that lists all pauses of the node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /pauses", self.pauses, STATS, (), "List everything that is paused"),
        ]

    async def pauses(self, request: Request) -> Response:
        """Answer the first MOST pauses by topic and channel, and the number of all."""
        found: list[tuple[Key, Pause]] = []
        looking, count = _walk(self._node.broker), 0
        while batch := await self._node.bridge.call(lambda: list(islice(looking, BATCH))):
            paused = [one for one in batch if one is not None]
            count += len(paused)
            found = nsmallest(MOST, found + paused, key=_key)
        return json_response({"pauses": [_describe(*one) for one in found], "count": count})


def check_end(until: int, now: int) -> None:
    """Raise HttpError 400 unless a pause may end at `until`. Both are in s since the epoch; 0: no end."""
    if until and not now < until <= now + FARTHEST:
        raise HttpError(400, "INVALID_ARG_UNTIL")


def _walk(broker: Broker) -> Iterator[tuple[Key, Pause] | None]:
    """Yield the pause of every topic and channel, None for one that is not paused.

    The iterator may be advanced only in the trio thread.
    """
    for topic in list(broker.topics.values()):
        if topic.deleted:
            continue
        yield _pause_of(topic)
        for channel in list(topic.channels.values()):
            yield _pause_of(channel) if not channel.deleted else None


def _pause_of(item: Topic | Channel) -> tuple[Key, Pause] | None:
    """Return the pause of a topic or a channel, or of the first shard of it that is paused."""
    paused = [one.paused for one in item.shards if one.paused is not None]
    return (item.key, paused[0]) if paused else None


def _key(entry: tuple[Key, Pause]) -> Key:
    return entry[0]


def _describe(key: Key, pause: Pause) -> dict[str, Any]:
    return {"topic": key[0], "channel": key[1], "by": pause.by, "at": pause.at, "until": pause.until}
