"""nsq_stat: print the depth and the rates of one channel, summed over all nsqds that have it, line by line.

Invariant: a line has the answers of its own round: a node that did not answer counts in no column of it, and a rate
is the change of those nodes only that also answered before.

Deliberate differences from the original:
* a node that is down or lies is logged and left out, where the original exits with 1; when nothing at all can be had in
  the first round, the address or the name is probably wrong, and the exit code is 1 here, too;
* a node that comes, goes or restarts does not make a rate leap or negative;
* egress is what the consumers have finished; in the original it is what came less the change of the depth, which is negative
  when messages time out, and counts deferred messages and those of an emptied channel;
* an nsqd is asked at the address that was given, not at its broadcast address;
* after the last line of -count the program ends at once, and does not wait for another interval.

See docs/reference/tools.md#nsq_stat.
"""

import itertools
import math
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TextIO

from apps.tool import check_no_scheme, check_one_kind, run_program
from shared.log import log
from shared.options import option
from shared.terminal.commands import discard_output
from shared.values import SECOND, Duration, parse_int

PROGRAM = "nsq_stat"
ROWS = 25  # rounds between two headers
HEADER = (
    "------rate------+----------------depth----------------+--------------metadata---------------\n"
    "ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients\n"
)
LARGEST = 2**63 - 1  # of a count in an answer
END_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def _check_count(text: str) -> str:
    try:
        value = parse_int(text)
    except ValueError as error:
        return str(error)
    return "" if abs(value) < 2**31 else "value out of range"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of nsq_stat, by their flags."""

    version: bool = option(False, "print version")
    topic: str = option("", "NSQ topic")
    channel: str = option("", "NSQ channel")
    interval: Duration = option(Duration(2 * SECOND), "duration of time between polling/printing output")
    http_client_connect_timeout: Duration = option(Duration(2 * SECOND), "timeout for HTTP connect")
    http_client_request_timeout: Duration = option(Duration(5 * SECOND), "timeout for HTTP request")
    nsqd_http_address: tuple[str, ...] = option((), "nsqd HTTP address (may be given multiple times)")
    lookupd_http_address: tuple[str, ...] = option((), "lookupd HTTP address (may be given multiple times)")
    count: str = option("", "number of reports (default: no limit)", check=_check_count)


def main() -> int:
    """Run the console script and return its exit code."""
    return run_program(PROGRAM, Options, run)


def run(options: Options) -> int:
    """Print rows until a signal arrives or the reader of standard output closes it. Raises ValueError for wrong options."""
    for number in END_SIGNALS:
        signal.signal(number, _exit)  # while the libraries load; `print_rows` waits for them later
    check(options)
    import trio

    try:
        return trio.run(print_rows, options, sys.stdout)
    except NothingFound:  # the log has the reasons
        return 1
    except BrokenPipeError:
        discard_output()
        return 0


def check(options: Options) -> None:
    """Raise ValueError for options that are missing or wrong."""
    if not options.topic or not options.channel:
        raise ValueError("--topic and --channel are required")
    for flag in ("interval", "http_client_connect_timeout", "http_client_request_timeout"):
        if getattr(options, flag) <= 0:
            raise ValueError(f"--{flag.replace('_', '-')} should be positive")
    if options.count and parse_int(options.count) <= 0:
        raise ValueError("--count should be positive")
    nsqds, lookupds = options.nsqd_http_address, options.lookupd_http_address
    check_one_kind(PROGRAM, "nsqd-http-address", nsqds, "lookupd-http-address", lookupds)
    check_no_scheme("nsqd-http-address", nsqds)
    check_no_scheme("lookupd-http-address", lookupds)


class NothingFound(Exception):
    """The first round found no node that has the channel."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The counts of a channel on one node, or of all nodes together; their names are those in /stats."""

    depth: int
    backend_depth: int
    in_flight_count: int
    deferred_count: int
    requeue_count: int
    timeout_count: int
    message_count: int
    client_count: int
    buried_count: int = 0
    finished: Mapping[str, int] | None = None  # messages that each connected consumer has finished; None: unknown

    @classmethod
    def total(cls, all: "list[Stats]") -> "Stats":
        """Return the sums of the counts."""
        sums: list[Any] = [sum(getattr(one, name) for one in all) for name in COUNTS]
        return cls(*sums)

    @property
    def unfinished(self) -> int:
        """Return the number of messages of the channel, in any state."""
        return self.depth + self.in_flight_count + self.deferred_count + self.buried_count


