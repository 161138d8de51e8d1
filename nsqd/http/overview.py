"""Answer the statistics of all topics in columns, of some in rows, and the ages of messages: for tools that watch many nodes.

    GET /topics/figures[?columns=depth,messages][&drain=1]

    {"totals": {"topics","channels","depth","in_flight","deferred","buried","clients","messages"}, "oldest": NS, "health": "OK",
     "process": {"start_time": S, "cpu_ms": MS, "memory": BYTES},
     "paused": ["topic" or "topic/channel", ...], "paused_count": N, "idle": {"count": N, "names": ["topic/channel", ...]},
     "names": [...], "columns": {"depth": [...], ...}}

* `process`: the start of the node (s since the epoch), its CPU time since then, and its resident memory.
* `idle`: channels with messages ready and no client. Of these and of what is paused, the first 100 by name are listed.
* `oldest`: the smallest time in /topic/ages of a topic, and in the totals that of any topic.
* `names`, all topics by name, and `columns`, parallel to them, are present only if `columns` is given, which may be empty; 400
  INVALID_ARG_COLUMNS for one that is none of depth, in_flight, deferred, buried, messages, channels, clients, requeued,
  timed_out, held (depth, in flight and deferred together), oldest and jobs. A topic's statistics are those of itself and of
  all its channels, except for `jobs`; /tubes has more about tubes, also those whose names no topic can have.
* `drain` is a column of its own: the seconds until the slowest part of the topic is empty, at the rate of the last minutes; 0:
  nothing waits, -1: not known, -2: it gets no shorter, -3: it grows.

    GET /topics/rows?topic=a&topic=b...      {"topics": [{"topic_name", "paused", "depth", ...}, ...]}

At most 200 topics, in the order asked for, else 400 TOO_MANY_TOPICS; topics that do not exist are left out. Each has all
columns, `paused` (the topic is paused, or one of its channels), `topic_paused` (the topic itself is), `paused_channels` (how
many of its channels are), and `backlogs`: the slowest parts of the topic in which messages wait or did until lately, at most
10: {"channel": "c", "depth": 5, "change": -3, "seconds": 300}. `change` is by how many more messages it holds, without buried
ones, than `seconds` before, up to 300; null: not known. Messages that came with a promoted log are no change. Channel "" has
the messages of the topic that no channel was given.

    GET /topic/ages?topic=t                  {"topic": NS, "channels": {"c": NS, ...}, "buried": {"c": 3, ...},
                                              "changes": {"c": [-3, 300], ...}}

The ages are when the message that is next to be delivered was published, ns since the epoch; 0: nothing is ready. `buried`
counts the messages that are buried, in channels that have any; `changes`, of all channels of which it is known, the `change`
and `seconds` of /topics/rows. The age of a message that is on disk only is an estimate. 404 TOPIC_NOT_FOUND.
"""

# The trio thread looks at a limited number of topics and channels in a row, so that ten thousand stall no turn; the HTTP thread
# does the rest. `oldest` reads the index for each channel that has something ready, some 2 us.

import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.observation.series import Subject
from nsqd.core.observation.sums import (
    channel_sums,
    is_paused,
    oldest_of_channel,
    oldest_of_topic,
    topic_depth,
)
from nsqd.core.topic import Topic
from nsqd.http.arguments import TOPIC, existing_topic
from nsqd.http.node import Node
from shared.auth.verbs import Verb
from shared.http.api import json_response, query_all
from shared.http.argument import Argument, any_text
from shared.http.errors import HttpError
from shared.http.route import STATS, Route, on_topic
from shared.process.memory import resident_bytes

BATCH = 1000  # topics and channels in one turn: about a millisecond
MOST_NAMES = 100  # names listed of what is paused, and of what is idle
MOST_ROWS = 200
MOST_BACKLOGS = 10  # parts of a topic
UNKNOWN, STALLED, GROWING = -1, -2, -3  # in place of the seconds until something is empty
COLUMNS = (
    "depth",
    "in_flight",
    "deferred",
    "buried",
    "messages",
    "channels",
    "clients",
    "requeued",
    "timed_out",
    "held",  # depth, in flight and deferred together
    "oldest",
    "jobs",  # in any state, of the tube that clients of beanstalkd see under the topic's name
)
TOTALS = ("channels", "depth", "in_flight", "deferred", "buried", "clients", "messages")


