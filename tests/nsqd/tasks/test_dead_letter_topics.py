"""Dead-letter topics on a whole node: what goes there and how, what stays, kills between all steps, loops, and refusals."""

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
import trio

from nsqd.core.channel import failures
from nsqd.core.retention.history import OffsetRange
from nsqd.core.timing.deferred import Message
from nsqd.core.topic import Topic
from nsqd.storage.log.journal import LogTopic
from nsqd.tasks import dead_letter_topics
from nsqd.tasks.dead_letter_topics import DeadLetterTopics
from shared.topic_config import TopicConfig
from tests.cases import each
from tests.effort import seeds
from tests.local_node import SECOND, LocalNode
from tests.nsqd.core.node import Node
from tests.nsqd.core.node import bodies as bodies_of
from tests.nsqd.core.promoted import PromotedLog, promote
from tests.nsqd.http.asking import consumer, post
from tests.nsqd.http.test_messages import act, look, publish
from tests.nsqd.storage.sim_disk import PowerCut

Shown = dict[str, Any]


def configured(**settings: str) -> LocalNode:
    """Return a node whose topic `t` has the dead-letter topic `dead`, and gives messages up after one failure."""
    node = LocalNode()
    for name in ("t", "dead"):
        publish(node, name)
    post(node, "/topic/config", topic="t", **({"max_attempts": "1", "dead_letter": "dead"} | settings))
    return node


def fail(node: LocalNode, topic: str, count: int) -> None:
    """Let `count` messages of a topic fail, one after the other."""
    with consumer(node, topic, ready=1) as client:
        for _ in range(count):
            client.send(b"REQ %s 0\n" % client.message().id)
        client.send(b"CLS\n")
        client.frame()


def listed(node: LocalNode, topic: str, state: str = "ready") -> list[Shown]:
    return list(look(node, topic, state, limit=1000)["messages"])


def bodies(node: LocalNode, topic: str, state: str = "ready") -> list[str]:
    return [one["body"] for one in listed(node, topic, state)]


def publish_with(node: LocalNode, topic: str, body: bytes, **headers: str) -> None:
    sent = {f"X-Nsq-Header-{name}": value for name, value in headers.items()}
    node.client.post("/pub", params={"topic": topic}, content=body, headers=sent).raise_for_status()


def test_messages_that_failed_go_there_in_order_with_the_reason_and_their_own_headers() -> None:
    node = configured()
    publish(node, "t", *(b"%d" % number for number in range(50)))
    publish_with(node, "t", b"last", order="7")
    first = listed(node, "t")[0]
    fail(node, "t", 51)
    node.advance(2 * SECOND)
    assert bodies(node, "dead") == [*map(str, range(50)), "last"]
    assert look(node, "t", "buried")["counts"] == dict.fromkeys(("ready", "in_flight", "deferred", "buried"), 0)
    headers, last = (listed(node, "dead")[index]["headers"] for index in (0, -1))
    assert headers.pop("dead-letter-at").startswith("2026-01-01T00:")
    assert headers == {
        "dead-letter-topic": "t", "dead-letter-channel": "c", "dead-letter-reason": "requeued", "dead-letter-attempts": "1",
        "dead-letter-id": first["id"], "dead-letter-node": str(node.options.node_number()),
    }  # fmt: skip
    assert last["order"] == "7"
    assert not node.broker.agenda.dead_letters
    node.broker.check()


def test_what_an_operator_buries_stays_and_what_was_buried_before_the_setting_goes() -> None:
    node = configured(dead_letter="none")
    publish(node, "t", b"failed", b"by hand")
    fail(node, "t", 1)
    assert act(node, "bury", "t", state="ready", count=1) == {"buried": 1}
    node.advance(2 * SECOND)
    assert bodies(node, "t", "buried") == ["failed", "by hand"]
    post(node, "/topic/config", topic="t", channel="c", dead_letter="dead")
    node.advance(2 * SECOND)
    assert (bodies(node, "t", "buried"), bodies(node, "dead")) == (["by hand"], ["failed"])


@each("reason", ["expired", "overflow"])
def test_expired_and_surplus_messages_go_there_without_their_ttl(reason: str) -> None:
    settings = {"expired": {"on_expire": "forward"}, "overflow": {"max_length": "0", "overflow": "bury"}}
    node = configured(**settings[reason])
    post(node, "/channel/create", topic="t", channel="c")
    if reason == "overflow":
        publish(node, "t", b"fits")
        post(node, "/topic/config", topic="t", max_length="1")
    for body in (b"one", b"two"):
        node.client.post("/pub?topic=t&ttl=1s&group=g", content=body).raise_for_status()
    node.advance(4 * SECOND)
    assert bodies(node, "dead") == ["one", "two"]
    headers = listed(node, "dead")[0]["headers"]
    assert (headers["dead-letter-reason"], headers["group"], "ttl" in headers) == (reason, "g", False)