COUNTS = tuple(field.name for field in fields(Stats) if field.name != "finished")


def channel_stats(answer: Mapping[str, Any], topic: str, channel: str) -> Stats | None:
    """Return the counts in an answer to /stats, or None if it does not have the channel. Raises ValueError if it is invalid."""
    for one in _objects(answer.get("topics")):
        for found in _objects(one.get("channels")) if one.get("topic_name") == topic else ():
            if found.get("channel_name") == channel:
                counts: list[Any] = [_count(found, name) for name in COUNTS]
                return replace(Stats(*counts), finished=_finished(found))
    return None


def _finished(found: Mapping[str, Any]) -> dict[str, int] | None:
    if "clients" not in found:
        return None
    # a consumer that connects again from the same port counts from 0
    return {
        f"{one.get('remote_address')} {one.get('connect_ts')}": max(0, _count(one, "finish_count"))
        for one in _objects(found["clients"])
    }


def _objects(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        if value is None:  # Go's JSON of an empty list
            return []
        raise ValueError("answered statistics of an unknown form")
    return value


def _count(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name, 0)  # an nsqd of another age may lack one
    if type(value) is not int or abs(value) > LARGEST:
        raise ValueError(f"answered a {name} that is not a count")
    return value


class Rates:
    """The rates between two rounds, from the nodes that answered in both. Pure: `now` is monotonic seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval  # s
        self._before: dict[str, tuple[float, Stats]] = {}  # the last answer of each node, and when

    def update(self, now: float, nodes: Mapping[str, Stats]) -> tuple[int, int]:
        """Return the numbers of messages that came and went in a second, and remember the answers."""
        came: dict[int, int] = {}  # by the number of intervals since the last answer
        went: dict[int, int] = {}
        for node, stats in nodes.items():
            if node in self._before:
                at, before = self._before[node]
                intervals = max(1, round((now - at) / self._interval))
                ingress, egress = _changes(before, stats)
                came[intervals] = came.get(intervals, 0) + ingress
                went[intervals] = went.get(intervals, 0) + egress
            self._before[node] = (now, stats)
        for node in [node for node, (at, _) in self._before.items() if now - at > max(60.0, 10 * self._interval)]:
            del self._before[node]
        return self._a_second(came), self._a_second(went)

    def _a_second(self, changes: Mapping[int, int]) -> int:
        return int(sum(change / (intervals * self._interval) for intervals, change in changes.items()))


def _changes(before: Stats, after: Stats) -> tuple[int, int]:
    """Return the number of messages that came to a channel, and of those that its consumers finished."""
    came = after.message_count - before.message_count
    if came < 0:  # the node has restarted, and counts from zero
        came = after.message_count
    left = max(0, came - (after.unfinished - before.unfinished))  # also those of an emptied channel
    if after.finished is None:
        return came, left
    known = before.finished or {}
    finished = sum(
        count - known.get(one, 0) if count >= known.get(one, 0) else count for one, count in after.finished.items()
    )
    if known.keys() - after.finished.keys():  # a consumer disconnected, and its last count is unknown
        finished = max(finished, left)
    return came, finished


def row(rates: tuple[int, int], total: Stats) -> str:
    """Return a line of the table."""
    ingress, egress = rates
    memory = total.depth - total.backend_depth
    return (
        f"{ingress:7} {egress:7} | {total.depth:7} {memory:7} {total.backend_depth:7} {total.in_flight_count:5}"
        f" {total.deferred_count:5} | {total.requeue_count:7} {total.timeout_count:7} {total.message_count:12}"
        f" {total.client_count:7}\n"
    )


async def print_rows(options: Options, out: TextIO) -> int:
    """Print lines until -count of them are printed or a signal arrives; return 0. Raises NothingFound, BrokenPipeError."""
    import trio

    failure: Exception | None = None
    with trio.open_signal_receiver(*END_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_a_signal, signals, nursery.cancel_scope)
            try:
                await _rounds(options, out)
            except (NothingFound, BrokenPipeError) as error:
                failure = error  # raised below, where it is no part of an ExceptionGroup
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return 0


async def _cancel_at_a_signal(signals: Any, scope: Any) -> None:
    async for _ in signals:
        scope.cancel()


async def _rounds(options: Options, out: TextIO) -> None:
    """Ask in each interval and print a line for each round but the first, which has no rates yet."""
    import trio

    from apps.cluster import Cluster, Timeouts

    interval = options.interval / SECOND
    rates = Rates(interval)
    rounds = range(parse_int(options.count) + 1) if options.count else itertools.count()
    started = -math.inf
    async with Cluster(Timeouts(options.http_client_connect_timeout, options.http_client_request_timeout)) as cluster:
        poll = Poll(cluster, options)
        for number in rounds:
            await trio.sleep_until(started + interval)
            started = trio.current_time()
            nodes = await poll.ask()
            if not nodes and poll.is_answered:  # without an answer, the log has the reasons already
                log.error("failed to find channel(%s) in stats metadata for topic(%s)", options.channel, options.topic)
            if not nodes and number == 0:
                raise NothingFound
            changes = rates.update(started, nodes)
            text = HEADER if number % ROWS == 0 else ""
            text += row(changes, Stats.total(list(nodes.values()))) if number and nodes else ""
            await _until_writable(out)
            out.write(text)
            out.flush()


async def _until_writable(out: TextIO) -> None:
    """Wait until a pipe or a terminal has room for some lines: a signal ends this wait, but not that of a write."""
    import trio

    try:
        await trio.lowlevel.wait_writable(out.fileno())
    except (OSError, ValueError):  # a regular file, or a stream in memory: it never waits for a reader
        await trio.lowlevel.checkpoint()


class Poll:
    """The requests of each round: to the nsqlookupds for the nodes, and to the nodes for their counts."""

    def __init__(self, cluster: Any, options: Options) -> None:
        self._cluster = cluster
        self._options = options
        self._nodes = list(options.nsqd_http_address)  # with nsqlookupds: as they said last
        self.is_answered = False  # whether a node answered in the last round, or all that answered know of no node

    async def ask(self) -> dict[str, Stats]:
        """Return the counts by node. A node that has no such channel, is down or lies is left out."""
        from apps.cluster import MOST_NODES, node_addresses

        options = self._options
        self.is_answered = False
        if options.lookupd_http_address:
            answers = await self._cluster.ask(options.lookupd_http_address, "/lookup", {"topic": options.topic})
            is_complete = len(answers) == len(set(options.lookupd_http_address))
            known = [] if is_complete else self._nodes  # an nsqlookupd that does not answer may have named them
            self._nodes = list(dict.fromkeys([*node_addresses(answers), *known]))[:MOST_NODES]
            self.is_answered = bool(answers) and not self._nodes
        query = {"format": "json", "topic": options.topic, "channel": options.channel, "include_clients": "true"}
        found: dict[str, Stats] = {}
        for node, answer in (await self._cluster.ask(self._nodes, "/stats", query)).items():
            try:
                stats = channel_stats(answer, options.topic, options.channel)
            except ValueError as error:
                log.error("%s/stats %s", node, error)
                continue
            self.is_answered = True
            if stats is not None:
                found[node] = stats
        return found


def _exit(number: int, frame: object) -> None:
    os._exit(0)  # nothing is printed yet that could be lost
