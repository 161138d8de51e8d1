"""Reads a span of messages from its node; the result is a pure function of the span. Runs on executors.

If the node does not answer, the read waits for it. Messages that the node has lost are an error or, with
failOnDataLoss=false, reported and skipped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pyarrow as pa

from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.frames import batches
from penstock.spark.nodes import Nobody, Nodes
from penstock.spark.offsets import NodeTopic, Span, TopicRange
from penstock.spark.options import ReadOptions

_AGAIN = 0.5  # s between two tries at a node that does not answer


class DataLoss(Exception):
    """Messages that were asked for are gone."""


def read(span: Span, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield all messages of the span in order. Raises DataLoss, Unreachable and, for other errors of a node, Refused."""
    at, address, deadline = span.first, span.address, 0.0
    with Asker() as asker:
        while at < span.end:
            try:
                if not address:
                    address = _address(asker, span, options)
                content, headers = asker.get(
                    address, "/topic/read", _arguments(span, at, options), "application/msgpack"
                )
            except (Unreachable, Nobody) as gone:
                deadline = deadline or time.monotonic() + options.node_wait
                if time.monotonic() >= deadline:
                    told = f"node {span.place.node} did not answer within nodeWaitMs={int(options.node_wait * 1000)}"
                    raise Unreachable(f"{told}, for offsets {at} to {span.end} of {span.place.topic}: {gone}") from None
                time.sleep(_AGAIN)
                address = ""
                continue
            except Refused as refused:
                at = _after_loss(asker, address, span, at, options, refused)
                continue
            deadline = 0.0
            after = min(int(headers["x-nsq-next-offset"]), span.end)
            missing = int(headers.get("x-nsq-missing", 0))
            if missing:
                lost(f"{missing} messages of {span.place} before {after} are damaged on disk", options)
            yield from batches(content, span.place.topic, span.place.node, span.log, options.headers)
            if after <= at:
                raise DataLoss(
                    f"{address} has nothing at {at} of {span.place}, and said before that it had up to {span.end}"
                )
            at = after


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
    """Return the present address of the span's node. Raises Unreachable, Nobody."""
    ranges, failures = Nodes(options.nsqd, options.lookupd).ranges_of(asker, [span.place.topic])
    found = ranges.get(span.place)
    if found is None:
        raise Unreachable("; ".join(failures) or f"no node has the node id {span.place.node}")
    return found.address


def _after_loss(asker: Asker, address: str, span: Span, at: int, options: ReadOptions, refused: Refused) -> int:
    """Return the offset at which to go on. Raises DataLoss; raises `refused` itself if it reports another error."""
    if refused.message not in ("OFFSET_GONE", "OTHER_LOG", "OFFSET_IN_FUTURE", "TOPIC_NOT_FOUND"):
        raise refused
    place = span.place
    if refused.message == "OFFSET_GONE":
        told = asker.json(address, "/topic/offsets", {"topic": place.topic, "log": span.log})
        first = min(int(told["first"]), span.end)
        if first > at:
            lost(f"retention has passed offsets {at} to {first} of {place}, on {address}", options)
            return first
    lost(f"offsets {at} to {span.end} of {place} are gone from {address}: {refused.message}", options)
    return span.end


def lost(what: str, options: ReadOptions) -> None:
    """Report lost messages: raise DataLoss, unless the user chose to go on."""
    if options.fails_on_loss:
        raise DataLoss(f"{what}; set failOnDataLoss=false to skip them")
    print(f"nsq: {what}: skipped, because of failOnDataLoss=false", file=sys.stderr, flush=True)


def firsts_of(ranges: dict[NodeTopic, TopicRange]) -> dict[NodeTopic, int]:
    """Return the offset of the earliest message of each place."""
    return {place: one.first for place, one in ranges.items()}
