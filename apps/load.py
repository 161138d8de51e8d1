"""`penstock bench`: how fast a cluster takes and delivers messages and jobs: rates, latencies, a histogram, JSON."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from apps.client_context import consumer_addresses, job_address, job_tls, jobs_failure, node_addresses, settings_of
from apps.node_client import add_address
from penstock.client import Consumer, Producer
from penstock.jobs import Jobs, JobsError, JobsSettings
from penstock.protocol import is_valid_name
from penstock.sansio.errors import ClientError
from shared.counted import counted
from shared.histogram import Histogram
from shared.terminal.commands import CommandError, Commands, WrongArguments, make_command, whole_number
from shared.terminal.context import add_setting
from shared.terminal.output import width
from shared.values import SECOND

TOPIC, CHANNEL, TUBE = "penstock-bench", "bench", "penstock-bench"
MOST_MESSAGES, MOST_SIZE, MOST_CONNECTIONS = 100_000_000, 1 << 20, 1000
IDLE = 5.0  # s without a message after which `bench sub` ends
PERCENTILES = (0.5, 0.95, 0.99, 0.999)
ROWS, BAR = 12, 40  # of the histogram: rows, and characters of the longest bar
WHAT = "measure how fast a cluster takes and delivers messages, or jobs"
DETAILS = f"""
The messages stay in the topic {TOPIC} until `bench sub` takes them, or `penstock delete {TOPIC}` drops them. A latency is the
time from a publish to its OK, of `sub` from the publish to the delivery, of `jobs` from a put over the reserve to the delete.

examples:
  penstock bench pub --count 10000 --size 200 --connections 10
  penstock bench sub
  penstock bench jobs --json
