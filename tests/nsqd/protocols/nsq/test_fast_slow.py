"""The fast path equals the slow path, and any input cut anywhere gives the same result."""

import struct
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.protocols.nsq import batch, publisher
from nsqd.protocols.nsq import commands as commands_of_nsq
from nsqd.protocols.nsq.peer import Peer
from nsqd.protocols.nsq.publisher import Publisher
from nsqd.protocols.nsq.settings import Settings
from nsqd.protocols.nsq.subscription import Subscription
from tests.effort import tries
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.nsq.wire import Wire, body, mpub

LIMITS = Settings(max_msg_size=60, max_body_size=400, max_rdy_count=100)
NO_ID = b"0123456789abcdef"

names = st.sampled_from([b"t", b"u", b"t ", b"t!", b"", b"t\r", b"x" * 65])
sizes = st.sampled_from([-1, 0, 1, 5, 60, 61, 2**31 - 1])
texts = st.binary(min_size=1, max_size=8)
ids = st.one_of(
    st.integers(0, 12),
    st.sampled_from(
        [NO_ID, b"short", b"FIN FIN FIN FIN\n", b"0123456789abcde", b"0123456 89abcdef", b"FINFINFINFINFIN!"]
    ),
)


@st.composite
def commands(draw: st.DrawFn) -> bytes | tuple[bytes, int | bytes, bytes]:
    """An almost right command. A tuple names a delivered message by number: (before, number or id, after)."""
    kind = draw(st.sampled_from("PPPPMMMMFFFFFFRTDQNCSIX"))
    end = draw(st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b" \n"]))
    if kind == "P":
        return b"PUB " + draw(names) + end + draw(st.one_of(texts.map(body), sizes.map(lambda n: struct.pack(">i", n))))
    if kind == "M":
        texts_of = draw(
            st.one_of(st.lists(texts, min_size=1, max_size=6), st.lists(st.just(b"same"), min_size=1, max_size=40))
        )
        whole = bytearray(mpub(draw(names), *texts_of))
        if draw(st.booleans()) and draw(st.booleans()):  # corrupt a byte of the head or a length
            whole[draw(st.integers(0, min(len(whole) - 1, 24)))] ^= 1 << draw(st.integers(0, 7))
        return bytes(whole)
    if kind == "F":
        return b"FIN ", draw(ids), end
    if kind == "Q":
        return b"REQ ", draw(ids), draw(st.sampled_from([b" 0", b" 10", b" -1", b""])) + end
    if kind == "T":
        return b"TOUCH ", draw(ids), end
    return {
        "R": b"RDY %d" % draw(st.integers(0, 101)) + end,
        "D": b"DPUB t %d" % draw(st.integers(0, 9)) + end + body(draw(texts)),
        "N": b"NOP" + end,
        "C": b"CLS" + end,
        "S": b"SUB t c" + end,
        "I": b"IDENTIFY" + end + body(draw(st.sampled_from([b"{}", b'{"msg_timeout":1000}', b"[]"]))),
        "X": draw(st.binary(max_size=6)) + end,
    }[kind]


def play(
    script: list[bytes | tuple[bytes, int | bytes, bytes]],
    cuts: list[int] | None,
    fast: bool,
    slice_size: int = batch.SLICE,
) -> tuple[object, ...]:
    """Say the script to a subscribed peer, cut as told; return all that can be seen of it.

    `cuts`: None cuts after each command, as clients do that wait for each reply. `slice_size`: messages after which an MPUB
    continues in the next turn.
    """
    node = Node(seed=5)
    wire = Wire(node, LIMITS)
    wire.send(b"SUB t c\nRDY 100\n" + mpub(b"t", *(b"m%d" % i for i in range(8))))
    delivered = [message_id for _, message_id, _ in wire.messages()]
    with pytest.MonkeyPatch.context() as patch:
        if not fast:
            patch.setattr(Subscription, "fast_fin", lambda self, data, start: 0)
            patch.setattr(Publisher, "fast", lambda self, data, start, now: 0)
        for module in (batch, commands_of_nsq, publisher):
            patch.setattr(module, "SLICE", slice_size)
        parts = [_resolve(command, delivered) for command in script]
        data = b"".join(parts)
        if cuts is None:
            cuts = list(accumulate(map(len, parts)))
        edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        for start, stop in pairwise(edges):
            wire.peer.receive(data[start:stop], node.now)
            while wire.peer.has_more and not wire.peer.closing:
                wire.peer.receive(b"", node.now)
        node.turn()
        wire.peer.receive_eof()
    node.broker.check()
    frames = [(kind, text if kind != 2 else text[8:]) for kind, text in wire.frames()]
    counts = {name: topic.intake.message_count for name, topic in node.broker.topics.items()}
    channel = node.channel("t", "c")
    state = (channel.depth, channel.in_flight_count, channel.deferred_count, channel.requeue_count, node.held())
    return frames, counts, state, wire.peer.closing, wire.peer.pub_counts, wire.peer.state


