"""CLUSTER, and the nodes in HELLO. Where it is not said otherwise, the replies are those of Disque 1.0-rc1."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address

import pytest

from nsqd.protocols.disque.client import TOO_FEW_NODES
from nsqd.protocols.disque.cluster_commands import ALONE, BAD_SUBCOMMAND, BAD_WORD, NO_RESET
from nsqd.protocols.disque.context import Alone, NodeFacts, Priority
from nsqd.protocols.disque.jobs import CANNOT_HOLD, LEAVING
from tests.cases import each
from tests.nsqd.protocols.disque.wire import NUMBER, Wire, new_wire, request

NOT_KNOWN = "-" + BAD_SUBCOMMAND.decode()


class Cluster:
    """A cluster in which all is refused that `refusal` says. Implements ClusterFacts."""

    def __init__(self) -> None:
        self.number = NUMBER
        self.refusal = ""
        self.is_leaving = False
        self.asked: list[tuple[str, object]] = []

    def nodes(self) -> Sequence[NodeFacts]:
        own = Priority.GONE if self.is_leaving else Priority.GOOD
        return [
            NodeFacts(NUMBER, "10.0.0.7", 7711, own, self.is_leaving),
            NodeFacts(8, "10.0.0.8", 7711, Priority.GOOD),
            NodeFacts(9, "fe80::9", 7712, Priority.SUSPECTED),
            NodeFacts(10, "10.0.0.10", 0, Priority.NO_LINK),
            NodeFacts(11, "", 0, Priority.GONE, is_leaving=True),
        ]

    def size(self) -> int:
        return len(self.nodes())

    def meet(self, ip: str, port: int) -> bool:
        self.asked.append(("meet", (ip, port)))
        return True

    def forget(self, number: int) -> str:
        self.asked.append(("forget", number))
        return self.refusal

    def leave(self) -> str:
        self.asked.append(("leave", None))
        self.is_leaving = not self.refusal
        return self.refusal

    def stay(self) -> str:
        self.asked.append(("stay", None))
        return self.refusal


def is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def lone_wire() -> Wire:
    wire = new_wire()
    wire.context.cluster = Alone(NUMBER, 27711, wire.node.broker.drain)
    wire.context.is_ip = is_ip
    return wire


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = lone_wire()
    yield wire
    wire.check()


@pytest.fixture
def member(wire: Wire) -> Wire:
    wire.context.cluster = Cluster()
    return wire


def cluster(wire: Wire) -> Cluster:
    assert isinstance(wire.context.cluster, Cluster)
    return wire.context.cluster


def own_id(wire: Wire) -> bytes:
    return wire.context.ids.node_id(NUMBER)


@each("words, reply", [
    ("NODES x", NOT_KNOWN), ("INFO x", NOT_KNOWN), ("MYID x", NOT_KNOWN), ("SAVECONFIG", "OK"), ("MEET", NOT_KNOWN),
    ("MEET 127.0.0.1", NOT_KNOWN), ("MEET 127.0.0.1 x", "-ERR Invalid TCP port specified: x"),
    ("MEET 127.0.0.1 -", "-ERR Invalid TCP port specified: -"),
    ("MEET 127.0.0.1 --5", "-ERR Invalid TCP port specified: --5"),
    ("MEET nohost x", "-ERR Invalid TCP port specified: x"),
    ("MEET localhost 7711", "-ERR Invalid node address specified: localhost:7711"),
    ("MEET 1.2.3 7711", "-ERR Invalid node address specified: 1.2.3:7711"),
    ("MEET 127.0.0.1 0", "-ERR Invalid node address specified: 127.0.0.1:0"),
    ("MEET 127.0.0.1 -1", "-ERR Invalid node address specified: 127.0.0.1:-1"),
    ("MEET 127.0.0.1 99999", "-ERR Invalid node address specified: 127.0.0.1:99999"), ("FORGET", NOT_KNOWN),
    ("FORGET x", "-ERR Invalid node identifier"), ("FORGET " + "a" * 39, "-ERR Invalid node identifier"),
    ("FORGET " + "a" * 40, "-ERR Unknown node " + "a" * 40), ("RESET x", "-ERR syntax error"),
    ("RESET SOFT HARD", NOT_KNOWN), ("LEAVING", "no"), ("LEAVING maybe", "-" + BAD_WORD.decode()),
    ("LEAVING yes no", NOT_KNOWN), ("LEAVING no", "OK"), ("BOGUS", NOT_KNOWN), ("SLOTS", NOT_KNOWN),
    ("KEYSLOT x", NOT_KNOWN),
    ("MEET 127.0.0.1 65535", "-" + ALONE.decode()),  # differs from Disque, whose port for nodes is 10000 higher
], wire=lone_wire)  # fmt: skip
def test_a_command_and_its_reply_on_a_node_that_is_alone(wire: Wire, words: str, reply: str) -> None:
    assert wire.do("CLUSTER", *words.split()) == reply


def test_a_node_that_is_alone(wire: Wire) -> None:
    node_id = own_id(wire)
    assert wire.do("CLUSTER", "myid") == node_id
    assert wire.do("CLUSTER", "NODES") == node_id + b" :27711 myself 0 0 connected\n"
    assert wire.do("CLUSTER", "INFO") == (
        b"cluster_state:ok\r\ncluster_known_nodes:1\r\ncluster_reachable_nodes:0\r\ncluster_size:1\r\n"
        b"cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n"
    )
    assert wire.do("CLUSTER", "FORGET", node_id) == "-ERR I tried hard but I can't forget myself..."
    assert wire.do("HELLO") == [1, node_id, [node_id, b"", b"27711", b"1"]]


def test_a_node_that_is_alone_takes_no_jobs_until_it_stays(wire: Wire) -> None:
    first, second = wire.add("q", b"1"), wire.add("q", b"2")
    leaves, too_few = "-" + (TOO_FEW_NODES + CANNOT_HOLD).decode(), "-" + TOO_FEW_NODES.decode()
    waiting = wire.another()
    wire.context.clients = lambda: [wire.peer, waiting.peer]
    assert waiting.replies(request("GETJOB", "FROM", "other")) == []
    for _ in range(2):
        assert wire.do("CLUSTER", "LEAVING", "YES") == "OK"
        assert wire.do("CLUSTER", "LEAVING") == "yes"
    assert waiting.replies() == ["-" + LEAVING.decode()]
    assert waiting.do("PING") == "PONG"
    assert wire.do("CLUSTER", "NODES") == own_id(wire) + b" :27711 myself,leaving 0 0 connected\n"
    assert wire.do("HELLO")[2][3] == b"100"
    for options in ((), ("REPLICATE", 1), ("ASYNC",), ("RETRY", 0)):
        assert wire.do("ADDJOB", "q", "b", 0, *options) == leaves
    assert wire.do("ADDJOB", "q", "b", 0, "REPLICATE", 2) == too_few
    assert wire.do("ADDJOB", "q", "b", 0, "TTL", 0) == "-ERR TTL must be a number > 0"
    assert [job[1] for job in wire.get("q", count=2)] == [first, second]
    for _ in range(3):  # also when the command is repeated
        assert wire.do("GETJOB", "FROM", "q") == "-" + LEAVING.decode()
    assert wire.do("GETJOB", "NOHANG", "FROM", "q") is None
    assert [wire.do("NACK", first), wire.do("QLEN", "q"), wire.do("ACKJOB", first)] == [1, 1, 1]
    assert wire.do("CLUSTER", "LEAVING", "no") == "OK"
    assert wire.do("CLUSTER", "LEAVING") == "no"
    assert wire.do("HELLO")[2][3] == b"1"
    wire.add("q")


def test_the_nodes_of_a_cluster(member: Wire) -> None:
    ids = [member.context.ids.node_id(number) for number in (7, 8, 9, 10, 11)]
    assert member.do("CLUSTER", "NODES").splitlines() == [
        ids[0] + b" 10.0.0.7:7711 myself 0 0 connected",
        ids[1] + b" 10.0.0.8:7711 noflags 0 0 connected",
        ids[2] + b" fe80::9:7712 fail? 0 0 disconnected",
        ids[3] + b" 10.0.0.10:0 noflags 0 0 disconnected",
        ids[4] + b" :0 leaving 0 0 disconnected",
    ]
    assert member.do("HELLO") == [
        1, ids[0],
        [ids[0], b"10.0.0.7", b"7711", b"1"],
        [ids[1], b"10.0.0.8", b"7711", b"1"],
        [ids[2], b"fe80::9", b"7712", b"10"],
        [ids[3], b"10.0.0.10", b"0", b"5"],
        [ids[4], b"", b"0", b"100"],
    ]  # fmt: skip
    lines = member.do("CLUSTER", "INFO").splitlines()
    assert lines[1:4] == [b"cluster_known_nodes:5", b"cluster_reachable_nodes:1", b"cluster_size:5"]


def test_the_cluster_is_asked_to_do_what_a_command_says(member: Wire) -> None:
    eighth = member.context.ids.node_id(8)
    assert member.do("CLUSTER", "MEET", "::1", 7713) == "OK"
    assert member.do("CLUSTER", "MEET", "10.0.0.8", 65535) == "OK"
    assert member.do("CLUSTER", "FORGET", eighth) == "OK"
    assert member.do("CLUSTER", "LEAVING", "no") == "OK"
    assert member.do("CLUSTER", "LEAVING", "yes") == "OK"
    assert member.do("CLUSTER", "LEAVING", "yes") == "OK"
    assert cluster(member).asked == [
        ("meet", ("::1", 7713)), ("meet", ("10.0.0.8", 65535)), ("forget", 8), ("leave", None),
    ]  # fmt: skip


def test_what_the_cluster_refuses_is_an_error_with_its_reason(member: Wire) -> None:
    cluster(member).refusal = "node 8 is here"
    assert member.do("CLUSTER", "FORGET", member.context.ids.node_id(8)) == "-ERR node 8 is here"
    assert member.do("CLUSTER", "LEAVING", "yes") == "-ERR node 8 is here"
    assert member.do("CLUSTER", "LEAVING") == "no"
    cluster(member).is_leaving = True
    assert member.do("CLUSTER", "LEAVING", "no") == "-ERR node 8 is here"
    assert member.do("CLUSTER", "LEAVING") == "yes"


@each("words", ["RESET", "RESET soft", "reset HARD"], wire=lone_wire)
def test_a_reset_throws_all_jobs_away_or_is_refused(wire: Wire, words: str) -> None:
    job_id, alone, refused = wire.add("q"), wire.context.cluster, "-" + NO_RESET.decode()
    assert wire.do("CLUSTER", *words.split()) == refused
    wire.context.has_debug = True
    wire.context.cluster = Cluster()  # a node in a cluster resets nothing at all
    assert wire.do("CLUSTER", *words.split()) == refused
    assert wire.show(job_id) is not None
    wire.context.cluster = alone
    assert wire.do("CLUSTER", *words.split()) == "OK"
    assert wire.do("QLEN", "q") == 0
    assert wire.show(job_id) is None
