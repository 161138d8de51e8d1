"""Repeated commands have fast paths: their replies and the resulting state equal those of the exact path."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.core.limits import Limits
from nsqd.core.tubes import Tubes
from nsqd.protocols.disque.peer import Peer
from tests.effort import tries
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.disque.wire import Wire, request

GET = ("GETJOB", "NOHANG", "FROM", "a")
COMMANDS = st.lists(
    st.one_of(
        st.sampled_from([
            ("ADDJOB", "a", "x", 0), ("ADDJOB", "a", "y", 0), ("ADDJOB", "b", "x", 0, "RETRY", 0), ("ADDJOB", "", "x", 0),
            GET, GET, ("GETJOB", "NOHANG", "COUNT", 3, "FROM", "b", "a"), ("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", "a"),
            ("GETJOB", "NOHANG", "FROM", ""), ("PING",), ("GETJOB",), ("QLEN", "a"), ("CLIENT", "REPLY", "SKIP"), ("NOTHING",),
        ]),
        st.tuples(st.sampled_from(["ACKJOB", "ackjob", "NACK", "FASTACK"]), st.integers(0, 9)),
    ),
    max_size=25,
)  # fmt: skip


def given_ids() -> list[str]:
    """The ids of the jobs that a node gives, which are the same on each."""
    client = Wire(Node(Limits(whole_job_ids=True)))
    return [str(client.add("a", b"x")) for _ in range(10)]


IDS = given_ids()


def request_of(command: tuple[str | int, ...]) -> bytes:
    return (
        request(command[0], IDS[command[1]])
        if isinstance(command[-1], int) and len(command) == 2
        else request(*command)
    )


def played(pieces: list[bytes]) -> tuple[bytes, list[object]]:
    """The replies to a client that sends these pieces, and the resulting state."""
    client = Wire(Node(Limits(whole_job_ids=True)))
    said = b"".join(client.ask(piece) for piece in pieces)
    client.node.broker.check()
    tubes = [client.node.broker.tubes.tube(name) for name in ("a", "b")]
    return said, [job for tube in tubes if tube is not None for job in tube.jobs]


@settings(max_examples=tries(30), deadline=None)
@given(commands=COMMANDS, seed=st.integers(0, 1 << 20))
def test_the_quick_way_is_the_exact_way(commands: list[tuple[str | int, ...]], seed: int) -> None:
    requests = [request_of(command) for command in commands]
    alone = played(requests)
    data, dice = b"".join(requests), Random(seed)
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(8)))
    pieces = [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert played(pieces) == alone
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tubes, "reserve_plain", lambda *given: None)
        assert played(requests) == alone
        assert played(pieces) == alone
        patch.setattr(Peer, "repeat", lambda peer, data, at: 0)
        assert played(requests) == alone
        assert played(pieces) == alone


def test_a_client_gets_no_more_of_a_turn_than_its_units() -> None:
    client = Wire(Node(Limits(whole_job_ids=True)))
    client.ask(request("ADDJOB", "a", "x", 0))
    client.peer.receive(request("ADDJOB", "a", "x", 0) * 3000, client.node.now)
    assert client.peer.has_more
    tube = client.node.broker.tubes.tube("a")
    assert tube is not None
    client.node.broker.seal_puts()
    assert tube.jobs.count <= 1026
    assert len(client.replies()) == 3000