def test_a_kill_at_any_step_loses_nothing_and_restarts_move_the_rest() -> None:
    node = configured()
    publish(node, "t", b"one", b"two", b"three")
    fail(node, "t", 3)
    (segment,) = node.disk.segments()
    before = node.disk.size(segment)
    node.advance(2 * SECOND)
    assert bodies(node, "dead") == ["one", "two", "three"]
    found = set()
    for size in range(before, node.disk.size(segment) + 1, 7):
        disk = node.disk.kill()
        disk.shorten(segment, size)
        after = LocalNode(disk=disk, clock=node.clock.after(0, 1000 * SECOND, rebooted=False))
        buried, dead = bodies(after, "t", "buried"), bodies(after, "dead")
        assert {*buried, *dead} == {"one", "two", "three"}
        found.add((len(buried), len(dead)))
        after.advance(2 * SECOND)
        assert (bodies(after, "t", "buried"), bodies(after, "dead")) == ([], [*dead, *buried])
        after.broker.check()
    assert found >= {(3, 0), (0, 3)}


@pytest.mark.parametrize("seed", seeds(6))
def test_no_message_is_lost_in_lives_that_end_by_kills_and_power_cuts(seed: int) -> None:
    random, node, published = Random(seed), configured(), set[str]()
    for life in range(6):
        count = random.randrange(1, 40)
        for number in range(count):
            published.add(body := f"{life}-{number}")
            publish_with(node, "t", body.encode(), **({"own": "x"} if random.random() < 0.5 else {}))
        fail(node, "t", random.randrange(1, count + 1))
        node.disk.cut_in = random.randrange(12)
        with suppress(PowerCut):
            node.advance(random.randrange(3 * SECOND))
        disk = node.disk.kill() if random.random() < 0.5 else node.disk.crash(random)
        node = LocalNode(disk=disk, clock=node.clock.after(SECOND, 1000 * SECOND, rebooted=False))
        node.advance(random.randrange(2 * SECOND))
        node.broker.check()
    node.advance(3 * SECOND)
    left = [body for state in ("ready", "deferred", "buried") for body in bodies(node, "t", state)]
    assert published <= {*left, *bodies(node, "dead")}
    assert bodies(node, "t", "buried") == []


def test_a_loop_ends() -> None:
    node = configured()
    post(node, "/topic/config", topic="dead", max_attempts="1", dead_letter="t")
    publish(node, "t", b"poison")
    for topic in ("t", "dead", "t"):
        fail(node, topic, 1)
        node.advance(3 * SECOND)
    assert [bodies(node, topic, "buried") for topic in ("t", "dead")] == [["poison"], []]
    (headers,) = (one["headers"] for one in listed(node, "t", "buried"))
    assert headers["dead-letter-topic"] == "t,dead"


def test_the_dead_letter_topic_is_filled_up_to_its_greatest_length() -> None:
    node = configured()
    post(node, "/topic/config", topic="dead", max_length="2")
    publish(node, "t", b"1", b"2", b"3")
    fail(node, "t", 3)
    node.advance(3 * SECOND)
    assert (bodies(node, "t", "buried"), bodies(node, "dead")) == (["3"], ["1", "2"])
    assert act(node, "finish", "dead", state="ready", count=1) == {"finished": 1}
    node.advance(2 * SECOND)
    assert (bodies(node, "t", "buried"), bodies(node, "dead")) == ([], ["2", "3"])


