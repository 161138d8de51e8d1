"""Read a span of messages from its node; the result is a pure function of the span. Runs on executors.

If the node does not answer or has another log, the messages are read from the new leader of its log, or a node with a replica
(holders.py). If none has them, the read waits for the nodes that do not answer. Messages that are lost are an error or, with
failOnDataLoss=false, reported and skipped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pyarrow as pa

from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.frames import batches
from penstock.spark.holders import Holders
from penstock.spark.nodes import NoAnswer, Nodes
from penstock.spark.offsets import LogPosition, NodeTopic, Span, holder_for
from penstock.spark.options import ReadOptions

_AGAIN = 0.5  # s between two tries at a node that does not answer
_NOTHING = "it has nothing there"
_DELETED = "TOPIC_NOT_FOUND"
# responses of a node that does not, or no longer, have the messages
_LOST = ("OFFSET_GONE", "OTHER_LOG", "OFFSET_IN_FUTURE", _DELETED, _NOTHING)
_BUSY = 503  # the status of a node that starts, or cannot answer now


class DataLoss(Exception):
    """Messages of `topic` that were asked for are gone; `what` says which."""

    def __init__(self, what: str, topic: str) -> None:
        super().__init__(f"{what}; set failOnDataLoss=false to skip them")
        self.what, self.topic = what, topic


def read(asker: Asker, span: Span, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield all messages of the span in order, with the columns of `schema`.

    Raises DataLoss, Unreachable and, for other errors of a node, Refused.
    """
    at, address, deadline = span.first, span.address, 0.0
    tried: set[str] = set()  # addresses that have failed since the last message
    while at < span.end:
        try:
            address = address or _address(asker, span, options)
            content, headers = asker.get(address, "/topic/read", _arguments(span, at, options), "application/msgpack")
            after = min(int(headers["x-nsq-next-offset"]), span.end)
            if after <= at:
                raise Refused(address, "/topic/read", 200, _NOTHING)
        except (Unreachable, NoAnswer, Refused) as failed:
            if isinstance(failed, Refused):
                if failed.message not in _LOST and failed.status != _BUSY:
                    raise
                address = failed.address
            tried.add(address)
            other, must_wait = _elsewhere(asker, span, at, options)
            deadline = deadline or time.monotonic() + options.node_wait
            if other and other not in tried:
                address = other
            elif (must_wait or _is_away(failed)) and time.monotonic() < deadline:
                time.sleep(_AGAIN)
                tried.clear()
                address = ""
            elif isinstance(failed, Refused) and failed.status != _BUSY:
                at = _after_loss(asker, address, span, at, options, failed)
            else:
                raise _not_answered(span, at, options, failed) from None
            continue
        deadline = 0.0
        tried.clear()
        missing = int(headers.get("x-nsq-missing", 0))
        if missing:
            lost(span.place, f"{missing} messages of {span.place} before {after} are corrupt on disk", options)
        yield from batches(content, span.place.topic, span.place.node, span.log, schema)
        at = after


def _is_away(failed: Exception) -> bool:
    """Return True if a node may answer later."""
    return not isinstance(failed, Refused) or failed.status == _BUSY


def _not_answered(span: Span, at: int, options: ReadOptions, failed: Exception) -> Unreachable:
    why = f"node {span.place.node} did not answer within nodeWaitMs={int(options.node_wait * 1000)}"
    return Unreachable(f"{why}, for offsets {at} to {span.end} of {span.place.topic}: {failed}")


def _elsewhere(asker: Asker, span: Span, at: int, options: ReadOptions) -> tuple[str, bool]:
    """Return the address of a node that has the message at an offset, "" if none has, and whether one may have it later."""
    holders, failures = Holders(asker, Nodes(options.nsqd, options.lookupd)).of(span.place.topic, span.log)
    found = holder_for(LogPosition(span.log, at), holders)
    return found.address if found is not None else "", bool(failures)


def _arguments(span: Span, at: int, options: ReadOptions) -> dict[str, str]:
    return {
        "topic": span.place.topic,
        "from": str(at),
        "to": str(span.end),
        "limit": str(min(span.end - at, 1_000_000)),
        "max_bytes": str(options.fetch),
        "log": span.log,
    }


def _address(asker: Asker, span: Span, options: ReadOptions) -> str:
    """Return the present address of the span's node. Raises Unreachable, NoAnswer, and Refused if it has not the topic."""
    nodes = Nodes(options.nsqd, options.lookupd)
    ranges, failures = nodes.ranges_of(asker, [span.place.topic])
    found = ranges.get(span.place)
    if found is not None:
        return found.address
    without = nodes.without(asker, span.place)
    if without:
        raise Refused(without, "/topic/offsets", 404, _DELETED)
    raise Unreachable("; ".join(failures) or f"no node has the node id {span.place.node}")


def _after_loss(asker: Asker, address: str, span: Span, at: int, options: ReadOptions, refused: Refused) -> int:
    """Return the offset at which to continue: no node has the messages at `at`. Raises DataLoss, Refused, Unreachable."""
    place = span.place
    if refused.message == "OFFSET_GONE":
        answer = asker.json(address, "/topic/offsets", {"topic": place.topic, "log": span.log})
        first = min(int(answer["first"]), span.end)
        if first > at:
            lost(place, f"retention has passed offsets {at} to {first} of {place}, on {address}", options)
            return first
    why = f"topic {place.topic!r} was deleted on node {place.node}: " if refused.message == _DELETED else ""
    lost(place, f"{why}offsets {at} to {span.end} of {place} are gone from {address}: {refused.message}", options)
    return span.end


def lost(place: NodeTopic, what: str, options: ReadOptions) -> None:
    """Report lost messages of a place: raise DataLoss, unless the user chose to continue."""
    if options.fails_on_loss:
        raise DataLoss(what, place.topic)
    print(f"nsq: {what}: skipped, because of failOnDataLoss=false", file=sys.stderr, flush=True)
