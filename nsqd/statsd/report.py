"""Build the lines for statsd, byte for byte as the original does: `<prefix><name>:<number>|c` or `|g`.

A counter's line has what was added since the last report, and in the first report all of it. So a report keeps the counters
for the one that follows. This module is pure: it uses no socket and no clock.

See docs/contributing/design/nsq-programs.md#statsd.
"""

from collections.abc import Iterator

from nsqd.core.channel.channel import Channel
from nsqd.core.measurement.latency import Snapshot
from nsqd.core.observation.sums import channel_sums, topic_backend_depth, topic_depth
from nsqd.core.topic import Topic
from penstock.protocol.names import is_ephemeral, is_valid_name
from shared.histogram import Histogram

_MEMORY_GAUGES = (
    *("heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes"),
    *("gc_pause_usec_100", "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes"),
)


class Packets:
    """Lines packed into packets of at most `size` bytes; a longer line is a packet of its own."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._full: list[bytes] = []
        self._lines: list[bytes] = []  # lines of the packet that is being filled
        self._length = 0  # bytes of those lines

    def add(self, line: bytes) -> None:
        """Append a line, which includes its line feed."""
        if self._lines and self._length + len(line) > self._size:
            self._end_packet()
        self._lines.append(line)
        self._length += len(line)

    def pop_packets(self) -> list[bytes]:
        """Return all packets since the last call."""
        if self._lines:
            self._end_packet()
        full, self._full = self._full, []
        return full

    def _end_packet(self) -> None:
        self._full.append(b"".join(self._lines))
        self._lines, self._length = [], 0


class Report:
    """The lines of one interval, and the counters for the next report."""

    def __init__(self, prefix: str, packet_size: int, before: "Report | None", exclude_ephemeral: bool) -> None:
        self.packets = Packets(packet_size)
        self._prefix = prefix
        self._exclude_ephemeral = exclude_ephemeral
        self._before = before._counters if before else {}
        self._counters: dict[tuple[str, str], tuple[int, ...]] = {}  # by topic and channel ("": the topic itself)

    def topic(self, topic: Topic, now: int) -> Iterator[None]:
        """Add a topic and its channels; `now` is in monotonic ns. Yields often, so that the caller may do something else."""
        if (self._exclude_ephemeral and topic.ephemeral) or not is_valid_name(topic.name):
            return
        channels = [channel for _, channel in sorted(topic.channels.items())]
        merged = Histogram()
        percentiles: tuple[float, ...] = ()
        for channel in channels:
            if channel.latency is not None:
                snapshot = channel.latency.snapshot(now)
                percentiles = snapshot.percentiles
                for half in snapshot.halves:
                    merged.merge(half)
            yield
        messages, size = self._added(topic.name, "", (topic.intake.message_count, topic.intake.message_bytes))
        name = f"topic.{topic.name}"
        self._counter(f"{name}.message_count", messages)
        self._counter(f"{name}.message_bytes", size)
        self._gauge(f"{name}.depth", topic_depth(topic))
        self._gauge(f"{name}.backend_depth", topic_backend_depth(topic))
        self._latency(name, Snapshot(percentiles, (merged,)))
        for channel in channels:
            if not channel.deleted and not (self._exclude_ephemeral and is_ephemeral(channel.name)):
                self._channel(f"{name}.channel.{channel.name}", channel, now)
            yield

    def memory(self, metrics: dict[str, int]) -> None:
        """Add the process's metrics of memory and garbage collection."""
        (runs,) = self._added("", "", (metrics["gc_total_runs"],))
        for name in _MEMORY_GAUGES:
            self._gauge(f"mem.{name}", metrics[name])
        self._counter("mem.gc_runs", runs)

    def _channel(self, name: str, channel: Channel, now: int) -> None:
        sums = channel_sums(channel)
        counters = (sums.messages, sums.requeued, sums.timed_out)
        messages, requeues, timeouts = self._added(channel.topic_name, channel.name, counters)
        self._counter(f"{name}.message_count", messages)
        self._gauge(f"{name}.depth", sums.depth)
        self._gauge(f"{name}.backend_depth", sums.backend_depth)
        self._gauge(f"{name}.in_flight_count", sums.in_flight)
        self._gauge(f"{name}.deferred_count", sums.deferred)
        self._counter(f"{name}.requeue_count", requeues)
        self._counter(f"{name}.timeout_count", timeouts)
        self._gauge(f"{name}.clients", len(channel.consumers))
        if channel.latency is not None:
            self._latency(name, channel.latency.snapshot(now))

    def _latency(self, name: str, snapshot: Snapshot) -> None:
        for entry in snapshot.result()["percentiles"]:
            self._gauge(f"{name}.e2e_processing_latency_{entry['quantile'] * 100:.0f}", entry["value"])

    def _added(self, topic: str, channel: str, counters: tuple[int, ...]) -> list[int]:
        """Return the increase of each counter, negative after a topic was deleted and created again, as in the original."""
        self._counters[topic, channel] = counters
        before = self._before.get((topic, channel), (0,) * len(counters))
        return [counter - old for counter, old in zip(counters, before, strict=True)]

    def _counter(self, name: str, value: int) -> None:
        self.packets.add(f"{self._prefix}{name}:{value}|c\n".encode())

    def _gauge(self, name: str, value: int) -> None:
        self.packets.add(f"{self._prefix}{name}:{value}|g\n".encode())
