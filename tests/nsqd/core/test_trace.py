"""The trace of a message: its events as text."""

from nsqd.core.limits import Limits
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.trace import MOST_LINES, Trace, trace_of, traced_store
from nsqd.storage.memory import MemoryStore
from tests.nsqd.core.node import SECOND, Node, bodies
from tests.nsqd.storage.traces import BodyTrace


def node_with(trace: Trace, limits: Limits | None = None) -> Node:
    return Node(limits, lambda: traced_store(MemoryStore(lambda ceiling: True), trace))


def texts(lines: list[str]) -> list[str]:
    """Return the lines without their times and places."""
    return [line.split(": message ", 1)[1] for line in lines]


def test_a_message_is_followed_from_its_publish_to_its_end() -> None:
    trace = Trace()
    node = node_with(trace, Limits(max_attempts={"": 2}))
    node.channel("t", "c")
    client, inbox = node.subscribe("t", "c", 1)
    node.publish("t", b"first")
    (delivery,) = inbox.take()
    client.requeue(delivery.id, 0, node.now)
    node.turn()
    (again,) = inbox.take()
    assert (again.id, again.attempts) == (delivery.id, 2)
    node.advance(61 * SECOND)
    assert texts(trace_of(trace.events(), delivery.id)) == [
        "0 is published; 1 readers get it",
        "0 is delivered for the first time, or passed over",
        "0 comes back with 1 deliveries and 1 failures: ready, or delivered again",
        "0 comes back with 2 deliveries and 1 failures: ready, or delivered again",
        "0 is buried after 2 deliveries and 2 failures: timed out",
    ]
    node.publish("t", b"second")
    (other,) = inbox.take()
    assert bodies([other]) == [b"second"]
    client.finish(other.id)
    assert texts(trace_of(trace.events(), other.id))[-1] == "1 is finished"
    assert "topic t, channel c" in trace_of(trace.events(), other.id)[-1]


def test_what_waits_in_the_topic_or_is_dropped_and_jobs_have_traces_too() -> None:
    trace = Trace()
    node = node_with(trace)
    number = node.broker.ids.next
    node.publish("t", b"x")
    node.channel("t", "c")
    message_id = node.broker.ids.id_bytes(number)
    node.channel("t", "c").empty()
    assert texts(trace_of(trace.events(), message_id)) == [
        "0 is published; 0 readers get it",
        "0 is distributed: 1 readers get it",
        "0 is finished: everything is dropped",
    ]
    node.broker.delete_topic("t")
    assert texts(trace_of(trace.events(), message_id))[-1] == "0 is deleted with the topic"
    number = node.broker.tubes.put_to("q", b"job", JobOptions(1, 60, 0, 0, True))
    tube = node.broker.tubes.tube("q")
    tube.bury(next(iter(tube.jobs)), 1)
    lines = trace_of(trace.events(), node.broker.ids.id_bytes(number))
    assert texts(lines) == ["0 is published; 1 readers get it", "0 is a job in another state"]
    assert "work queue" in lines[-1]


def test_what_is_not_known_has_no_trace_and_a_long_one_is_cut() -> None:
    trace = BodyTrace()
    assert trace_of(trace.events(), b"0" * 16) == []
    trace.add_publish(1, "topic t", "is published", 0, [bytes(34) + b"x"], b"1" * 16)
    assert trace_of(trace.events(), b"1" * 15 + b"2") == []
    for number in range(MOST_LINES + 2):
        trace.add(1, "topic t", str(number), 0, 1)
    lines = trace_of(trace.events(), b"1" * 16)
    assert len(lines) == MOST_LINES
    assert lines[-1].endswith(f"message 0 {MOST_LINES + 1}")
    trace, sought = Trace(), b"0" * 15 + b"1"
    trace.add_publish(1, "topic t", "is published", 0, [bytes(34)] * 3, b"1" + b"0" * 15 + b"1" + b"0" * 15 + sought)
    assert texts(trace_of(trace.events(), sought)) == ["2 is published"], "an id is found only where one begins"
