"""Replies that wait for marks: each for its own, whatever they are called."""

import pytest

from nsqd.core.sequence.mark import Mark, Promise
from nsqd.net.promised import HttpReplies
from tests.nsqd.core.node import Node
from tests.nsqd.net.bench import Bench, frames
from tests.nsqd.net.marked_store import MarkedStore
from tests.nsqd.protocols.nsq.wire import body

pytestmark = pytest.mark.process


def a_bench() -> tuple[Bench, MarkedStore]:
    bench = Bench(Node(store=MarkedStore))
    return bench, bench.node.store


def publish(topic: str) -> bytes:
    return b"PUB %s\n" % topic.encode() + body(b"x")


def test_each_reply_waits_for_the_marks_of_its_topic() -> None:
    bench, store = a_bench()
    clients = {name: bench.connect(b"  V2" + publish(name)) for name in store.choices}
    assert {name: frames(client) for name, client in clients.items()} == {"d": [], "c": [], "both": []}
    store.durable.position = store.end
    bench.turn()
    assert {name: frames(client) for name, client in clients.items()} == {"d": [b"OK"], "c": [], "both": []}
    store.copied.position = store.end
    bench.turn()
    assert {name: frames(client) for name, client in clients.items()} == {"d": [], "c": [b"OK"], "both": [b"OK"]}
    assert not bench.reactor._promised.marks


def test_a_broken_mark_ends_only_connections_that_wait_for_it() -> None:
    bench, store = a_bench()
    durable, copied = (bench.connect(b"  V2" + publish(name)) for name in "dc")
    store.copied.broken = True
    bench.turn()
    copied.setblocking(True)
    assert copied.recv(1) == b""
    store.durable.position = store.end
    bench.turn()
    assert frames(durable) == [b"OK"]


@pytest.mark.parametrize("broken", [False, True])
def test_http_waits_for_all_promises_of_the_turn(broken: bool) -> None:
    bench, store = a_bench()
    replies_sent: list[str] = []
    bench.http.append(HttpReplies(lambda: replies_sent.append("done"), lambda: replies_sent.append("refused")))
    for name in "dc":
        bench.node.broker.topic(name).publish([b"x"], 1)
    bench.reactor.wake()
    bench.turn()
    store.durable.position = store.end
    bench.turn()
    assert replies_sent == []
    store.copied.broken = broken
    store.copied.position = 0 if broken else store.end
    bench.turn()
    assert replies_sent == ["refused" if broken else "done"]


def test_http_does_not_wait_for_a_reply_with_a_limit_of_its_own() -> None:
    bench, store = a_bench()
    replies_sent: list[str] = []
    bench.http.append(HttpReplies(lambda: replies_sent.append("done"), lambda: None))
    store.choices["limited"] = (store.durable, Mark("copied, or an error", has_limits=True))
    for name in ("d", "limited"):
        bench.node.broker.topic(name).publish([b"x"], 1)
    bench.reactor.wake()
    bench.turn()
    assert replies_sent == []
    store.durable.position = store.end
    bench.turn()
    assert replies_sent == ["done"]


def test_a_promise_that_was_kept_before_its_mark_broke_is_kept() -> None:
    mark = Mark("durable", 7)
    early, late = Promise(mark, 7), Promise(mark, 8)
    mark.broken = True
    assert (early.is_kept, early.is_broken, late.is_kept, late.is_broken) == (True, False, False, True)


def test_what_promises_nothing_leaves_behind_what_waits_and_not_with_what_waits_longer() -> None:
    bench, store = a_bench()
    store.choices["none"] = ()
    client = bench.connect(b"  V2" + publish("d"))  # waits for durable 1
    bench.send(client, publish("none"))  # stays in the outbox after it
    bench.send(client, publish("d"))  # waits for durable 3, and must not leave with the first
    assert (frames(client), store.end) == ([], 3)
    store.durable.position = 1
    bench.turn()
    assert frames(client) == [b"OK"]
    store.durable.position = 3
    bench.turn()
    assert frames(client) == [b"OK", b"OK"]


def test_a_reply_waits_though_an_earlier_one_with_the_same_mark_need_not() -> None:
    bench, store = a_bench()
    client = bench.connect(b"  V2" + publish("d"))  # waits for durable 1
    store.copied.position = 2
    bench.send(client, publish("c"))  # copied at once; stays in the outbox after the first, with its mark
    bench.send(client, publish("c"))  # waits for copied 3, and the replies before it with it
    store.durable.position = 1
    bench.turn()
    assert frames(client) == [b"OK"]
    store.copied.position = 3
    bench.turn()
    assert frames(client) == [b"OK", b"OK"]


def test_http_gets_an_unknown_outcome_when_the_reactor_hangs_up() -> None:
    bench, _ = a_bench()
    replies_sent: list[str] = []
    replies = (
        lambda: replies_sent.append("done"),
        lambda: replies_sent.append("refused"),
        lambda: replies_sent.append("given up"),
    )
    bench.http.append(HttpReplies(*replies))
    bench.node.broker.topic("c").publish([b"x"], 1)
    bench.reactor.wake()
    bench.turn()
    assert replies_sent == []
    bench.reactor.hang_up()
    assert replies_sent == ["given up"]
