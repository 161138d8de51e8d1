"""Take one snapshot of the node for /metrics, some rows at a time, so that ten thousand channels stall no turn.

Not every topic and channel gets series of its own: LABELLED of each do, and keep them until they are deleted; the others are
summed up. So the size of a scrape is bounded, however many topics come and go.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from heapq import nsmallest
from itertools import islice
from typing import Any, NamedTuple

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.observation.sums import channel_sums, oldest_of_channel, oldest_of_topic, oldest_of_tube, topic_depth
from nsqd.core.reader import ReaderKind
from nsqd.core.sequence.store import LogFigures
from nsqd.core.timing.scan import ScanStatistics
from nsqd.core.topic import Topic
from nsqd.core.work_queue.tube import Tube
from nsqd.http.node import Node
from shared.budget import BudgetFigures
from shared.histogram import Histogram

LABELLED = 200  # topics, and the same number of channels: some 2,000 series in all
BACKLOG = 3  # how many gauges, from the first, make up the backlog: ready, in flight, deferred
SUMMED_AT_ONCE = 1000  # rows: one call lets no other thread run; less than a millisecond
BATCH = 50  # rows in one turn: about a millisecond


class FigureRow(NamedTuple):
    """The statistics of a topic, a channel, a tube, a cursor, or a sum.

    The names TOPIC_GAUGES, TOPIC_COUNTERS and so on are those of the gauges and counters.
    """

    key: tuple[str, ...]  # (topic,) or (topic, channel); (tube,); (topic, cursor)
    gauges: tuple[int, ...]
    counters: tuple[int, ...]
    ages: tuple[int, ...] = ()  # ns since the oldest of its messages were published; 0: there are none


TOPIC_GAUGES, TOPIC_COUNTERS = ("depth",), ("messages", "message_bytes", "dropped", "duplicates")
TOPIC_AGES = CHANNEL_AGES = ("oldest",)
CHANNEL_GAUGES = ("depth", "in_flight", "deferred", "buried", "clients")
CHANNEL_COUNTERS = ("messages", "requeued", "timed_out", "dropped")
CURSOR_GAUGES, CURSOR_COUNTERS = ("lag",), ("read",)
TUBE_GAUGES, TUBE_COUNTERS = ("ready", "reserved", "delayed", "buried", "urgent", "waiting"), ("jobs",)
TUBE_AGES = ("oldest", "oldest_job")


class RowChoice:
    """The choice of rows with series of their own: at most `most`, the largest backlog first, each until it is gone."""

    def __init__(self, most: int = LABELLED, rank: Callable[[FigureRow], Any] | None = None) -> None:
        """`rank`: the sort key of rows; None: as the class says."""
        self._most = most
        self._rank = rank or _rank
        self._keys: set[tuple[str, ...]] = set()
        self._others: dict[tuple[str, ...], tuple[int, ...]] = {}  # the counters of all other rows in the last snapshot
        self._total: tuple[int, ...] = ()  # the gain of the counters of other rows over all snapshots; never falls

    def choose(self, rows: Sequence[FigureRow]) -> tuple[list[FigureRow], FigureRow | None]:
        """Return the chosen rows, and the sum of the others; None if there were never any others."""
        self._keys &= {row.key for row in rows}
        candidates = (row for row in rows if row.key not in self._keys)
        largest = nsmallest(self._most - len(self._keys), candidates, key=self._rank)
        self._keys.update(row.key for row in largest)
        others = [row for row in rows if row.key not in self._keys]
        for row in others:
            gained = _gained(row.counters, self._others.get(row.key))
            self._total = add([self._total, gained]) if self._total else gained
        self._others = {row.key: row.counters for row in others}
        return [row for row in rows if row.key in self._keys], self._rest(others)

    def _rest(self, others: Sequence[FigureRow]) -> FigureRow | None:
        if not self._total:
            return None
        # for a sum of no rows: zeros, at least as many as any kind has
        gauges = add([row.gauges for row in others]) or (0,) * len(TUBE_GAUGES)
        ages = tuple(map(max, zip(*(row.ages for row in others), strict=True))) or (0,) * len(TUBE_AGES)
        return FigureRow((), gauges, self._total, ages)


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The statistics of the whole node in one snapshot."""

    topics: list[FigureRow]
    channels: list[FigureRow]
    tubes: list[FigureRow]
    cursors: list[FigureRow]
    connections: int
    turns: Histogram  # durations of the reactor's turns, in ns
    scan: ScanStatistics
    # ns from publish to FIN, of all messages since the start; None without configured percentiles
    latency: Histogram | None
    refused: Counter[str]  # what clients were refused, by reason
    client_errors: Counter[tuple[str, str]]  # errors that clients were answered, by protocol and code
    log: LogFigures
    buffers: BudgetFigures
    expired_jobs: int  # since the start
    receives: dict[str, int]  # requests of /channel/receive, by state
    batches: int  # in the node's own log
    follow_ups: int
    schedules: int
    schedule_ticks: Counter[str]  # by what became of them
    cluster: dict[str, Any] | None  # as /cluster has it; None: the node is in no cluster