class TopicBacklog(NamedTuple):
    """A part of a topic in which messages wait, or did until lately: a channel, or "", what no channel was given."""

    channel: str
    depth: int  # messages that wait
    change: tuple[int, int] | None  # see Series.held_change

    @property
    def drain(self) -> int:
        """Return the seconds until nothing waits, rounded up, or UNKNOWN, STALLED or GROWING."""
        if not self.depth:
            return 0
        if self.change is None:
            return UNKNOWN
        gained, seconds = self.change
        return -(self.depth * seconds // gained) if gained < 0 else GROWING if gained else STALLED

    def slowness(self) -> tuple[int, int, int]:
        """Return a sort key: growing backlogs, and then those that take longest, are the largest; empty ones the smallest."""
        drain = self.drain
        kind = {0: -1, UNKNOWN: 0, STALLED: 2, GROWING: 3}.get(drain, 1)
        return kind, drain if kind == 1 else 0, self.depth

    def as_dict(self) -> dict[str, Any]:
        """Return the object that /topics/rows has for a channel."""
        change, seconds = self.change or (None, 0)
        return {"channel": self.channel, "depth": self.depth, "change": change, "seconds": seconds}


class Overview:
    """The three routes that give an overview of topics."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /topics/figures", self.figures, STATS,
                  (_COLUMNS, Argument("drain", lambda text: text not in ("", "0"), False)),
                  "Return the statistics of all topics, in columns"),
            Route("GET /topics/rows", self.rows, STATS, (_TOPICS,), "Return the statistics of some topics"),
            Route("GET /topic/ages", self.ages, on_topic(Verb.STATS), (TOPIC,), "Return since when messages wait"),
        ]  # fmt: skip

    async def figures(self, request: Request, columns: list[str] | None, drain: bool) -> Response:
        """Answer the totals of all topics, and the columns asked for."""
        topics = await self._node.bridge.observe(lambda: list(self._node.broker.topics.items()))
        if columns is not None:
            topics.sort(key=itemgetter(0))
        rows = OverviewRows(self._node.series.held_change) if drain else OverviewRows()
        look = await self._collect([topic for _, topic in topics], rows)
        return json_response(
            {**look.as_answer(columns, drain), "health": self._node.health(), "process": self._process()}
        )

    def _process(self) -> dict[str, int]:
        """Return the start, the CPU time and the memory of the process."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_ms = int(1000 * (usage.ru_utime + usage.ru_stime))
        return {"start_time": self._node.info.start_time, "cpu_ms": cpu_ms, "memory": resident_bytes()}

    async def rows(self, request: Request, topic: str) -> Response:
        """Answer all columns of the topics asked for."""
        names = query_all(request, "topic")
        if len(names) > MOST_ROWS:
            raise HttpError(400, "TOO_MANY_TOPICS")
        known = self._node.broker.topics
        topics = await self._node.bridge.observe(
            lambda: [known[name] for name in dict.fromkeys(names) if name in known]
        )
        look = await self._collect(topics, OverviewRows(self._node.series.held_change))
        return json_response({"topics": look.as_dicts()})

    async def ages(self, request: Request, topic: str) -> Response:
        """Answer since when messages of one topic wait."""

        def work() -> dict[str, Any]:
            found = existing_topic(self._node.broker, topic)
            channels = sorted(found.channels.items())
            buried = {name: channel_sums(channel).buried for name, channel in channels}
            changes = {name: self._node.series.held_change(channel) for name, channel in channels}
            return {
                "topic": oldest_of_topic(found),
                "channels": {name: oldest_of_channel(channel) for name, channel in channels},
                "buried": {name: count for name, count in buried.items() if count},
                "changes": {name: change for name, change in changes.items() if change is not None},
            }

        return json_response(await self._node.bridge.observe(work))

    async def _collect(self, topics: Sequence[Topic], look: "OverviewRows") -> "OverviewRows":
        """Look at those of the topics that still exist, in batches."""
        left = iter(topics)
        while await self._node.bridge.observe(lambda: look.add_batch(left)):
            pass
        return look


def _jobs_of(topic: Topic) -> int:
    """Return the number of jobs of the topic's tube, in any state and of all logs."""
    return sum(
        sum(reader.counts()) for one in topic.shards for reader in one.readers.values() if reader.takes_job_options
    )


class OverviewRows:
    """The statistics of the topics that were looked at so far."""

    __slots__ = ("_change_of", "backlogs", "idle", "names", "paused", "pauses", "rows")

    def __init__(self, change_of: Callable[[Subject], tuple[int, int] | None] = lambda _: None) -> None:
        """Begin without a topic. `change_of` returns what Series.held_change does."""
        self._change_of = change_of
        self.backlogs: list[list[TopicBacklog]] = []  # parallel to `names`
        self.names: list[str] = []
        self.rows: list[tuple[int, ...]] = []  # parallel to `names`: each row is as long as COLUMNS
        # Parallel to `names`: whether the topic itself is paused, and how many of its channels are.
        self.pauses: list[tuple[bool, int]] = []
        self.paused: list[str] = []  # topic, or topic/channel
        self.idle: list[str] = []  # topic/channel

    def add_batch(self, topics: Iterator[Topic]) -> bool:
        """Look at a batch of topics. Return False if there were no more. Runs in the trio thread."""
        room = BATCH
        for topic in topics:
            if topic.legal and not topic.deleted:
                self.add(topic)
                room -= len(topic.channels)
            room -= 1
            if room <= 0:
                return True
        return False

    def add(self, topic: Topic) -> None:
        """Add one topic's statistics. Runs in the trio thread."""
        depth = topic_depth(topic)
        change = self._change_of(topic)
        backlogs = [TopicBacklog("", depth, change)] if depth or (change and change[0]) else []
        oldest = oldest_of_topic(topic) if depth else 0
        in_flight = deferred = buried = clients = requeued = timed_out = 0
        if topic_paused := is_paused(topic):
            self.paused.append(topic.name)
        known = len(self.paused)
        for channel in topic.channels.values():
            sums = channel_sums(channel)
            change = self._change_of(channel)
            if sums.depth or (change and change[0]):
                backlogs.append(TopicBacklog(channel.name, sums.depth, change))
            if sums.depth:
                depth += sums.depth
                since = oldest_of_channel(channel)
                if since and (since < oldest or not oldest):
                    oldest = since
                if not channel.consumers:
                    self.idle.append(f"{topic.name}/{channel.name}")
            if sums.paused:
                self.paused.append(f"{topic.name}/{channel.name}")
            in_flight += sums.in_flight
            deferred += sums.deferred
            buried += sums.buried
            clients += len(channel.consumers)
            requeued += sums.requeued
            timed_out += sums.timed_out
        unfinished = depth + in_flight + deferred
        messages, channels = topic.intake.message_count, len(topic.channels)
        row = depth, in_flight, deferred, buried, messages, channels, clients, requeued, timed_out
        if len(backlogs) > 1:
            backlogs = sorted(backlogs, key=TopicBacklog.slowness, reverse=True)[:MOST_BACKLOGS]
        self.backlogs.append(backlogs)
        self.names.append(topic.name)
        self.rows.append((*row, unfinished, oldest, _jobs_of(topic)))
        self.pauses.append((topic_paused, len(self.paused) - known))

    def as_answer(self, wanted: Sequence[str] | None, with_drain: bool = False) -> dict[str, Any]:
        """Return the whole answer. `wanted` are the columns in it, without `drain`; None: it has not even names."""
        columns: dict[str, Sequence[int]] = dict.fromkeys(COLUMNS, ())
        columns.update(zip(COLUMNS, zip(*self.rows, strict=True), strict=bool(self.rows)))
        answer: dict[str, Any] = {
            "totals": {"topics": len(self.rows), **{name: sum(columns[name]) for name in TOTALS}},
            "oldest": min(filter(None, columns["oldest"]), default=0),
            "paused": sorted(self.paused)[:MOST_NAMES],
            "paused_count": len(self.paused),
            "idle": {"count": len(self.idle), "names": sorted(self.idle)[:MOST_NAMES]},
        }
        if wanted is not None:
            drain = {"drain": [one[0].drain if one else 0 for one in self.backlogs]} if with_drain else {}
            answer |= {"names": self.names, "columns": {name: columns[name] for name in wanted} | drain}
        return answer

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the statistics of each topic as a dict."""
        return [
            {
                "topic_name": name,
                "paused": topic_paused or channels > 0,
                "topic_paused": topic_paused,
                "paused_channels": channels,
                **dict(zip(COLUMNS, row, strict=True)),
                "backlogs": [one.as_dict() for one in backlogs],
            }
            for name, (topic_paused, channels), row, backlogs in zip(
                self.names, self.pauses, self.rows, self.backlogs, strict=True
            )
        ]


def _read_columns(text: str) -> list[str]:
    wanted = list(dict.fromkeys(text.split(","))) if text else []
    if not set(wanted) <= set(COLUMNS):
        raise ValueError("unknown column")
    return wanted


_COLUMNS = Argument("columns", _read_columns, None, "names of columns")
_TOPICS = replace(any_text("topic"), expected=f"up to {MOST_ROWS} times")
