"""The fast paths of put, reserve and delete: their replies and the resulting state equal those of the exact paths."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.core.tubes import Tubes
from nsqd.protocols.beanstalk.peer import Peer
from tests.effort import tries
from tests.nsqd.core.node import SECOND
from tests.nsqd.protocols.beanstalk.wire import Wire, put

COMMANDS = st.lists(
    st.one_of(
        st.sampled_from([
            put(b"a"), put(b"a"), put(b"bad")[:-2] + b"xx",
            put(b"urgent", 0), put(b"late", 9, 1), put(b"short", 9, 0, 1), b"reserve-with-timeout 0\r\n",
            b"reserve-with-timeout 0\r\n", b"peek-ready\r\n", b"use b\r\n", b"use default\r\n", b"watch b\r\n", b"ignore b\r\n",
            b"pause-tube default 1\r\n", b"pause-tube default 0\r\n", b"kick 2\r\n", b"stats-tube default\r\n",
        ]),
        st.builds(b"%s %d\r\n".__mod__, st.tuples(st.sampled_from([b"delete", b"touch", b"stats-job"]), st.integers(1, 6))),
        st.builds(b"release %d %d %d\r\n".__mod__, st.tuples(st.integers(1, 6), st.sampled_from([0, 9]), st.integers(0, 1))),
        st.builds(b"bury %d 3\r\n".__mod__, st.tuples(st.integers(1, 6))),
        st.integers(1, 2),  # s that pass
    ),
    max_size=25,
)  # fmt: skip


def played(steps: list[bytes | int]) -> tuple[bytes, list[object]]:
    """The replies to a client that sends these pieces, and the resulting state."""
    wire, said = Wire(), b""
    wire.node.turn()  # the first turn sets the wall clock
    for step in steps:
        if isinstance(step, int):
            wire.node.advance(step * SECOND)
        else:
            said += wire.ask(step)
    wire.check()
    return said, [job for tube in wire.node.broker.tubes.all() for job in tube.jobs]


@settings(max_examples=tries(40), deadline=None)
@given(commands=COMMANDS, seed=st.integers(0, 1 << 20))
def test_the_quick_way_is_the_exact_way(commands: list[bytes | int], seed: int) -> None:
    together = joined(commands, Random(seed))
    found = played(commands)
    assert played(together) == found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tubes, "reserve_plain", lambda *given: None)
        patch.setattr(Peer, "_put_together", lambda *given: 0)
        assert played(commands) == found
        assert played(together) == found


def joined(commands: list[bytes | int], dice: Random) -> list[bytes | int]:
    """The same with commands that come together, and cut anywhere."""
    pieces: list[bytes | int] = []
    for command in commands:
        if isinstance(command, bytes) and pieces and isinstance(last := pieces[-1], bytes) and dice.random() < 0.7:
            cut = dice.randrange(len(command) + 1)
            pieces[-1] = last + command[:cut]
            pieces += [command[cut:]] if cut < len(command) else []
        else:
            pieces.append(command)
    return pieces


def test_an_urgent_job_that_was_just_put_comes_first_and_can_be_deleted_at_once() -> None:
    wire = Wire()
    wire.ask(put(b"usual", 5))
    expected = b"INSERTED 2\r\nRESERVED 2 6\r\nurgent\r\nINSERTED 3\r\nRESERVED 1 5\r\nusual\r\nDELETED\r\n"
    assert wire.ask(put(b"urgent", 4) + b"reserve\r\n" + put(b"later", 6) + b"reserve\r\ndelete 3\r\n") == expected
    wire.check()
