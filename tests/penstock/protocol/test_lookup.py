"""The V1 codec: what an nsqd says to nsqlookupd, and the replies."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol import ProtocolError, lookup
from tests.cases import each


@each("command, wire", [
    (lookup.MAGIC_V1, b"  V1"),
    (lookup.identify({"tcp_port": 4150}), b'IDENTIFY\n\0\0\0\x11{"tcp_port":4150}'),
    (lookup.register("t"), b"REGISTER t\n"), (lookup.register("t", "c"), b"REGISTER t c\n"),
    (lookup.unregister("t"), b"UNREGISTER t\n"),
    (lookup.unregister("t", "c#ephemeral"), b"UNREGISTER t c#ephemeral\n"),
    (lookup.ping(), b"PING registered\n"),
])  # fmt: skip
def test_a_command_on_the_wire(command: bytes, wire: bytes) -> None:
    assert command == wire


def test_names_replies_and_errors() -> None:
    for names in (("a\nPING", None), ("", None), ("t", ""), ("t", "a b")):
        with pytest.raises(ValueError):
            lookup.register(*names)
        with pytest.raises(ValueError):
            lookup.unregister(*names)
    replies = lookup.ReplyDecoder(100).receive(b"\0\0\0\2OK\0\0\0\x0eE_INVALID nope\0\0\0\0\0\0\0\x11E_REGISTER_FAILED")
    assert replies == [b"OK", b"E_INVALID nope", b"", b"E_REGISTER_FAILED"]
    assert list(map(lookup.is_error, replies)) == [False, True, False, False]
    assert list(map(lookup.is_refusal, replies)) == [False, False, False, True]
    assert lookup.registered(b"OK 2 15") == (2, 15)
    for reply in (b"OK", b"OK 2", b"OK -1 2", b"OK 1 2 3", b"OK 9999999999 1"):
        assert lookup.registered(reply) is None


@each("length", [101, -1])
def test_a_bad_length_is_refused_before_the_reply(length: int) -> None:
    with pytest.raises(ProtocolError):
        lookup.ReplyDecoder(100).receive(pack(">i", length))


@given(st.lists(st.binary(max_size=30), max_size=8), st.data())
def test_input_cut_anywhere_gives_the_same_replies(sent: list[bytes], data: st.DataObject) -> None:
    wire = b"".join(pack(">i", len(reply)) + reply for reply in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    decoder = lookup.ReplyDecoder(30)
    pieces = zip([0, *cuts], [*cuts, len(wire)], strict=True)
    assert [reply for start, stop in pieces for reply in decoder.receive(wire[start:stop])] == sent
