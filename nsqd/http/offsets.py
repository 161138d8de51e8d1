"""Places in a topic as arguments name them: an offset, a time, the earliest or the latest there is."""

from dataclasses import dataclass
from datetime import datetime

from nsqd.core.broker import Broker
from nsqd.core.history import Batch, History, Plan, Window
from nsqd.core.topic import Topic
from nsqd.http.arguments import existing_topic
from nsqd.http.node import Node
from shared.http.errors import HttpError
from shared.values import parse_duration

EARLIEST, LATEST = "earliest", "latest"
MOST_DIGITS = 19  # of an offset
STAMP_AT = 8  # of a frame


@dataclass(frozen=True, slots=True)
class Place:
    """What an argument said: one of these."""

    offset: int | None = None
    stamp: int | None = None  # ns since the epoch: the first message from then on
    ago: int | None = None  # ns before now, likewise
    word: str = ""  # EARLIEST or LATEST


def read_place(arguments: dict[str, str], name: str, default: Place) -> Place:
    """`earliest`, `latest`, an offset, a time as 2026-11-21T10:00:00Z, or a duration ago as -15m."""
    text = arguments.get(name)
    if text is None:
        return default
    if text in (EARLIEST, LATEST):
        return Place(word=text)
    if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        return Place(offset=int(text))
    try:
        if text.startswith("-"):
            return Place(ago=parse_duration(text[1:]))
        return Place(stamp=_stamp(text))
    except (ValueError, OverflowError):
        raise HttpError(400, f"INVALID_ARG_{name.upper()}") from None


def _stamp(text: str) -> int:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("it names no time zone")
    whole = int(time.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + time.microsecond * 1000


@dataclass(frozen=True, slots=True)
class Found:
    """Where a place is, as far as the trio thread can tell: in `plan` or else at `offset`."""

    offset: int
    stamp: int = 0
    plan: Plan | None = None

    def settle(self) -> int:
        """The offset. May read from disk. Raises Gone, OSError. (any thread)"""
        return self.offset if self.plan is None else _first_since(self.plan.read(), self.stamp, self.offset)


def find(place: Place, history: History, topic: Topic, window: Window) -> Found:
    """Look for a place. (trio thread)"""
    if place.offset is not None:
        return Found(place.offset)
    if place.word:
        return Found(window.first if place.word == EARLIEST else window.next)
    stamp = place.stamp if place.stamp is not None else topic.broker.wall - (place.ago or 0)
    offset, plan = history.plan_for(topic.number, stamp)
    return Found(offset, stamp, plan)


def _first_since(batches: list[Batch], stamp: int, otherwise: int) -> int:
    for batch in batches:
        at = 0
        for offset in range(batch.first, batch.first + batch.count):
            if int.from_bytes(batch.frames[at + STAMP_AT : at + STAMP_AT + 8], "big") >= stamp:
                return offset
            at += 4 + int.from_bytes(batch.frames[at : at + 4], "big")
    return otherwise


def kept_topic(broker: Broker, name: str) -> Topic:
    """The topic of that name, which is in the log. (trio thread)"""
    topic = existing_topic(broker, name)
    if topic.ephemeral:
        raise HttpError(400, "EPHEMERAL_TOPIC")
    return topic


def look(node: Node, name: str, log: str) -> tuple[Topic, Window]:
    """The topic, and what is there of it. `log`: whose offsets the client knows; "": it does not say. (trio thread)"""
    topic = kept_topic(node.broker, name)
    window = node.history.window(topic.number)
    if log and log != window.log:
        raise HttpError(409, "OTHER_LOG", {"X-Nsq-Log": window.log})
    return topic, window