def _resolve(command: bytes | tuple[bytes, int | bytes, bytes], delivered: list[bytes]) -> bytes:
    if isinstance(command, bytes):
        return command
    before, which, after = command
    message_id = which if isinstance(which, bytes) else delivered[which] if which < len(delivered) else NO_ID
    return before + message_id + after


@settings(max_examples=tries(80, in_short=30))
@given(st.lists(commands(), max_size=12), st.lists(st.integers(0, 5000), max_size=6))
def test_fast_equals_slow_for_any_cut(script: list[bytes | tuple[bytes, int | bytes, bytes]], cuts: list[int]) -> None:
    whole = play(script, [], fast=True)
    assert play(script, [], fast=False) == whole
    assert play(script, cuts, fast=True) == whole
    assert play(script, cuts, fast=False) == whole
    assert play(script, None, fast=True) == whole
    assert play(script, cuts, fast=True, slice_size=2) == whole
    assert play(script, cuts, fast=False, slice_size=1) == whole


@settings(max_examples=tries(80, in_short=24))
@given(st.lists(st.tuples(st.sampled_from([b"t", b"u", b"uu", b"t "]), sizes, texts), max_size=8), st.booleans())
def test_a_repeated_pub_is_like_any_other(pubs: list[tuple[bytes, int, bytes]], whole: bool) -> None:
    """Each comes by itself. Its length is right if `whole`, and mostly wrong otherwise."""
    script: list[bytes | tuple[bytes, int | bytes, bytes]] = [b"PUB t\n" + body(b"first"), b"PUB u\n" + body(b"first")]
    for name, size, text in pubs:
        script.append(b"PUB " + name + b"\n" + (body(text) if whole else struct.pack(">i", size) + text))
    assert play(script, None, fast=True) == play(script, None, fast=False) == play(script, [], fast=False)


def test_a_pub_like_the_one_before_it_is_not_read_command_by_command(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()
    wire.node.broker.topic("t")
    wire.peer.receive(b"PUB t\n" + body(b"1"), 5)
    monkeypatch.setattr(Peer, "_command", None)
    wire.peer.receive(b"PUB t\n" + body(b"two"), 7)
    assert wire.node.broker.topics["t"].intake.message_count == 2
    assert wire.peer.pub_counts == {"t": 2}
    assert wire.peer.introduction.liveness.last_activity == 7


def test_a_body_in_small_pieces_costs_no_more_than_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer is parsed again only when what was missing is there: count the parses."""
    wire, parses, command = Wire(), list[int](), Peer._command

    def counting(self: Peer, data: bytes, start: int, now: int) -> int:
        parses.append(start)
        return command(self, data, start, now)

    monkeypatch.setattr(Peer, "_command", counting)
    data = b"PUB t\n" + body(b"x" * 100_000) + mpub(b"t", *[b"y"] * 2000)
    for i in range(0, len(data), 10):
        wire.peer.receive(data[i : i + 10], 0)
    assert wire.node.broker.topics["t"].intake.message_count == 2001
    assert len(parses) < 2100  # about one for each piece of the MPUB, three for the PUB
