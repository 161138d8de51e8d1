"""Follow topics on all of their nodes: where they begin, where they end now, and which spans lie between. No Spark.

The positions of a reader are its own: it passes them in and gets new ones. A follower remembers only what nodes have answered.
An end never goes beyond what a node has reported as durable, so a span that is read again has the same messages.

See docs/contributing/design/spark.md#offsets.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import nlargest

from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.frames import batches, schema_of
from penstock.spark.holders import Holders, Lost, find_lost
from penstock.spark.nodes import NoAnswer, Nodes, move_cursors, range_of
from penstock.spark.offsets import (
    OWN,
    PROMOTED,
    LogPosition,
    NodeTopic,
    Span,
    TopicRange,
    ends,
    firsts_of,
    is_behind,
    moved,
    old_log,
    older_logs,
    packed,
    spans,
)
from penstock.spark.options import EARLIEST, LATEST, OptionError, ReadOptions, Start
from penstock.spark.reading import lost

IDLE = 1.0  # s between two rounds of requests while nothing is new
REMEMBERED = 5.0  # s after which topics and nodes are looked up again
MOST_ASKED = 32  # places that are asked for the time of their oldest message, before a batch
MOST_TASKS = 64  # of a batch, unless minPartitions asks for more
FEW = 8  # topics that are asked for one by one; for more, each node lists all of its topics in one answer
Positions = dict[NodeTopic, LogPosition]
Ranges = dict[NodeTopic, TopicRange]


@dataclass(slots=True)
class Follower:
    """The topics that the options name, as their nodes have them. It belongs to one thread."""

    options: ReadOptions
    asker: Asker
    ranges: Ranges = field(default_factory=dict)  # the last answers of the nodes
    left_out: set[str] = field(default_factory=set)  # topics that are not followed any longer
    looked: float = 0.0  # monotonic s when topics and nodes were last looked up
    _addresses: list[str] = field(default_factory=list)  # of the nodes, as they were then
    # places of which a node that does not answer may have an old log
    _unsure: set[NodeTopic] = field(default_factory=set)
    _deleted: set[NodeTopic] = field(default_factory=set)  # places whose topic was deleted on their node
    _waited: dict[NodeTopic, float] = field(default_factory=dict)  # monotonic s until which an old log is waited for

    @property
    def nodes(self) -> Nodes:
        """Return the nodes that the options name."""
        return Nodes(self.options.nsqd, self.options.lookupd)

    @property
    def _lists(self) -> bool:
        """Return True if nodes are asked for all of their topics at once."""
        return bool(self.options.pattern) or len(self.options.topics) > FEW

    # ---- the start

    def ask_all(self, *, may_be_deleted: bool = False, may_be_lost: bool = False) -> None:
        """Ask for all topics on all nodes; every node must answer, and there must be something to read.

        `may_be_deleted`: some of the named topics may be missing; `may_be_lost`: topics may be in logs of lost nodes alone.
        Raises NoAnswer, OptionError, Refused, Unreachable.
        """
        options = self.options
        if self._lists:
            found, _, failures = self._matching()
        else:
            found, failures = self.nodes.ranges_of(self.asker, options.topics)
        if failures:
            raise NoAnswer("; ".join(failures))
        if options.pattern:
            for place in [place for place, one in found.items() if not one.retained]:
                print(f"nsq: {place} retains no messages and is skipped", file=sys.stderr, flush=True)
                del found[place]
        known = {place.topic for place in [*found, *(self.lost().logs if may_be_lost else ())]}
        if options.pattern and not known:
            raise OptionError(f"option topicPattern={options.pattern!r} matches no topic that retains messages")
        unknown = [topic for topic in options.topics if topic not in known]
        if unknown and known and may_be_deleted:
            lost(NodeTopic(unknown[0], ""), f"no node has the topic {unknown[0]!r}", options)
        elif unknown:
            raise OptionError(f"no node has the topic {unknown[0]!r}")
        if not options.pattern:
            self._check_retention(found)
        self.ranges = found

    def _check_retention(self, ranges: Ranges) -> None:
        for place, one in ranges.items():
            retained = one.retained
            if not self._lists:
                config = self.asker.json(one.address, "/topic/config", {"topic": place.topic})
                retained = config["retention"] != "0s" or config["retention_bytes"]
            if not retained:
                url = f"http://{one.address}/topic/config?topic={place.topic}&retention=24h"
                raise OptionError(f"topic {place.topic!r} retains no messages on {one.address}: POST {url}")

    def resolve(self, start: Start, default: str) -> Positions:
        """Turn the start or end that the user gave into offsets; `default` is the word to use if there is none.

        Raises OptionError, DataLoss, Refused, Unreachable.
        """
        strangers = start.offsets.keys() - {str(place) for place in self.ranges}
        if strangers:
            known = ", ".join(sorted(map(str, self.ranges)))
            raise OptionError(f"offsets name {sorted(strangers)[0]!r}, which is not there; there are {known}")
        return {place: self._resolved(place, one, start, default) for place, one in self.ranges.items()}

    def _resolved(self, place: NodeTopic, one: TopicRange, start: Start, default: str) -> LogPosition:
        offset = {EARLIEST: one.first, LATEST: one.next}[start.word or default]
        if start.time:
            arguments = {"topic": place.topic, "time": start.time, "log": one.log}
            offset = int(self.asker.json(one.address, "/topic/offsets", arguments)["offset"])
        offset = start.offsets.get(str(place), offset)
        if not one.first <= offset <= one.next:
            what = f"offset {offset} of {place}: there are {one.first} to {one.next}"
            if offset > one.next:
                raise OptionError(what)
            lost(place, what, self.options)
            offset = one.first
        return LogPosition(one.log, offset)

    # ---- a batch

    def end_after(self, begin: Positions, target: Positions | None = None) -> Positions:
        """Return the end of the messages after `begin`; `target`: the end that the nodes had earlier.

        A node that does not answer keeps the position it has, and so does a place while the rest of an old log is read first. A
        topic that is deleted is left out. Raises DataLoss, unless the user chose to continue.
        """
        if target is None:
            end = ends(begin, self._news(begin))
        else:
            old = self._old_logs(begin, self.ranges)
            self._note_deleted(begin, target.keys() | old.keys(), None)
            end = {**begin, **target, **ends({}, old)}
        return {
            place: self._same_log(place, begin.get(place), at)
            for place, at in end.items()
            if place not in self._deleted and place.topic not in self.left_out
        }

    def plan(self, begin: Positions, end: Positions) -> list[tuple[Span, ...]]:
        """Return the spans between two positions, packed into tasks of about the same size."""
        least = self.options.min_partitions
        parts = spans(moved(begin, end, self.ranges), end, firsts_of(self.ranges), least)
        known = {place: one.address for place, one in self.ranges.items()}
        parts = [replace(part, address=known.get(part.place, "")) for part in parts]
        return packed(parts, max(least, MOST_TASKS))

    def learn(self, begin: Positions, end: Positions) -> None:
        """Ask the nodes if a batch that is planned after a crash has places whose first offset is not known."""
        if not self.ranges and any(place not in begin or begin[place].log != at.log for place, at in end.items()):
            self._addresses = self.nodes.addresses(self.asker)
            self.ranges, _ = self._look()

    def behind(self, begin: Mapping[NodeTopic, LogPosition]) -> int:
        """Return the number of messages that the nodes have, as far as is known, after these positions."""
        return sum(max(0, one.next - _first(begin.get(place), one)) for place, one in self.ranges.items())

    def oldest_unread(self, begin: Positions, end: Positions) -> datetime | None:
        """Return the time of the oldest message between two positions; None: there is none, or it is not known.

        Asks for one message of each of the MOST_ASKED places that have the most.
        """
        asked = {place: at.next for place, at in end.items() if place in self.ranges and at != begin.get(place)}
        waiting = {place: at - _first(begin.get(place), self.ranges[place]) for place, at in asked.items()}
        most = nlargest(MOST_ASKED, (place for place, count in waiting.items() if count > 0), waiting.__getitem__)
        return min((at for place in most if (at := self._published(place, begin.get(place))) is not None), default=None)

    def _published(self, place: NodeTopic, at: LogPosition | None) -> datetime | None:
        """Return the time of the first message of a place after a position; None: its node does not answer."""
        one = self.ranges[place]
        where = {"topic": place.topic, "from": str(_first(at, one)), "limit": "1", "log": one.log}
        with suppress(Refused, Unreachable, ValueError):
            content, _ = self.asker.get(one.address, "/topic/read", where, "application/msgpack")
            for batch in batches(content, *place, one.log, schema_of("timestamp")):
                found: datetime = batch.column(0)[0].as_py()
                return found
        return None

    def message_size(self, places: Container[NodeTopic]) -> int:
        """Return the average size of a message in bytes, at least 1, of the places that have messages."""
        count = size = 0
        for place, one in self.ranges.items():
            if place in places and one.next > one.first:
                answer = self.asker.json(one.address, "/topic/offsets", {"topic": place.topic, "log": one.log})
                count, size = count + one.next - one.first, size + int(answer["bytes"])
        return max(1, size // count) if count else 1

    def leave_out(self, topic: str) -> None:
        """Follow a topic no longer, and forget its ranges on all nodes."""
        self.left_out.add(topic)
        self.ranges = {place: one for place, one in self.ranges.items() if place.topic != topic}

    def move_cursors(self, to: Mapping[NodeTopic, LogPosition]) -> list[str]:
        """Move the cursor that the options name, and return the reasons for which some places' were not moved."""
        if not self.options.cursor:
            return []
        return move_cursors(self.asker, self.ranges, to, self.options.cursor, self.options.hold)

    # ---- the nodes' news

    def lost(self) -> Lost:
        """Return the nodes that were lost, and the topics that are followed in their logs. Raises NoAnswer."""
        left_out, is_wanted = self.left_out, self._filter()
        addresses = self.nodes.addresses(self.asker)
        return find_lost(self.asker, addresses, lambda topic: topic not in left_out and is_wanted(topic))

    def _news(self, begin: Positions) -> Ranges:
        """Ask the nodes for their offsets; a node that does not answer is left out and keeps the position it has.

        The rest of a log that its node no longer serves comes before the messages that the node has now.
        """
        looks = not self.ranges or time.monotonic() - self.looked >= REMEMBERED
        if looks:
            self.looked = time.monotonic()
            self._addresses = self.nodes.addresses(self.asker)
        if looks or self._lists:
            found, answered = self._look()
        else:
            found, answered = self._ask_known(), None
        if looks:
            found |= self._old_logs(begin, found)
            self._note_deleted(begin, found, answered)
        self.ranges |= found
        return found

    def _look(self) -> tuple[Ranges, dict[str, str] | None]:
        """Return the ranges of all topics that are followed, and the nodes that have listed all their topics.

        None instead of the nodes: the topics are asked for one by one.
        """
        answered: dict[str, str] | None = None
        if self._lists:
            found, answered, _ = self._matching()
        else:
            found, _ = self.nodes.ranges_of(self.asker, self.options.topics)
        known = self.ranges.keys()
        found = {
            place: one
            for place, one in found.items()
            if place.topic not in self.left_out and (one.retained or place in known)
        }
        return found, answered

    def _matching(self) -> tuple[Ranges, dict[str, str], list[str]]:
        """Return the ranges of all topics that the options name, the address of each node by its number, and failures."""
        return self.nodes.matching(self.asker, self._addresses or self.nodes.addresses(self.asker), self._filter())

    def _filter(self) -> Callable[[str], object]:
        """Return the condition for the names of topics."""
        pattern, names = self.options.pattern, frozenset(self.options.topics)
        return re.compile(pattern).fullmatch if pattern else names.__contains__

    def _ask_known(self) -> Ranges:
        found = {}
        for place, one in self.ranges.items():
            other = {} if one.kind == OWN else {"log": one.log}
            try:
                answer = self.asker.json(one.address, "/topic/offsets", {"topic": place.topic, **other})
            except (Unreachable, Refused):
                continue
            if answer["log"] == one.log if other else str(answer["node"]) == place.node:
                found[place] = range_of(one.address, answer)
        return found

    def _note_deleted(self, begin: Positions, found: Container[NodeTopic], answered: Mapping[str, str] | None) -> None:
        """Note the places that are not `found` because their node answers, and no longer has the topic.

        `answered`: the addresses of the nodes that have listed all their topics; None: each node is asked. Raises DataLoss if
        it is not known that all messages were read, unless the user chose to continue.
        """
        self._deleted &= begin.keys()
        for place, at in begin.items():
            if place in found:
                self._deleted.discard(place)
                continue
            if place in self._deleted or place.topic in self.left_out:
                continue
            address = self.nodes.without(self.asker, place) if answered is None else answered.get(place.node, "")
            if not address:
                continue
            if place in self._unsure and self._may_wait(place):
                continue
            known, what = self.ranges.pop(place, None), f"topic {place.topic!r} was deleted on node {place.node}"
            if known is not None and (known.log, known.next) == at:
                print(f"nsq: {what}, at {address}; all its messages were read", file=sys.stderr, flush=True)
            else:
                lost(place, f"{what}, at {address}; it was read up to offset {at.next}", self.options)
            self._deleted.add(place)

    def _old_logs(self, begin: Positions, ranges: Ranges) -> Ranges:
        """Return the unread parts of logs that other nodes serve now, one log of each place at a time.

        A place with a gap before the node's new log, which a node that does not answer may fill, keeps its position for
        nodeWaitMs.
        """
        found, holders_of_logs = {}, Holders(self.asker, self.nodes)
        self._unsure.clear()
        for place, at in begin.items():
            one = ranges.get(place)
            if place.topic in self.left_out or not is_behind(at, one):
                self._waited.pop(place, None)
                continue
            left, failures = None, list[str]()
            for log in older_logs(at, one):
                holders, silent = holders_of_logs.of(place.topic, log)
                left, failures = old_log(LogPosition(log, at.next), one, holders), failures + silent
                if left is not None:
                    break
            if left is None and one is None:
                left = holders_of_logs.later(place, at)
            if left is not None:
                found[place] = left
                self._waited.pop(place, None)
            elif one is None and failures:
                self._unsure.add(place)
            elif one is not None and one.continues(at) and failures and self._may_wait(place):
                found[place] = TopicRange(one.address, at.log, at.next, at.next, (), PROMOTED)
        return found

    def _may_wait(self, place: NodeTopic) -> bool:
        """Return True if a node that may have what is left of an old log has been waited for less than nodeWaitMs."""
        now = time.monotonic()
        return now < self._waited.setdefault(place, now + self.options.node_wait)

    def _same_log(self, place: NodeTopic, before: LogPosition | None, at: LogPosition) -> LogPosition:
        """Return `at`, and report loss if the node came back with another log, or with fewer messages than it had.

        Raises DataLoss, unless the user chose to continue.
        """
        if before is None or before == at:
            return at
        one = self.ranges.get(place)
        if before.log != at.log and not (one is not None and one.continues(before)):
            what = f"{place} is in log {at.log} now, and was in {before.log} up to offset {before.next}"
            lost(place, what, self.options)
        elif at.next < before.next:
            lost(place, f"{place} ends at offset {at.next}, and was read up to {before.next}", self.options)
        return at


def _first(at: LogPosition | None, one: TopicRange) -> int:
    """Return the offset of the first message of a log after a position."""
    return at.next if at is not None and at.log == one.log else one.first
