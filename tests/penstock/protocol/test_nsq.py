"""The V2 codec, client side: commands spelled out, frames cut anywhere, and what must be refused."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol import ProtocolError, nsq
from penstock.protocol.headers import pack_headers
from tests.cases import each

ID = b"0123456789abcdef"


def frame(kind: int, data: bytes) -> bytes:
    return pack(">ii", 4 + len(data), kind) + data


def message_frame(message: nsq.Message) -> bytes:
    head, headers = pack(">qH16s", message.timestamp, message.attempts, message.id), message.headers
    return frame(3, head + pack_headers(headers) + message.body) if headers else frame(2, head + message.body)


def feed_bytewise(decoder: nsq.FrameDecoder, wire: bytes) -> list[nsq.Frame]:
    return [f for i in range(len(wire)) for f in decoder.receive(wire[i : i + 1])]


def encode(value: nsq.Frame) -> bytes:
    if isinstance(value, nsq.Message):
        return message_frame(value)
    if isinstance(value, nsq.Response):
        return frame(0, value.data)
    return frame(1, f"{value.code} {value.text}".encode())


@each("command, wire", [
    (nsq.identify({"client_id": "a", "sample_rate": 5}), b'IDENTIFY\n\0\0\0\x21{"client_id":"a","sample_rate":5}'),
    (nsq.auth(b"secret"), b"AUTH\n\0\0\0\6secret"), (nsq.sub("t", "c#ephemeral"), b"SUB t c#ephemeral\n"),
    (nsq.pub("t", b"body"), b"PUB t\n\0\0\0\4body"),
    (nsq.mpub("t", [b"a", b"bc"]), b"MPUB t\n\0\0\0\x0f\0\0\0\2\0\0\0\1a\0\0\0\2bc"),
    (nsq.dpub("t", 250, b"x"), b"DPUB t 250\n\0\0\0\1x"), (nsq.rdy(0), b"RDY 0\n"), (nsq.fin(ID), b"FIN 0123456789abcdef\n"),
    (nsq.req(ID, 90), b"REQ 0123456789abcdef 90\n"), (nsq.touch(ID), b"TOUCH 0123456789abcdef\n"), (nsq.cls(), b"CLS\n"),
    (nsq.nop(), b"NOP\n"),
    (nsq.with_headers(nsq.pub("t", b"\n"), (("a", "b"),)), b"HPUB t\n\0\0\0\6\x91\x92\xa1a\xa1b\0\0\0\1\n"),
])  # fmt: skip
def test_a_command_on_the_wire(command: bytes, wire: bytes) -> None:
    assert command == wire


def test_a_name_can_never_become_a_second_command_and_numbers_are_checked() -> None:
    for name in ("", "a b", "a\nPUB b", "ü", "x" * 65, ".."):
        for encode, *arguments in (
            (nsq.pub, name, b""),
            (nsq.mpub, name, [b""]),
            (nsq.sub, "t", name),
            (nsq.sub, name, "c"),
        ):
            with pytest.raises(ValueError):
                encode(*arguments)
    for encode, *arguments in ((nsq.rdy, -1), (nsq.req, ID, -1), (nsq.fin, b"short")):
        with pytest.raises(ValueError):
            encode(*arguments)


def test_frames_become_values_and_only_three_errors_leave_the_connection_open() -> None:
    sent: list[nsq.Frame] = [
        nsq.Response(b"OK"), nsq.Message(1_700_000_000_000_000_000, 65535, ID, b"body"),
        nsq.ErrorFrame("E_FIN_FAILED", f"FIN {ID.decode()} failed ID not in flight"), nsq.Message(-1, 1, ID, b""),
        nsq.Response(b"x" * 996),  # the largest frame
    ]  # fmt: skip
    assert nsq.FrameDecoder(1000).receive(b"".join(map(encode, sent))) == sent
    codes = ("E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED", "E_INVALID", "E_BAD_TOPIC", "")
    assert [nsq.ErrorFrame(code, "").fatal for code in codes] == [False, False, False, True, True, True]
    assert str(nsq.ErrorFrame("E_INVALID", "")) == "E_INVALID"


FRAMES = st.one_of(
    st.builds(nsq.Response, st.binary(max_size=40)),
    st.builds(nsq.ErrorFrame, st.sampled_from(["E_INVALID", "E_FIN_FAILED"]), st.text("ab c", max_size=20)),
    st.builds(
        nsq.Message, st.integers(-(2**63), 2**63 - 1), st.integers(0, 65535), st.binary(min_size=16, max_size=16),
        st.binary(max_size=60), st.sampled_from([(), (("a", "ä"), ("b", ""))]),
    ),
)  # fmt: skip


@given(st.lists(FRAMES, max_size=8), st.data())
def test_input_cut_anywhere_gives_the_same_frames(sent: list[nsq.Frame], data: st.DataObject) -> None:
    wire = b"".join(map(encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    decoder = nsq.FrameDecoder(200)
    received: list[nsq.Frame] = []
    for start, stop in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        received += decoder.receive(wire[start:stop])
    assert received == sent


@given(st.binary(max_size=80))
def test_anything_else_is_a_protocol_error_and_nothing_worse(noise: bytes) -> None:
    whole, bytewise = nsq.FrameDecoder(100), nsq.FrameDecoder(100)
    try:
        frames = whole.receive(noise)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            feed_bytewise(bytewise, noise)
    else:
        assert feed_bytewise(bytewise, noise) == frames


@each("wire", [
    pack(">i", 1001),  # too long: known from the length alone
    pack(">i", -1),
    pack(">i", 3),  # no room for a type
    frame(4, b""), frame(-1, b""),
    frame(2, b"x" * 25),  # a message needs 26
    frame(3, b"x" * 29), frame(3, b"x" * 26 + pack(">i", 2) + b"\x90"), frame(3, b"x" * 26 + pack(">i", 1) + b"\xc1"),
])  # fmt: skip
def test_a_malformed_frame_is_refused(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        nsq.FrameDecoder(1000).receive(wire)


def test_a_big_frame_byte_by_byte_is_linear() -> None:
    # given a frame of 300,000 bytes: copying what is there at each byte would move 45 GB and run into the timeout
    wire = message_frame(nsq.Message(0, 1, ID, b"x" * 300_000))
    decoder = nsq.FrameDecoder(1 << 20)
    frames = feed_bytewise(decoder, wire)
    assert [len(f.body) for f in frames if isinstance(f, nsq.Message)] == [300_000]