@each("why", ["drained", "held", "too few copies", "not copied", "unreadable"])
def test_they_wait_while_they_cannot_be_moved(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    node = configured()
    publish_with(node, "t", b"m", own="x")
    fail(node, "t", 1)

    def begin_or_end(begins: bool) -> None:
        if why == "drained":
            node.broker.drain(begins)
        elif why == "held":  # the process was paused: other nodes may have promoted the log
            node.broker.agenda.is_held = begins
        elif why == "too few copies":
            node.broker.topics["dead"].configure(TopicConfig(replicate=2 if begins else 1))
        elif why == "not copied":
            monkeypatch.setattr(LogTopic, "copied_end", lambda topic: 0) if begins else monkeypatch.undo()
        elif begins:
            node.disk.fail("read", 1, errno.EIO, 100)
        else:
            node.disk.repair()

    begin_or_end(True)
    node.advance(3 * SECOND)
    assert len(node.broker.topics["t"].channels["c"].buried) == 1
    begin_or_end(False)
    node.advance(2 * SECOND)
    assert bodies(node, "dead") == ["m"]


def test_what_is_taken_away_meanwhile_is_not_moved() -> None:
    node = configured()
    publish(node, "t", b"again", b"kicked", b"by hand", b"finished", b"failed")
    fail(node, "t", 5)
    assert act(node, "kick", "t", offset=0) == {"kicked": 1}
    fail(node, "t", 1)  # it waits twice now, and is moved once
    assert act(node, "kick", "t", offset=1) == {"kicked": 1}
    assert act(node, "bury", "t", offset=2) == {"buried": 1}
    assert act(node, "finish", "t", offset=3) == {"finished": 1}
    node.advance(3 * SECOND)
    found = bodies(node, "t"), bodies(node, "t", "buried"), bodies(node, "dead")
    assert found == (["kicked"], ["by hand"], ["again", "failed"])


def test_a_channel_that_is_deleted_while_its_messages_are_read_moves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    node, read = configured(), dead_letter_topics._read
    publish(node, "t", b"m")
    fail(node, "t", 1)

    async def read_and_delete(topic: Topic, ordinals: list[int]) -> dead_letter_topics.Messages:
        found = await read(topic, ordinals)
        node.broker.delete_topic("t")
        assert not node.broker.agenda.dead_letters
        return found

    monkeypatch.setattr(dead_letter_topics, "_read", read_and_delete)
    node.advance(2 * SECOND)
    assert (bodies(node, "dead"), "t" in node.broker.topics) == ([], False)


class DurableLater:
    """The history of a node's own log: everything is durable when `await_messages` has returned, or nothing is."""

    def __init__(self, node: Node, comes: str) -> None:
        self._node, self._comes = node, comes
        self._next = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def await_messages(self, topic: int, end: int, until: int, ready: Callable[[], None]) -> None:
        self._next = end if self._comes == "in time" else end - 1
        self.meanwhile()
        ready()

    def window(self, topic: int) -> OffsetRange:
        return OffsetRange("log", 0, self._next)


@each("durable, detached, buried", [("in time", False, 0), ("late", False, 1), ("in time", True, 1)])
def test_a_message_of_a_promoted_log_is_finished_when_the_node_has_it_durably(
    durable: str, detached: bool, buried: int
) -> None:
    node = Node()
    consumer, inbox = node.subscribe("t", "c", 2)
    node.publish("t", b"own")
    log = promote(node, 8, "t", "c", b"their")
    shard = log.broker.topics["t"].channels["c"]
    node.broker.context.history = history = DurableLater(node, durable)  # type: ignore[assignment]
    history.meanwhile = lambda: detached and log.detach()
    node.broker.topics["t"].configure(TopicConfig(max_attempts=1, dead_letter="dead"))
    for message in inbox.take():
        consumer.requeue(message.id, 0, node.now)
    task = DeadLetterTopics(node.broker, 7, node.turn)
    trio.run(task.forward)
    assert (len(consumer.channel.buried), len(shard.buried)) == (0, buried)
    assert (shard in node.broker.agenda.dead_letters) == (durable == "late")
    assert sorted(bodies_of(node.subscribe("dead", "c", 9)[1].take())) == [b"own", b"their"]
    log.detach()
    trio.run(task.forward)
    assert not node.broker.agenda.dead_letters
    node.broker.check()


def test_messages_that_were_buried_before_their_log_was_promoted_are_moved() -> None:
    node = Node()
    log = PromotedLog(node, 8)
    log.channels("t", "c")
    log.publish("t", b"their")
    log.broker.topics["t"].configure(TopicConfig(max_attempts=1, dead_letter="dead"))
    shard = log.broker.topics["t"].channels["c"]
    assert shard.backlog.pull(0)
    shard.fail(b"1" * 16, Message(0, 1, 1), failures.REQUEUED, node.now)
    log.attach()
    trio.run(DeadLetterTopics(node.broker, 7, lambda: None).forward)
    node.turn()
    assert (bodies_of(node.subscribe("dead", "c", 9)[1].take()), len(shard.buried)) == ([b"their"], 0)
