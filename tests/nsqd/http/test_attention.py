"""What /channels/attention lists, by a broker that is looked at directly, and over HTTP."""

from typing import Any

from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.deferred import Message
from nsqd.core.timing.pause import NOT_KNOWN, Pause
from nsqd.core.work_queue.job import JobState
from nsqd.http.attention import BATCH, Attention, everything
from tests.local_node import LocalNode
from tests.nsqd.core.node import MS, SECOND, Node
from tests.nsqd.http.asking import consumer, get, post


def look(node: Node, depth: int = 0, since: int = 0, limit: int = 1000) -> dict[str, Any]:
    found, left = Attention(depth, since, node.now), everything(node.broker)
    while found.add_batch(left):
        pass
    return found.as_answer(limit)


def channels(shown: dict[str, Any]) -> list[str]:
    return [f"{row['topic']}/{row['channel']}" for row in shown["channels"]]


NOTHING = {"channels": [], "topics": [], "tubes": [], "left_out": 0}


def test_each_reason_to_list_a_channel() -> None:
    node = Node()
    consumer, inbox = node.subscribe("buried", "c", ready=1)
    node.publish("buried", b"1")
    consumer.channel.bury(inbox.take()[0].id, Message(0, 1), "")
    node.subscribe("slow", "c", ready=1, timeout=20 * MS)[0]
    node.publish("slow", b"1")
    requeuing, inbox = node.subscribe("requeued", "c", ready=1)
    node.publish("requeued", b"1")
    requeuing.requeue(inbox.take()[0].id, 5 * SECOND, node.now)
    node.channel("paused", "c").pause(Pause("ann", 1234))
    node.channel("alone", "c")
    node.publish("alone", b"1", b"2")
    node.advance(50 * MS)
    shown = look(node)
    assert channels(shown) == ["buried/c", "alone/c", "paused/c", "requeued/c", "slow/c"]
    buried, alone, paused, requeued, slow = shown["channels"]
    assert (buried["buried"], buried["clients"]) == (1, 1)
    assert (alone["depth"], alone["clients"], alone["messages"]) == (2, 0, 2)
    assert alone["oldest"] > 0
    assert (paused["paused"], paused["paused_at"], paused["oldest"]) == (True, 1234, 0)
    assert (requeued["requeued"], requeued["deferred"]) == (1, 1)
    assert slow["timed_out"] > 0
    assert shown | {"channels": []} == NOTHING


def test_consumers_that_are_lost_with_messages_in_flight() -> None:
    node = Node()
    consumer, inbox = node.subscribe("t", "c", ready=1)
    node.publish("t", b"1")
    consumer.finish(inbox.take()[0].id)
    consumer.leave(node.broker)
    assert look(node) == NOTHING, "it held none"
    node.publish("t", b"2", b"3", b"4")
    for count in (1, 2):
        consumer, _ = node.subscribe("t", "c", ready=1)
        consumer.leave(node.broker)
        (row,) = look(node)["channels"]
        assert (row["lost_consumers"], row["orphaned"], row["in_flight"]) == (count, count, count)
    node.subscribe("t", "c", ready=1)
    (row,) = look(node)["channels"]
    assert (row["orphaned"], row["in_flight"], row["clients"]) == (2, 3, 1)


def test_thresholds_of_depth_and_age() -> None:
    node = Node()
    node.subscribe("t", "c")  # a client that takes nothing
    node.publish("t", b"1", b"2", b"3")
    node.channel("none", "c")
    assert (look(node), channels(look(node, depth=4))) == (NOTHING, [])
    assert channels(look(node, depth=3)) == ["t/c"]
    (row,) = look(node, depth=3)["channels"]
    assert channels(look(node, since=row["oldest"])) == []
    assert channels(look(node, since=row["oldest"] + 1)) == ["t/c"]


def test_tubes_of_any_name() -> None:
    node = Node()
    tubes = node.broker.tubes
    for name in ("a b", "held", "short", "fine"):
        tubes.put_to(name, b"job", JobOptions())
    found = tubes.first("a b", JobState.READY)
    assert found is not None
    tube, job = found
    tube.bury(job, 0)
    tubes.made("held").pause_queue(NOT_KNOWN)
    tubes.made("short").pause_for(SECOND, node.now)
    node.turn()
    shown = look(node)
    assert [(row["tube"], row["buried"], row["ready"], row["paused"]) for row in shown["tubes"]] == [
        ("a b", 1, 0, False), ("held", 0, 1, True), ("short", 0, 1, True),
    ]  # fmt: skip
    node.advance(2 * SECOND)
    assert [row["tube"] for row in look(node)["tubes"]] == ["a b", "held"]


def test_the_worst_come_first_and_the_rest_is_counted() -> None:
    node = Node()
    for number in range(BATCH + 10):
        node.channel(f"t{number:04}", "c")
        node.publish(f"t{number:04}", *[b"x"] * (1 + number % 3))
    node.channel("t0000", "c").bury(b"0" * 16, Message(99, 1), "")
    node.publish("lonely", b"x")
    shown = look(node, limit=2)
    assert channels(shown) == ["t0000/c", "t0002/c"]
    assert (len(shown["topics"]), shown["left_out"]) == (1, BATCH + 8)
    assert look(node, limit=0) == NOTHING | {"left_out": BATCH + 11}


def test_over_http() -> None:
    node = LocalNode()
    for topic in ("fine", "paused"):
        post(node, "/topic/create", topic=topic)
        post(node, "/channel/create", topic=topic, channel="c")
    shown = get(node, "/channels/attention")
    assert shown == NOTHING | {"certificates": [], "version": get(node, "/info")["version"], "now": shown["now"]}
    post(node, "/mpub", b"a\nb", topic="fine")
    post(node, "/pub", b"x", topic="lonely")
    post(node, "/channel/pause", topic="paused", channel="c", by="ann")
    shown = get(node, "/channels/attention", depth=5, age=60, limit=1)
    assert (channels(shown), [one["topic"] for one in shown["topics"]], shown["left_out"]) == (
        ["fine/c"],
        ["lonely"],
        1,
    )
    assert get(node, "/channels/attention")["channels"][1]["paused_at"] == get(node, "/pauses")["pauses"][0]["at"]
    with consumer(node, "fine", ready=0):
        assert channels(get(node, "/channels/attention", age=60)) == ["paused/c"]
        node.advance(61 * SECOND)
        assert channels(get(node, "/channels/attention", age=60)) == ["fine/c", "paused/c"]
