"""CLIENT. Where it is not said otherwise, the replies are those of Disque 1.0-rc1."""

import re

import pytest

from nsqd.core.limits import Limits
from nsqd.protocols.disque.clients import BAD_NAME, BAD_SUBCOMMAND, LONG_NAME, MOST_NAME, NO_PAUSE
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.disque.wire import Wire, request

SYNTAX, NO_INTEGER = "-ERR syntax error", "-ERR value is not an integer or out of range"
NOT_KNOWN = "-" + BAD_SUBCOMMAND.decode()


def group(first: Wire, others: int = 0) -> list[Wire]:
    """The first client and others of its node, each with a port of its own. The server knows those that are connected."""
    wires = [first, *(first.another() for _ in range(others))]
    for place, one in enumerate(wires):
        one.peer.port = str(5555 + place)
    first.context.clients = lambda: [one.peer for one in wires if not one.peer.outbox.closing]
    return wires


def alone() -> Wire:
    return group(Wire(Node(Limits(whole_job_ids=True))))[0]


@pytest.fixture
def wire() -> Wire:
    return alone()


@each("words, reply", [
    ("GETNAME", None), ("SETNAME bob", "OK"), ("LIST x", NOT_KNOWN), ("GETNAME x", NOT_KNOWN), ("SETNAME", NOT_KNOWN),
    ("SETNAME a b", NOT_KNOWN), ("INFO", NOT_KNOWN), ("BOGUS", NOT_KNOWN), ("NO-EVICT on", NOT_KNOWN),
    ("TRACKING on", NOT_KNOWN), ("MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip", NOT_KNOWN),
    ("REPLY", NOT_KNOWN), ("REPLY x", SYNTAX), ("REPLY ON", "OK"), ("PAUSE", NOT_KNOWN),
    ("PAUSE x", "-ERR timeout is not an integer or out of range"), ("PAUSE -1", "-ERR timeout is negative"),
    ("KILL", SYNTAX), ("KILL 1.2.3.4:5", "-ERR No such client"), ("KILL ADDR 1.2.3.4:5", 0),
    ("KILL ID x", NO_INTEGER), ("KILL ID 99999", 0),
    ("KILL TYPE bogus", "-ERR Unknown client type 'bogus'"), ("KILL TYPE slave", "-ERR Unknown client type 'slave'"),
    ("KILL TYPE normal ID 99999", 0), ("KILL SKIPME maybe", SYNTAX), ("KILL SKIPME yes ID 99999", 0),
    ("KILL BOGUS x", SYNTAX), ("KILL ID 1 ADDR", SYNTAX),
    # the first wrong filter is the error
    ("KILL ID x TYPE y", NO_INTEGER), ("KILL TYPE y ID x", "-ERR Unknown client type 'y'"), ("KILL ID x ADDR", NO_INTEGER),
    ("KILL SKIPME maybe ID x", SYNTAX), ("KILL what 1 ID x", SYNTAX), ("KILL ID 9223372036854775808 x", NO_INTEGER),
], wire=alone)  # fmt: skip
def test_a_command_and_its_reply(wire: Wire, words: str, reply: str | int | None) -> None:
    assert wire.do("CLIENT", *words.split()) == reply


def test_a_name_and_what_disque_does_not_have(wire: Wire) -> None:
    wire.do("CLIENT", "SETNAME", "bob")
    for name in (b"a b", b"a\n", b"\x7f", b"\xc3\xa4"):
        assert wire.do("CLIENT", "SETNAME", name) == "-" + BAD_NAME.decode()
    assert wire.do("CLIENT", "SETNAME", "x" * (MOST_NAME + 1)) == "-" + LONG_NAME.decode()
    assert wire.do("CLIENT", "GETNAME") == b"bob"
    assert wire.do("CLIENT", "SETNAME", "") == "OK"
    assert wire.do("CLIENT", "GETNAME") is None
    assert wire.do("CLIENT", "ID") == wire.peer.number
    assert wire.do("CLIENT", "SETINFO", "LIB-NAME", "redis-py") == "OK"
    assert wire.do("CLIENT", "PAUSE", 300) == "-" + NO_PAUSE.decode()
    assert wire.another().do("PING") == "PONG"


