"""Contents of frames that are almost right: every parser reads them or refuses them, and reads nothing that it could not say.

A content is made as a peer would make it, and then changed: bytes are flipped, cut off, doubled or inserted, and in msgpack a
field is replaced, left out, doubled or exchanged with another one. PENSTOCK_EFFORT says how many contents each parser is given
(tests/effort.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgpack

from nsqd.cluster.link import _unpack_words
from nsqd.cluster.membership import Standing
from nsqd.core.message.epoch import MOST_NUMBER as MOST_EPOCH
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.id_ranges import NO_END, IdRange
from nsqd.core.retention.policy import Durability, TopicConfig
from nsqd.protocols.peer import claims, closed, configs, handover, stream
from nsqd.protocols.peer.claims import Answer, Claim, Counts, Extent, Hold, Owned, Stage, Vote
from nsqd.protocols.peer.frames import FrameKind, FrameReader, PeerError
from nsqd.protocols.peer.handshake import NONCE_SIZE, PROOF_SIZE, Credentials, Handshake
from nsqd.protocols.peer.node_identity import NodeIdentity, pack, unpack
from tests.cases import each
from tests.effort import tries
from tests.nsqd.protocols.peer.identities import node

FUZZED = tries(20000)
HEAD = 5  # bytes of a frame before its content
ODD = (
    None, True, -1, 0, 1, 1023, 1024, 65536, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0.5, "", "x", "é\x00", b"",
    b"x" * 14,
)  # fmt: skip
ODD_LISTS: tuple[Any, ...] = ([], [[]], [0] * 20, [[b"x" * 14, 0]], [[0, 0], [0, 0]])
EDGES = (0, 1, 1023, 1024, (1 << 32) - 1, (1 << 63) - 1)
SECRET = b"a secret of the cluster"


# contents as peers make them


def edge(random: Random, most: int) -> int:
    return min(most, random.choice((random.choice(EDGES), random.randrange(most + 1))))


def epoch(random: Random) -> Epoch:
    return Epoch(edge(random, MOST_EPOCH), edge(random, 1023), random.randbytes(8))


def position(random: Random) -> int:
    return edge(random, claims.MOST_POSITION)


def counts(random: Random, log_id: bytes) -> Counts:
    named = frozenset(random.sample(range(1024), random.randrange(4)))
    return Counts(log_id, epoch(random), position(random), named, random.random() < 0.5)


def owners(random: Random) -> bytes:
    words = [Owned(random.randbytes(16), epoch(random), random.choice(list(Hold))) for _ in range(random.randrange(4))]
    return claims.pack_owners(words)[HEAD:]


def counts_frame(random: Random) -> bytes:
    return claims.pack_counts(counts(random, random.randbytes(16)))[HEAD:]


def claim(random: Random) -> bytes:
    number, serial = edge(random, MOST_EPOCH), edge(random, (1 << 32) - 1)
    extent, stage = Extent(epoch(random), position(random)), random.choice(list(Stage))
    one = Claim(random.randbytes(16), number, serial, epoch(random), extent, edge(random, claims.NEVER), stage)
    return claims.pack_claim(one)[HEAD:]


def vote(random: Random) -> bytes:
    log_id, number, serial = random.randbytes(16), edge(random, MOST_EPOCH), edge(random, (1 << 32) - 1)
    extent, heard = Extent(epoch(random), position(random)), edge(random, claims.NEVER)
    told = counts(random, log_id) if random.random() < 0.5 else None
    one = Vote(log_id, number, serial, random.choice(list(Answer)), edge(random, MOST_EPOCH), heard, extent, told)
    return claims.pack_vote(one)[HEAD:]


def closed_frame(random: Random) -> bytes:
    *starts, end = sorted(position(random) for _ in range(random.randrange(2, 6)))
    return closed.pack_closed(closed.make_closed(random.randbytes(16), end, [(epoch(random), at) for at in starts]))[
        HEAD:
    ]


def handover_frame(random: Random) -> bytes:
    return handover.pack_handover(random.randbytes(16), epoch(random))[HEAD:]


def config(random: Random) -> configs.VersionedConfig:
    def number() -> int | None:
        return random.choice((None, edge(random, configs.MOST_VALUE)))

    durability = random.choice((None, *Durability))
    own = TopicConfig(durability, number(), number(), random.choice((None, 1, 3)), random.choice((None, 0, 5)))
    return configs.VersionedConfig(
        f"topic{random.randrange(9)}", edge(random, configs.MOST_VALUE), edge(random, 1023), own
    )


def configs_frame(random: Random) -> bytes:
    return configs.pack_configs([config(random) for _ in range(random.randrange(4))])[HEAD:]


def identity(random: Random) -> NodeIdentity:
    ranges = tuple(IdRange(*(edge(random, NO_END) for _ in range(3))) for _ in range(random.randrange(3)))
    log_id, one = random.randbytes(16), random.randbytes(14)
    numbers = edge(random, 1023), edge(random, (1 << 63) - 1)
    return NodeIdentity(*numbers, log_id, one, "node:4152", random.choice(("", "node:1")), "z", ranges)


def members(random: Random) -> bytes:
    words = [[*pack(identity(random)), random.choice(list(Standing))] for _ in range(random.randrange(4))]
    packed: bytes = msgpack.packb(words)
    return packed


def epochs(random: Random) -> stream.Epochs:
    return [(epoch(random).pack(), position(random)) for _ in range(random.randrange(4))]


def have(random: Random) -> bytes:
    segments = {position(random): position(random) for _ in range(random.randrange(4))}
    return stream.pack_have(stream.Have(position(random), epochs(random), segments, edge(random, 9)))[HEAD:]


def bytes_frame(random: Random) -> bytes:
    size = random.randrange(1, 30)
    return stream.pack_bytes(position(random), position(random), [random.randbytes(size)], size)[0][HEAD:]


# what is changed in them


def changed_bytes(random: Random, content: bytes) -> bytes:
    data = bytearray(content)
    at = random.randrange(len(data) + 1)
    deed = random.randrange(5)
    if deed == 0 and data:
        data[at - 1] = random.choice((0, 1, 0x7F, 0x80, 0xC0, 0xDD, 0xFF, data[at - 1] ^ (1 << random.randrange(8))))
    elif deed == 1:
        del data[at:]
    elif deed == 2:
        data[at:at] = random.randbytes(random.randrange(1, 5))
    elif deed == 3:
        data[at:at] = data[: random.randrange(1, 40)]
    else:
        del data[at : at + random.randrange(1, 5)]
    return bytes(data)


def changed_fields(random: Random, content: bytes) -> bytes:
    """Return a content in msgpack with some field of some list changed. Raises ValueError if there is no list in it."""
    value = msgpack.unpackb(content)
    if not isinstance(value, list):
        raise ValueError("no list")
    lists = [value]
    for one in lists:
        lists += [part for part in one if isinstance(part, list)]
    chosen = random.choice(lists)
    at = random.randrange(len(chosen) + 1)
    deed = random.randrange(4)
    if deed == 0 and chosen:
        chosen[at - 1] = random.choice((*ODD, *ODD_LISTS))
    elif deed == 1 and chosen:
        del chosen[at - 1]
    elif deed == 2 and chosen:
        chosen.insert(at, chosen[at - 1])
    elif chosen:
        other = random.randrange(len(chosen))
        chosen[at - 1], chosen[other] = chosen[other], chosen[at - 1]
    packed: bytes = msgpack.packb(value)
    return packed


# the parsers


@dataclass(frozen=True)
class Parser:
    """How a kind of content is made, read, and said again."""

    name: str
    make: Callable[[Random], bytes]
    read: Callable[[bytes], Any]
    say: Callable[[Any], bytes | None]  # returns the content that says what was read; None: it is not said again
    is_msgpack: bool = False


def after_head(pack_one: Callable[..., bytes]) -> Callable[[Any], bytes]:
    return lambda value: pack_one(value)[HEAD:]


def spread(pack_one: Callable[..., bytes]) -> Callable[[Any], bytes]:
    return lambda value: pack_one(*value)[HEAD:]


def say_bytes(value: tuple[int, int, memoryview]) -> bytes | None:
    base, at, data = value
    return stream.pack_bytes(base, at, [bytes(data)], len(data))[0][HEAD:] if len(data) <= stream.MOST_BYTES else None


PARSERS = [
    Parser("owners", owners, claims.unpack_owners, after_head(claims.pack_owners)),
    Parser("counts", counts_frame, claims.unpack_counts, after_head(claims.pack_counts)),
    Parser("claim", claim, claims.unpack_claim, after_head(claims.pack_claim)),
    Parser("vote", vote, claims.unpack_vote, after_head(claims.pack_vote)),
    Parser("closed", closed_frame, closed.unpack_closed, after_head(closed.pack_closed)),
    Parser("handover", handover_frame, handover.unpack_handover, spread(handover.pack_handover)),
    Parser("configs", configs_frame, configs.unpack_configs, after_head(configs.pack_configs), True),
    Parser("members", members, _unpack_words, lambda words: msgpack.packb([[*pack(w.node), w.standing] for w in words]), True),
    Parser("identity", lambda random: msgpack.packb(pack(identity(random))), lambda data: unpack(msgpack.unpackb(data)),
           lambda one: msgpack.packb(pack(one)), True),
    Parser("have", have, stream.unpack_have, after_head(stream.pack_have), True),
    Parser("resume", lambda random: stream.pack_resume(epochs(random))[HEAD:], stream.unpack_resume,
           after_head(stream.pack_resume), True),
    Parser("drop", lambda random: stream.pack_drop(epochs(random))[HEAD:], stream.unpack_drop,
           after_head(stream.pack_drop), True),
    Parser("anew", lambda random: stream.pack_anew(position(random), epochs(random))[HEAD:], stream.unpack_anew,
           spread(stream.pack_anew), True),
    Parser("keep", lambda random: stream.pack_keep(position(random), [position(random)] * random.randrange(3))[HEAD:],
           stream.unpack_keep, spread(stream.pack_keep), True),
    Parser("bytes", bytes_frame, stream.unpack_bytes, say_bytes),
    Parser("copied", lambda random: stream.pack_copied(position(random), position(random))[HEAD:], stream.unpack_copied,
           spread(stream.pack_copied)),
    Parser("switch", lambda random: stream.pack_switch(position(random))[HEAD:], stream.unpack_switch,
           after_head(stream.pack_switch)),
    Parser("follow", lambda random: stream.pack_follow(edge(random, 1 << 31))[HEAD:], stream.unpack_follow,
           after_head(stream.pack_follow)),
    Parser("log", lambda random: random.randbytes(16), stream.unpack_log, after_head(stream.pack_log)),
    Parser("sync", lambda random: stream.pack_sync(random.random() < 0.5)[HEAD:], stream.unpack_sync,
           after_head(stream.pack_sync)),
    Parser("gave up", lambda random: stream.pack_gave_up("no space é")[HEAD:], stream.unpack_gave_up, lambda text: None),
]  # fmt: skip


def changed(random: Random, parser: Parser, content: bytes) -> bytes:
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        try:
            by_field = parser.is_msgpack and random.random() < 0.6
            content = changed_fields(random, content) if by_field else changed_bytes(random, content)
        except (ValueError, TypeError, msgpack.UnpackException):  # an earlier change left no list in msgpack
            content = changed_bytes(random, content)
    return content


@each("parser", PARSERS)
def test_what_is_almost_right_is_refused_or_means_what_it_says(parser: Parser) -> None:
    random, read = Random(parser.name), 0
    for _ in range(FUZZED):
        content = changed(random, parser, parser.make(random))
        try:
            value = parser.read(content)
        except PeerError:
            continue
        except (
            ValueError,
            msgpack.UnpackException,
        ):  # the content is not msgpack at all: its reader refuses that before
            assert parser.name == "identity"
            continue
        read += 1
        said = parser.say(value)
        assert said is None or parser.read(said) == value, content
    assert FUZZED // 10 < read < FUZZED or parser.name in ("gave up", "handover", "log", "sync", "follow")


# the handshake


def side(number: int, is_dialer: bool, random: Random) -> Handshake:
    return Handshake(Credentials("c", SECRET, node(number)), random.randbytes(NONCE_SIZE), is_dialer)


def only(data: bytes) -> tuple[FrameKind, bytes]:
    (frame,) = FrameReader().feed(data)
    return frame


def test_a_handshake_in_which_anything_was_changed_never_succeeds() -> None:
    """Of the fields, of the bytes or of the kind of one frame; except that the peer refuses then, nothing is raised."""
    random, refused = Random(7), 0
    parser = Parser("handshake", lambda random: b"", lambda content: None, lambda value: None, True)
    for _ in range(FUZZED):
        dialer, acceptor = side(1, True, random), side(2, False, random)
        sent, sender, receiver, place = dialer.begin(), dialer, acceptor, random.randrange(4)
        try:
            while sent:
                kind, content = only(sent)
                before = kind, content
                if place == 0:
                    proof = (
                        content[len(content) - PROOF_SIZE :]
                        if kind is FrameKind.CHALLENGE and random.random() < 0.7
                        else b""
                    )
                    content = changed(random, parser, content[: len(content) - len(proof)]) + proof
                    kind = random.choice((kind, kind, kind, random.choice(list(FrameKind))))
                is_same = (kind, content) == before
                place -= 1
                sent, sender, receiver = receiver.receive(kind, content), receiver, sender
                assert is_same or not sender.is_done, (before, content)
        except PeerError:
            refused += 1
            assert not (dialer.is_done and acceptor.is_done)
    assert refused > FUZZED // 2
