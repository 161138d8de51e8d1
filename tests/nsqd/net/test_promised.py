"""Replies that wait for marks: each for its own, whatever they are called."""

import pytest

from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.net.promised import HttpReplies
from nsqd.storage.memory import MemoryStore, MemoryTopic
from nsqd.storage.sequence import Sequence
from tests.nsqd.core.node import Node
from tests.nsqd.net.test_reactor import Bench, frames
from tests.nsqd.protocols.nsq.wire import body

pytestmark = pytest.mark.process


class Topic(MemoryTopic):
    """Waits for the marks that its name names."""

    __slots__ = ("_marks", "_store")

    def __init__(self, store: "Store", name: str) -> None:
        super().__init__(Sequence())
        self._store = store
        self._marks = store.choices[name]

    def set_policy(self, keeping: StoragePolicy) -> tuple[Mark, ...]:
        return self._marks

    def publish(self, *arguments: object, **more: object) -> None:
        self._store.end += 1
        self._store.awaited |= set(self._marks)
        super().publish(*arguments, **more)


class Store(MemoryStore):
    """Has a mark more than the log has today: how far another node has copied it."""

    def __init__(self) -> None:
        super().__init__(lambda ceiling: True)
        self.durable, self.copied = Mark("durable"), Mark("copied")
        self.choices = {"d": (self.durable,), "c": (self.copied,), "both": (self.durable, self.copied)}
        self.awaited: set[Mark] = set()
        self.end = 0

    def topic(self, number: int, name: str) -> Topic:
        return Topic(self, name)

    def commit(self) -> tuple[Promise, ...]:
        awaited, self.awaited = self.awaited, set()
        promises = [Promise(mark, self.end) for mark in awaited]
        return tuple(promise for promise in promises if not promise.is_kept)


def a_bench() -> tuple[Bench, Store]:
    bench = Bench(Node(store=Store))
    assert isinstance(bench.node.store, Store)
    return bench, bench.node.store


def publish(bench: Bench, topic: str) -> bytes:
    return b"PUB %s\n" % topic.encode() + body(b"x")


def test_each_reply_waits_for_the_marks_of_its_topic() -> None:
    bench, store = a_bench()
    clients = {name: bench.connect(b"  V2" + publish(bench, name)) for name in store.choices}
    assert {name: frames(client) for name, client in clients.items()} == {"d": [], "c": [], "both": []}
    store.durable.position = store.end
    bench.turn()
    assert {name: frames(client) for name, client in clients.items()} == {"d": [b"OK"], "c": [], "both": []}
    store.copied.position = store.end
    bench.turn()
    assert {name: frames(client) for name, client in clients.items()} == {"d": [], "c": [b"OK"], "both": [b"OK"]}
    assert not bench.reactor._promised.marks
    bench.close()


def test_replies_of_a_turn_wait_for_all_their_marks() -> None:
    bench, store = a_bench()
    client = bench.connect(b"  V2" + publish(bench, "d") + publish(bench, "c"))
    store.durable.position = store.end
    bench.turn()
    assert frames(client) == []
    store.copied.position = store.end
    bench.turn()
    assert frames(client) == [b"OK", b"OK"]
    bench.close()


def test_a_broken_mark_ends_only_those_who_wait_for_it() -> None:
    bench, store = a_bench()
    durable, copied = (bench.connect(b"  V2" + publish(bench, name)) for name in "dc")
    store.copied.broken = True
    bench.turn()
    copied.setblocking(True)
    assert copied.recv(1) == b""
    store.durable.position = store.end
    bench.turn()
    assert frames(durable) == [b"OK"]
    bench.close()


@pytest.mark.parametrize("broken", [False, True])
def test_http_waits_for_all_promises_of_the_turn(broken: bool) -> None:
    bench, store = a_bench()
    told: list[str] = []
    bench.http.append(HttpReplies(lambda: told.append("done"), lambda: told.append("refused")))
    for name in "dc":
        bench.node.broker.topic(name).publish([b"x"], 1)
    bench.reactor.wake()
    bench.turn()
    store.durable.position = store.end
    bench.turn()
    assert told == []
    if broken:
        store.copied.broken = True
    else:
        store.copied.position = store.end
    bench.turn()
    assert told == ["refused" if broken else "done"]
    bench.close()


def test_a_promise_that_was_kept_before_its_mark_broke_is_kept() -> None:
    mark = Mark("durable", 7)
    early, late = Promise(mark, 7), Promise(mark, 8)
    mark.broken = True
    assert (early.is_kept, early.is_broken) == (True, False)
    assert (late.is_kept, late.is_broken) == (False, True)


def test_what_promises_nothing_leaves_behind_what_waits_and_not_with_what_waits_longer() -> None:
    bench, store = a_bench()
    store.choices["none"] = ()
    client = bench.connect(b"  V2" + publish(bench, "d"))  # waits for durable 1
    client.sendall(publish(bench, "none"))  # stays in the outbox behind it
    bench.turn()
    client.sendall(publish(bench, "d"))  # waits for durable 3, and must not leave with the first
    bench.turn()
    assert (frames(client), store.end) == ([], 3)
    store.durable.position = 1
    bench.turn()
    assert frames(client) == [b"OK"]
    store.durable.position = 3
    bench.turn()
    assert frames(client) == [b"OK", b"OK"]
    bench.close()


def test_a_reply_waits_though_an_earlier_one_with_the_same_mark_need_not() -> None:
    bench, store = a_bench()
    client = bench.connect(b"  V2" + publish(bench, "d"))  # waits for durable 1
    store.copied.position = 2
    client.sendall(publish(bench, "c"))  # copied at once; stays in the outbox behind the first, with its mark
    bench.turn()
    client.sendall(publish(bench, "c"))  # waits for copied 3, and what stood before it in the outbox with it
    bench.turn()
    store.durable.position = 1
    bench.turn()
    assert frames(client) == [b"OK"]
    store.copied.position = 3
    bench.turn()
    assert frames(client) == [b"OK", b"OK"]
    bench.close()


def test_nobody_who_waits_is_looked_at_before_a_mark_moves() -> None:
    bench, store = a_bench()
    clients = [bench.connect(b"  V2" + publish(bench, "d")) for _ in range(3)]
    promised = bench.reactor._promised
    assert promised.marks == {store.durable: 0}
    assert promised.release() == ({}, [])
    store.durable.position = 2
    ready, lost = promised.release()
    assert len(ready) == 2
    assert not lost
    assert list(promised.connections) == [one for one in bench.reactor.connections.values() if one not in ready]
    store.durable.position = 3
    for connection in bench.reactor.connections.values():
        bench.reactor.unflushed[connection] = None
    bench.turn()
    assert [frames(client) for client in clients] == [[b"OK"]] * 3
    bench.close()


def test_http_is_told_that_nobody_knows_when_the_reactor_hangs_up() -> None:
    bench, _ = a_bench()
    told: list[str] = []
    replies = (lambda: told.append("done"), lambda: told.append("refused"), lambda: told.append("given up"))
    bench.http.append(HttpReplies(*replies))
    bench.node.broker.topic("c").publish([b"x"], 1)
    bench.reactor.wake()
    bench.turn()
    assert told == []
    bench.reactor.hang_up()
    bench.close()
    assert told == ["given up"]
