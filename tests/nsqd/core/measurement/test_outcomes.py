"""The outcomes of messages, by producer and channel, as the statistics topic has them."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.limits import Limits
from nsqd.core.measurement.outcomes import MOST_CHANGES, MOST_EVENTS, Events, Outcome, OutcomeEvent, Producers
from nsqd.core.message.attributes import Attributes
from tests.nsqd.core.node import SECOND, Node, ids


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["", "a", "b"])), max_size=30), st.data())
def test_whose_messages_are_whose(stretches: list[tuple[int, str]], data: st.DataObject) -> None:
    producers, owners = Producers(), list[str]()
    for count, name in stretches:
        producers.note_producer(len(owners), name)
        owners += [name] * count
    first = data.draw(st.integers(0, len(owners)))
    count = data.draw(st.integers(0, len(owners) - first))
    parts = list(producers.parts(first, count))
    assert [name for _, size, name in parts for _ in range(size)] == owners[first : first + count]
    assert all(size > 0 for _, size, _ in parts)
    assert [start for start, _, _ in parts] == [
        first + sum(size for _, size, _ in parts[:i]) for i in range(len(parts))
    ]


def test_what_is_remembered_of_producers_is_bounded() -> None:
    producers = Producers()
    for number in range(3 * MOST_CHANGES):
        producers.note_producer(number, f"p{number % 2}")
    last = 3 * MOST_CHANGES - 1
    assert list(producers.parts(last, 1)) == [(last, 1, "p1")]
    assert list(producers.parts(0, 2)) == [(0, 2, "")]  # no producer is known: it is too long ago


def measured(share: float = 0.0) -> Node:
    node = Node(Limits(measures=True, events=share, max_attempts={"": 2}))
    node.broker.topic("t").channel("c")
    return node


def reported(node: Node) -> dict[str, tuple[int, int, int, int, int, int]]:
    """finished, attempts, requeued, timed out, buried, latencies; by producer."""
    outcomes = node.channel("t", "c").outcomes
    return {name: numbers(one) for name, one in outcomes.fetch_counts().items()}


def numbers(one: Outcome) -> tuple[int, int, int, int, int, int]:
    return one.finished, one.attempts, one.requeued, one.timed_out, one.buried, one.latencies.count


def test_each_producer_has_its_own() -> None:
    node = measured()
    topic = node.broker.topic("t")
    consumer, inbox = node.subscribe("t", "c", 100, 2 * SECOND)
    topic.intake.publish_with([b"1", b"2"], Attributes(producer="ann", sequence=1))
    node.turn()
    topic.intake.publish_with([b"3"], Attributes(producer="ben", sequence=7))
    topic.publish([b"0"], 1)
    node.turn()
    got = {delivery.body: delivery for delivery in inbox.take()}
    node.turn()
    assert consumer.finish(ids([got[b"1"], got[b"3"]])) == []
    assert consumer.requeue(got[b"2"].id, 0, node.now) == ""
    assert reported(node) == {"ann": (1, 1, 1, 0, 0, 1), "ben": (1, 1, 0, 0, 0, 1)}
    assert reported(node) == {}
    node.turn()
    assert [delivery.body for delivery in inbox.take()] == [b"2"]
    assert consumer.touch(got[b"2"].id, 2 * SECOND, 60 * SECOND, node.now) == ""
    node.advance(3 * SECOND)  # both are out of time: the second delivery of one was its last
    assert reported(node) == {"": (0, 0, 0, 1, 0, 0), "ann": (0, 0, 0, 1, 1, 0)}
    node.turn()
    (again,) = inbox.take()
    node.turn()
    assert consumer.finish(ids([again])) == []
    assert reported(node) == {"": (1, 2, 0, 0, 0, 1)}


def test_events_of_all() -> None:
    node = measured(1.0)
    consumer, inbox = node.subscribe("t", "c", 100, 2 * SECOND)
    node.broker.topic("t").intake.publish_with([b"1", b"2"], Attributes(producer="ann", sequence=1))
    node.turn()
    first, second = inbox.take()
    node.advance(SECOND)
    assert consumer.finish(ids([first])) == []
    assert consumer.requeue(second.id, 0, node.now) == ""
    events = node.broker.context.events.fetch()
    assert [(e.what, e.message_id, e.producer, e.attempts, e.latency) for e in events] == [
        ("finished", first.id, "ann", 1, SECOND),
        ("requeued", second.id, "ann", 1, -1),
    ]
    assert {(e.topic, e.channel) for e in events} == {("t", "c")}
    assert node.broker.context.events.fetch() == []


def test_events_of_a_share_are_all_of_a_message_or_none_and_dropped_ones_are_counted() -> None:
    names = [b"%016x" % (number * 7919) for number in range(4000)]
    chosen = [name for name in names if Events(0.25).wants(name)]
    assert 800 < len(chosen) < 1200
    assert chosen == [name for name in names if Events(0.25).wants(name)]
    assert not any(Events(0.0).wants(name) for name in names)
    assert all(Events(1.0).wants(name) for name in names)
    events, event = Events(1.0), OutcomeEvent(0, "finished", "t", "c", b"", "", 1, 0)
    for _ in range(MOST_EVENTS + 3):
        events.add(event)
    assert (len(events.fetch()), events.dropped) == (MOST_EVENTS, 3)
