"""The lines for statsd, and their packets: byte for byte what the original sent for the same traffic."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.limits import Limits
from nsqd.statsd.report import Packets, Report
from tests.nsqd.core.node import SECOND, Node, ids

FIGURES = {
    "heap_objects": 1, "heap_idle_bytes": 2, "heap_in_use_bytes": 3, "heap_released_bytes": 4, "gc_pause_usec_100": 5,
    "gc_pause_usec_99": 6, "gc_pause_usec_95": 7, "next_gc_bytes": 8, "gc_total_runs": 9,
}  # fmt: skip


def report(node: Node, before: Report | None = None, exclude_ephemeral: bool = False) -> Report:
    made = Report("p.", 1_000_000, before, exclude_ephemeral)
    for _, topic in sorted(node.broker.topics.items()):
        for _ in made.topic(topic, node.now):
            pass
    return made


def lines(made: Report) -> list[str]:
    return b"".join(made.packets.pop_packets()).decode().splitlines()


def test_a_topic_and_its_channels() -> None:
    node = Node()
    node.channel("a", "c")
    node.channel("a", "B")
    consumer, inbox = node.subscribe("a", "c", ready=3)
    node.publish("a", b"hello", b"hello", b"hello")
    consumer.set_ready(0)
    first, second, _ = inbox.take()
    consumer.finish(first.id)
    consumer.requeue(second.id, 60 * SECOND, node.now)
    node.turn()
    assert lines(report(node)) == [
        "p.topic.a.message_count:3|c", "p.topic.a.message_bytes:15|c", "p.topic.a.depth:0|g",
        "p.topic.a.backend_depth:0|g", "p.topic.a.channel.B.message_count:3|c", "p.topic.a.channel.B.depth:3|g",
        "p.topic.a.channel.B.backend_depth:0|g", "p.topic.a.channel.B.in_flight_count:0|g",
        "p.topic.a.channel.B.deferred_count:0|g", "p.topic.a.channel.B.requeue_count:0|c",
        "p.topic.a.channel.B.timeout_count:0|c", "p.topic.a.channel.B.clients:0|g",
        "p.topic.a.channel.c.message_count:3|c", "p.topic.a.channel.c.depth:0|g",
        "p.topic.a.channel.c.backend_depth:0|g", "p.topic.a.channel.c.in_flight_count:1|g",
        "p.topic.a.channel.c.deferred_count:1|g", "p.topic.a.channel.c.requeue_count:1|c",
        "p.topic.a.channel.c.timeout_count:0|c", "p.topic.a.channel.c.clients:1|g",
    ]  # fmt: skip


def test_counters_are_what_was_added() -> None:
    node = Node()
    node.publish("a", b"12", b"34")
    first = report(node)
    node.publish("a", b"5")
    second = report(node, first)
    node.publish("later", b"678")
    assert lines(second)[:2] == ["p.topic.a.message_count:1|c", "p.topic.a.message_bytes:1|c"]
    assert [line for line in lines(report(node, second)) if line.endswith("|c")] == [
        "p.topic.a.message_count:0|c", "p.topic.a.message_bytes:0|c", "p.topic.later.message_count:1|c",
        "p.topic.later.message_bytes:3|c",
    ]  # fmt: skip


def test_a_topic_that_went_and_came_again_counts_down() -> None:
    node = Node()
    node.publish("a", b"12", b"34")
    first = report(node)
    node.broker.delete_topic("a")
    node.publish("a", b"5")
    assert lines(report(node, first))[:2] == ["p.topic.a.message_count:-1|c", "p.topic.a.message_bytes:-3|c"]


def test_what_is_ephemeral_can_be_left_out() -> None:
    node = Node()
    for topic, channel in (("a", "c"), ("a", "c#ephemeral"), ("t#ephemeral", "c")):
        node.channel(topic, channel)
    assert any("#ephemeral" in line for line in lines(report(node)))
    left = lines(report(node, exclude_ephemeral=True))
    assert len(left) == 4 + 8
    assert not any("#ephemeral" in line for line in left)


def test_a_channel_deleted_meanwhile_is_left_out() -> None:
    node = Node()
    topic = node.broker.topic("a")
    for name in ("b", "c", "d"):
        node.channel("a", name)
    made = Report("p.", 1_000_000, None, False)
    rest = made.topic(topic, node.now)
    while not any("topic.a.channel.b." in packet for packet in map(bytes.decode, made.packets._lines)):
        next(rest)
    topic.delete_channel("c")
    for _ in rest:
        pass
    report_lines = lines(made)
    assert "p.topic.a.channel.d.clients:0|g" in report_lines
    assert not any(".c." in line for line in report_lines)


def test_percentiles() -> None:
    node = Node(Limits(latency_percentiles=(1, 0.999, 0.995, 0.5, 0.005)))
    consumer, inbox = node.subscribe("a", "c", ready=1)
    node.channel("empty", "c")
    node.broker.topic("alone")
    node.publish("a", b"x")
    node.advance(2 * SECOND)
    consumer.finish(ids(inbox.take()))
    report_lines = [line for line in lines(report(node)) if "latency" in line]
    names = [f"e2e_processing_latency_{percent}" for percent in ("100", "100", "100", "50", "0")]  # %.0f rounds
    topic = [f"p.topic.a.{name}:{2 * SECOND}|g" for name in names]
    channel = [f"p.topic.a.channel.c.{name}:{2 * SECOND}|g" for name in names]
    empty = [f"p.topic.empty{part}.{name}:0|g" for part in ("", ".channel.c") for name in names]
    assert report_lines == [*topic, *channel, *empty]


def test_memory() -> None:
    made = Report("p.", 1_000_000, None, False)
    made.memory(FIGURES)
    assert lines(made) == [
        "p.mem.heap_objects:1|g", "p.mem.heap_idle_bytes:2|g", "p.mem.heap_in_use_bytes:3|g",
        "p.mem.heap_released_bytes:4|g", "p.mem.gc_pause_usec_100:5|g", "p.mem.gc_pause_usec_99:6|g",
        "p.mem.gc_pause_usec_95:7|g", "p.mem.next_gc_bytes:8|g", "p.mem.gc_runs:9|c",
    ]  # fmt: skip
    again = Report("p.", 1_000_000, made, False)
    again.memory(FIGURES | {"gc_total_runs": 12})
    assert lines(again)[-1] == "p.mem.gc_runs:3|c"


@given(st.lists(st.integers(0, 30).map(lambda size: b"x" * size + b"\n"), max_size=30), st.integers(1, 60))
def test_packets_are_full_and_lose_nothing(report_lines: list[bytes], size: int) -> None:
    packets = Packets(size)
    for line in report_lines:
        packets.add(line)
    sent = packets.pop_packets()
    assert b"".join(sent) == b"".join(report_lines)
    assert all(len(packet) <= size or packet.count(b"\n") == 1 for packet in sent)
    for packet, following in pairwise(sent):
        assert len(packet) + following.index(b"\n") + 1 > size