def test_the_list_shows_age_name_and_state_of_each_client(wire: Wire) -> None:
    waiting, monitor, silent = group(wire, 3)[1:]
    wire.do("CLIENT", "SETNAME", "bob")
    waiting.replies(request("GETJOB", "FROM", "q"))
    wire.advance(5_000)
    monitor.do("MONITOR")
    lines = wire.do("CLIENT", "LIST").decode().splitlines()
    found = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines]
    assert [int(one["id"]) for one in found] == [one.peer.number for one in (wire, waiting, monitor, silent)]
    assert [one["addr"] for one in found] == [f"10.0.0.1:{port}" for port in range(5555, 5559)]
    assert [one["name"] for one in found] == ["bob", "", "", ""]
    assert [one["flags"] for one in found] == ["N", "b", "O", "N"]
    assert [one["cmd"] for one in found] == ["client", "getjob", "monitor", "NULL"]
    assert [one["age"] for one in found] == ["5", "5", "5", "5"]
    assert [one["idle"] for one in found] == ["0", "5", "0", "5"]


def test_a_client_asks_for_no_replies_or_for_none_to_the_next_command(wire: Wire) -> None:
    off, skip, add = (
        request("CLIENT", "REPLY", "OFF"),
        request("CLIENT", "REPLY", "SKIP"),
        request("ADDJOB", "q", "b", 0),
    )
    assert wire.ask(off + request("PING") + request("NOSUCH") + add) == b""
    assert wire.do("CLIENT", "REPLY", "ON") == "OK"
    assert wire.do("QLEN", "q") == 1
    assert wire.ask(skip + request("PING", 1) + request("PING", 2)) == b"$1\r\n2\r\n"
    assert wire.replies(skip + add + request("QLEN", "q")) == [2]
    assert wire.ask(off + skip + request("PING") * 2) == b""


def test_a_client_that_is_ended_gets_nothing_more_and_no_job(wire: Wire) -> None:
    wire, other, third = group(wire, 2)
    other.replies(request("GETJOB", "FROM", "q"))
    assert wire.do("CLIENT", "KILL", "10.0.0.1:5556") == "OK"
    assert [one.peer.outbox.closing for one in (wire, other, third)] == [False, True, False]
    assert wire.do("CLIENT", "KILL", "10.0.0.1:5556") == "-ERR No such client"
    third.peer.receive(request("PING"), wire.node.now)
    assert wire.do("CLIENT", "KILL", "ADDR", "10.0.0.1:5557") == 1
    assert third.peer.outbox.closing
    wire.do("ADDJOB", "q", "b", 0, "RETRY", 0)
    wire.node.turn()
    assert other.said() == third.said() == b""
    assert wire.do("QLEN", "q") == 1
    other.peer.disconnected()
    assert len(wire.get("q")) == 1
    wire.node.broker.check()


@each("words, ended", [
    ("TYPE normal", [False, True, True]), ("SKIPME no", [True, True, True]),
    ("skipme yes type NORMAL", [False, True, True]), ("ADDR 10.0.0.1:5556 SKIPME no", [False, True, False]),
    ("ADDR 10.0.0.1:5555", [False, False, False]), ("ADDR 10.0.0.1:5555 SKIPME no", [True, False, False]),
    ("ADDR 10.0.0.1:5555 ADDR 10.0.0.1:5556", [False, True, False]), ("SKIPME yes ID 0 SKIPME no", [True, True, True]),
    ("ID +02", [False, True, False]), ("ID 003 TYPE normal", [False, False, True]), ("ID -2", [False, False, False]),
], wire=alone)  # fmt: skip
def test_filters_choose_the_clients_that_are_ended(wire: Wire, words: str, ended: list[bool]) -> None:
    wires = group(wire, 2)
    assert wire.do("CLIENT", "KILL", *words.split()) == sum(ended)
    assert [one.peer.outbox.closing for one in wires] == ended
