"""How many topics an identity may make on a node, by each protocol. No sockets, in virtual time."""

from nsqd.protocols.account import Accounts
from nsqd.protocols.beanstalk.client import BeanstalkContext
from shared.auth.tokens import digest
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire
from tests.nsqd.protocols.beanstalk.wire import put
from tests.nsqd.protocols.nsq.wire import body, mpub
from tests.nsqd.protocols.rights.limited_clients import Nsq, another, disque, worker
from tests.nsqd.protocols.rights.proofs import Proofs, token

FULL = b"topics of orders exceed limit of 2"


@each("is_later", [False, True])
def test_nsq_a_topic_too_many_fails_and_existing_ones_continue(is_later: bool) -> None:
    nsq = Nsq() if is_later else Nsq(topics=2)
    pub = b"PUB orders%d\n" + body(b"x")
    wire = nsq.client("orders", pub % 1, pub % 2)
    if is_later:  # earlier topics count
        nsq.proofs.set("orders", topics=2)
        wire.peer.rights_changed()
    wire.replies()
    assert wire.send(pub % 3).replies() == [b"E_PUB_FAILED PUB failed " + FULL]
    assert nsq.client().send(mpub(b"orders3", b"x")).replies()[1:] == [b"E_MPUB_FAILED MPUB failed " + FULL]
    assert nsq.client().send(b"DPUB orders3 5\n" + body(b"x")).replies()[1:] == [b"E_DPUB_FAILED DPUB failed " + FULL]
    assert nsq.client().send(b"SUB orders3 api\n").replies()[1:] == [b"E_SUB_FAILED SUB failed " + FULL]
    assert "orders3" not in nsq.node.broker.topics
    assert nsq.client().send(pub % 1 + pub % 2).replies()[1:] == [b"OK", b"OK"]
    use = nsq.accounts.account("orders").figures()
    assert (use.topics, use.refused) == (2, 4)


def test_what_is_deleted_counts_no_more_and_what_others_made_never_did() -> None:
    nsq = Nsq(topics=1)
    nsq.node.broker.topic("orders9")
    pub = b"PUB orders%d\n" + body(b"x")
    wire = nsq.client("orders", pub % 9, pub % 1)
    assert wire.replies()[1:] == [b"OK", b"OK"]
    nsq.node.broker.delete_topic("orders9")
    assert nsq.client().send(pub % 2).replies()[1:] != [b"OK"]
    nsq.node.broker.delete_topic("orders1")
    assert nsq.client().send(pub % 2).replies()[1:] == [b"OK"]
    assert nsq.accounts.account("orders").topics == 1


def operator(node: Node, topics: int) -> BeanstalkWire:
    proofs = Proofs()
    entry = '[[token]]\nname = "op"\nsha256 = "{}"\nroles = ["admin"]\nlimits = {{ topics = {} }}\n'
    proofs.file = Proofs.parsed(entry.format(digest(token("op")), topics))
    wire = BeanstalkWire(node, BeanstalkContext(proofs=proofs, accounts=Accounts()))
    assert wire.ask(b"auth " + token("op") + b"\r\n") == b"AUTHORIZED\r\n"
    return wire


def test_beanstalk_a_tube_too_many_is_out_of_memory_also_by_a_pause_or_a_move() -> None:
    context = BeanstalkContext(proofs=Proofs("worker", topics=1), accounts=Accounts())
    node = Node()
    wire = worker(BeanstalkWire(node, context))
    assert wire.ask(put(b"x")) == b"INSERTED 1\r\n"
    for one in (put(b"x"), put(b"x", priority=3), put(b"x") * 3):  # the usual shape, another one, and in a row
        said = wire.ask(b"use work2\r\n" + one)
        assert said == b"USING work2\r\n" + b"OUT_OF_MEMORY\r\n" * (3 if len(one) > 40 else 1)
    assert wire.ask(b"use work\r\n" + put(b"y")).startswith(b"USING work\r\nINSERTED ")
    assert set(node.broker.topics) == {"work"}
    node = Node()
    wire = operator(node, topics=1)
    assert wire.ask(b"use one\r\n" + put(b"x")).endswith(b"INSERTED 1\r\n")
    assert wire.ask(b"use two\r\npause-tube two 5\r\n") == b"USING two\r\nOUT_OF_MEMORY\r\n"
    assert wire.ask(b"move-job 1 two\r\n") == b"OUT_OF_MEMORY\r\n"
    assert wire.ask(b"pause-tube one 5\r\n") == b"PAUSED\r\n"
    assert set(node.broker.topics) == {"one"}


def test_disque_a_queue_too_many_is_oom() -> None:
    wire = disque(topics=2)
    assert wire.add("work1", "x").startswith("D-")
    assert wire.add("work2", "x").startswith("D-")
    full = "-OOM topics of worker exceed limit of 2"
    assert wire.do("ADDJOB", "work3", "x", 0) == full
    assert another(wire).do("ADDJOB", "work3", "x", 0) == full
    for _ in range(3):
        assert wire.add("work1", "x").startswith("D-")
    assert set(wire.node.broker.topics) == {"work1", "work2"}