async def collect_figures(node: Node) -> NodeFigures:
    """Read the node in batches, and return its statistics. Runs in the HTTP thread."""
    walk = _walk(node.broker)
    rows: dict[str, list[FigureRow]] = {"topics": [], "channels": [], "tubes": [], "cursors": []}
    while batch := await node.bridge.observe(lambda: list(islice(walk, BATCH))):
        for kind, row in batch:
            rows[kind].append(row)
    return await node.bridge.observe(lambda: _whole(node, rows))


def _walk(broker: Broker) -> Iterator[tuple[str, FigureRow]]:
    """Yield the row of every topic, reader and cursor, with its kind; leave out what is deleted meanwhile.

    The iterator may be advanced only in the trio thread.
    """
    wall = broker.wall
    for topic in list(broker.topics.values()):
        if topic.deleted:
            continue
        yield "topics", _topic(topic, wall)
        for reader in list(topic.readers.values()):
            if not reader.deleted:
                rows, row_of = _ROWS[reader.kind]
                yield rows, row_of(reader, wall)
        for name, cursor in list(topic.cursors.items()):
            yield (
                "cursors",
                FigureRow((topic.name, name), (max(0, topic.offsets.end - cursor.offset),), (cursor.offset,)),
            )


def _topic(topic: Topic, wall: int) -> FigureRow:
    intake, depth = topic.intake, topic_depth(topic)
    counters = intake.message_count, intake.message_bytes, intake.dropped_count, intake.duplicate_count
    return FigureRow((topic.name,), (depth,), counters, _ages(wall, oldest_of_topic(topic) if depth else 0))


def _channel(channel: Channel, wall: int) -> FigureRow:
    sums = channel_sums(channel)
    gauges = sums.depth, sums.in_flight, sums.deferred, sums.buried, len(channel.consumers)
    counters = sums.messages, sums.requeued, sums.timed_out, sums.dropped
    ages = _ages(wall, oldest_of_channel(channel) if sums.depth else 0)
    return FigureRow((channel.topic_name, channel.name), gauges, counters, ages)


def _tube(tube: Tube, wall: int) -> FigureRow:
    parts = [(*one.counts(), one.table.urgent, one.total) for one in tube.shards]
    *gauges, total = map(sum, zip(*parts, strict=True))
    gauges.append(tube.waiters.count_at(tube.topic_name))
    return FigureRow((tube.topic_name,), tuple(gauges), (total,), _ages(wall, *oldest_of_tube(tube.shards)))


def _ages(wall: int, *oldest: int) -> tuple[int, ...]:
    """Return the ages at `wall` of messages that were published at these times, all in ns; 0 for those that do not exist."""
    return tuple(max(0, wall - time) if time else 0 for time in oldest)


# For each kind of reader: the field of NodeFigures for its rows, and the function that makes a row at `wall`.
_ROWS: dict[ReaderKind, tuple[str, Callable[[Any, int], FigureRow]]] = {
    ReaderKind.CHANNEL: ("channels", _channel),
    ReaderKind.WORK_QUEUE: ("tubes", _tube),
}


def _whole(node: Node, rows: dict[str, list[FigureRow]]) -> NodeFigures:
    scan = ScanStatistics(**asdict(node.broker.scan.statistics))
    latency = node.broker.context.latencies.copy() if node.broker.limits.latency_percentiles else None
    connections, turns = len(node.peers()), node.turns()
    return NodeFigures(
        **rows,
        connections=connections,
        turns=turns,
        scan=scan,
        latency=latency,
        refused=node.refused(),
        client_errors=node.broker.client_errors.copy(),
        log=node.log(),
        buffers=node.buffers(),
        expired_jobs=node.broker.tubes.listed.expired,
        receives=node.broker.receives.counts(),
        batches=len(node.broker.context.batches.known),
        follow_ups=node.broker.context.batches.follow_up_count,
        schedules=len(node.broker.context.schedules.known),
        schedule_ticks=node.broker.context.schedules.outcomes.copy(),
        cluster=node.cluster.figures() if node.cluster is not None else None,
    )


def _rank(row: FigureRow) -> tuple[int, int, tuple[str, ...]]:
    """Return a sort key: the largest backlog first, then the most messages, then by name."""
    return -sum(row.gauges[:BACKLOG]), -row.counters[0], row.key


def _gained(counters: tuple[int, ...], before: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the increase since `before`. Counters that fell belong to another topic of the same name, and began at 0."""
    if before is None or any(new < old for new, old in zip(counters, before, strict=True)):
        return counters
    return tuple(new - old for new, old in zip(counters, before, strict=True))


def add(tuples: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the sum at each place over all tuples; () without tuples."""
    while len(tuples) > SUMMED_AT_ONCE:
        parts = range(0, len(tuples), SUMMED_AT_ONCE)
        tuples = [tuple(map(sum, zip(*tuples[at : at + SUMMED_AT_ONCE], strict=True))) for at in parts]
    return tuple(map(sum, zip(*tuples, strict=True)))