"""


@dataclass(slots=True)
class Result:
    """The messages and latencies of a measurement, or of one connection of it."""

    count: int = 0
    size: int = 0  # bytes of bodies
    seconds: float = 0.0
    latencies: Histogram = field(default_factory=Histogram)  # ns

    def add(self, other: Result) -> None:
        """Add what another connection did at the same time."""
        self.count += other.count
        self.size += other.size
        self.latencies.merge(other.latencies)

    def described(self) -> dict[str, object]:
        """Return the object that --json prints: rates a second, latencies in ms."""
        seconds = max(self.seconds, 1e-9)
        latencies = {f"p{100 * one:g}": self.latencies.quantile(one) / 1e6 for one in PERCENTILES}
        return {
            "messages": self.count, "seconds": round(self.seconds, 3), "messages_per_second": round(self.count / seconds, 1),
            "bytes_per_second": round(self.size / seconds), "latency_ms": latencies | {"max": self.latencies.max / 1e6},
        }  # fmt: skip


def add_command(commands: Commands) -> None:
    """Add the command `bench`, with its subcommands, to the parser."""
    bench = commands.add_parser("bench", help=WHAT, description=WHAT, epilog=DETAILS)
    below = bench.add_subparsers(required=True, metavar="command")
    pub = make_command(
        below, "pub", _pub, "measure publishes, each of which waits for its OK", "", "bench pub --size 200"
    )
    sub = make_command(
        below, "sub", _sub, "measure deliveries of what `bench pub` has published", "", "bench sub --count 1000"
    )
    jobs = make_command(
        below, "jobs", _jobs, "measure put, reserve and delete of beanstalkd's clients", "", "bench jobs --json"
    )
    for command, count in ((pub, 10_000), (sub, 0), (jobs, 2000)):
        most = whole_number(1, MOST_MESSAGES)
        text = f"(default: {count})" if count else f"(default: until none came for {IDLE:g} s)"
        command.add_argument("--count", type=most, default=count, metavar="N", help=f"messages {text}")
        command.add_argument("--json", action="store_true", help="print a JSON object")
        add_address(command)
    for command in (pub, jobs):
        command.add_argument(
            "--size", type=whole_number(0, MOST_SIZE), default=100, metavar="BYTES", help="(default: 100)"
        )
        many = whole_number(1, MOST_CONNECTIONS)
        command.add_argument("--connections", type=many, default=10, metavar="N", help="connections (default: 10)")
    pub.add_argument(
        "--batch", type=whole_number(1, 10_000), default=1, metavar="N", help="messages in a publish (default: 1)"
    )
    for command in (pub, sub):
        command.add_argument("--topic", default=TOPIC, help=f"(default: {TOPIC})")
    sub.add_argument("--channel", default=CHANNEL, help=f"(default: {CHANNEL})")
    add_setting(jobs, "job_address")


def _pub(arguments: argparse.Namespace) -> int:
    if not is_valid_name(arguments.topic):
        raise WrongArguments(f"{arguments.topic[:200]!r} is not a legal name of a topic")
    addresses, settings = node_addresses(arguments), settings_of(arguments.used_context)

    def publish(number: int, count: int, stop: threading.Event) -> Result:
        first = number % len(addresses)  # connections take turns
        result, body = Result(), b"x" * arguments.size
        with Producer([*addresses[first:], *addresses[:first]], settings) as producer:
            producer.connect()
            while result.count < count and not stop.is_set():
                batch = [body] * min(arguments.batch, count - result.count)
                began = time.perf_counter_ns()
                producer.publish_many(arguments.topic, batch)
                result.latencies.record(time.perf_counter_ns() - began)
                result.count += len(batch)
                result.size += len(batch) * len(body)
        return result

    return _report(_all(publish, arguments), arguments)


def _sub(arguments: argparse.Namespace) -> int:
    context, result = arguments.used_context, Result()
    nodes = consumer_addresses(arguments)
    try:
        with Consumer(
            arguments.topic, arguments.channel, nodes, context.lookupd_http_address, 2000, settings_of(context)
        ) as consumer:
            began = last = 0
            while result.count < (arguments.count or MOST_MESSAGES) and (batch := consumer.poll(IDLE)):
                now, last = time.time_ns(), time.perf_counter_ns()
                began = began or last
                for message in batch:
                    message.finish()
                result.latencies.record_many([max(0, now - message.timestamp) for message in batch])
                result.count += len(batch)
                result.size += sum(len(message.body) for message in batch)
            consumer.flush()
    except (ClientError, ValueError) as error:
        raise CommandError(str(error)) from None
    result.seconds = (last - began) / SECOND
    return _report(result, arguments)


def _jobs(arguments: argparse.Namespace) -> int:
    context = arguments.used_context
    address, settings = job_address(context), JobsSettings(retry_s=0, tls=job_tls(context))

    def work(number: int, count: int, stop: threading.Event) -> Result:
        result, body = Result(), b"x" * arguments.size
        tube = f"{TUBE}-{number}"
        with Jobs(address, settings, use=tube, watch=[tube]) as jobs:
            while result.count < count and not stop.is_set():
                began = time.perf_counter_ns()
                jobs.put(body)
                if (job := jobs.reserve(IDLE)) is not None:
                    job.delete()
                result.latencies.record(time.perf_counter_ns() - began)
                result.count += 1
                result.size += len(body)
        return result

    return _report(_all(work, arguments), arguments)


def _all(work: Callable[[int, int, threading.Event], Result], arguments: argparse.Namespace) -> Result:
    """Do the work on all connections at the same time, and return the sum. Ctrl-C stops all. Raises CommandError."""
    connections = min(arguments.connections, arguments.count)
    ready, stop, total = threading.Barrier(connections), threading.Event(), Result()

    def run(number: int) -> Result:
        ready.wait()
        return work(number, arguments.count // connections + (number < arguments.count % connections), stop)

    with ThreadPoolExecutor(connections) as threads:
        began = time.perf_counter()
        try:
            for one in threads.map(run, range(connections)):
                total.add(one)
        except JobsError as error:
            raise jobs_failure(arguments.used_context, error) from None
        except (ClientError, OSError) as error:
            raise CommandError(str(error)) from None
        finally:
            stop.set()  # one connection failed, or Ctrl-C: the others stop, too
        total.seconds = time.perf_counter() - began
    return total


def _report(result: Result, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps(result.described()))
    else:
        print("\n".join(lines_of(result)))
    return 0


def lines_of(result: Result) -> Iterator[str]:
    """Yield the lines about a result: rates, latencies, a histogram that fits the terminal."""
    seconds = max(result.seconds, 1e-9)
    rate = f"{result.count / seconds:,.0f} messages/s, {result.size / seconds / 1e6:,.3f} MB/s"
    yield f"{counted(result.count, 'message')} in {result.seconds:,.2f} s: {rate}"
    if not result.latencies.count:
        return
    found = "  ".join(f"p{100 * one:g} {result.latencies.quantile(one) / 1e6:,.2f}" for one in PERCENTILES)
    yield f"latency in ms: {found}  max {result.latencies.max / 1e6:,.2f}"
    counts = _grouped(result.latencies)
    most, room = max(counts.values()), min(BAR, max(5, (width() or 80) - 30))
    for upper, count in counts.items():
        yield f"{f'< {upper:,.2f} ms':>16}  {count:>9,}  {'#' * -(-count * room // most)}"


def _grouped(latencies: Histogram) -> dict[float, int]:
    """Return the number of latencies by the upper bound of at most ROWS groups, in ms. The bounds double."""
    counts: dict[float, int] = {}
    upper = 0.01
    for middle, count in latencies.buckets().items():
        while middle / 1e6 >= upper:
            upper *= 2
        counts[upper] = counts.get(upper, 0) + count
    while len(counts) > ROWS:  # join the two fastest groups
        first, second, *_ = counts
        counts[second] += counts.pop(first)
    return counts
