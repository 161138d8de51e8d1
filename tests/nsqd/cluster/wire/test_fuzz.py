"""Contents of frames that are almost right: every parser reads them or refuses them, and reads nothing that it could not say.

A content is made as a peer would make it, and then changed: bytes are flipped, cut off, doubled or inserted, and in msgpack a
field is replaced, left out, doubled or exchanged with another one. PENSTOCK_EFFORT says how many contents each parser is given
(tests/effort.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import msgpack

from nsqd.cluster.membership import deletions as deleted
from nsqd.cluster.membership import leader_frames
from nsqd.cluster.membership import leader_frames as closed
from nsqd.cluster.membership import topic_configs as configs
from nsqd.cluster.membership.leader_frames import Hold, Leadership, LogExtent
from nsqd.cluster.ownership import election_frames as elections
from nsqd.cluster.ownership import leaving as transfers
from nsqd.cluster.ownership.election_frames import Answer, InSyncReplicas, Stage, VoteReply, VoteRequest
from nsqd.cluster.promotion.diverged import salvage_frames as salvage
from nsqd.cluster.remote_jobs import job_frames as jobs
from nsqd.cluster.replication import offers, stream
from nsqd.cluster.wire.fields import MOST_POSITION
from nsqd.cluster.wire.frames import AFTER_PROOF, FrameKind, FrameReader, PeerError, encode
from nsqd.cluster.wire.handshake import PROOF_SIZE
from nsqd.cluster.wire.link import _unpack_members
from nsqd.cluster.wire.node_identity import Member, NodeIdentity, Standing, pack, unpack
from nsqd.core.message.deletion import Deletion, DeletionKind, LogDeletions
from nsqd.core.message.epoch import MOST_NUMBER as MOST_EPOCH
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.id_ranges import NO_END, IdRange
from nsqd.core.message.ids import MOST_LEASE
from nsqd.core.work_queue.loan import Loan
from shared.topic_config import Durability, TopicConfig
from tests.cases import each
from tests.effort import tries
from tests.nsqd.cluster.wire.identities import node
from tests.nsqd.cluster.wire.test_handshake import frame as sole
from tests.nsqd.cluster.wire.test_handshake import side

FUZZED = tries(20_000, in_short=500)
U32, U64 = (1 << 32) - 1, (1 << 64) - 1
ODD = (
    None, True, -1, 0, 1, 1023, 1024, 65536, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0.5, "", "x", "é\x00", b"",
    b"x" * 14,
)  # fmt: skip
ODD_LISTS: tuple[Any, ...] = ([], [[]], [0] * 20, [[b"x" * 14, 0]], [[0, 0], [0, 0]])
EDGES = (0, 1, 1023, 1024, U32, (1 << 63) - 1, U64)


def edge(random: Random, most: int) -> int:
    return min(most, random.choice((random.choice(EDGES), random.randrange(most + 1))))


def epoch(random: Random) -> Epoch:
    return Epoch(edge(random, MOST_EPOCH), edge(random, 1023), random.randbytes(8))


def position(random: Random) -> int:
    return edge(random, MOST_POSITION)


def epochs(random: Random) -> stream.Epochs:
    return [(epoch(random).pack(), position(random)) for _ in range(random.randrange(4))]


def log_epochs(random: Random) -> tuple[list[tuple[Epoch, int]], int]:
    """Epochs of a log, at least one, with the ascending positions at which they begin, and where the log ends."""
    *starts, end = sorted(position(random) for _ in range(random.randrange(2, 6)))
    return [(epoch(random), at) for at in starts], end


def leaders(random: Random) -> list[Leadership]:
    count, holds = random.randrange(4), list(Hold)
    return [Leadership(random.randbytes(16), epoch(random), random.choice(holds)) for _ in range(count)]


def in_sync(random: Random, log_id: bytes = b"") -> InSyncReplicas:
    named = frozenset(random.sample(range(1024), random.randrange(4)))
    return InSyncReplicas(log_id or random.randbytes(16), epoch(random), position(random), named, random.random() < 0.5)


def request(random: Random) -> VoteRequest:
    number, serial = edge(random, MOST_EPOCH), edge(random, U32)
    extent, stage = LogExtent(epoch(random), position(random)), random.choice(list(Stage))
    return VoteRequest(
        random.randbytes(16), number, serial, epoch(random), extent, edge(random, elections.NEVER), stage
    )


def reply(random: Random) -> VoteReply:
    log_id, number, serial = random.randbytes(16), edge(random, MOST_EPOCH), edge(random, U32)
    extent, contact = LogExtent(epoch(random), position(random)), edge(random, elections.NEVER)
    own = in_sync(random, log_id) if random.random() < 0.5 else None
    return VoteReply(
        log_id, number, serial, random.choice(list(Answer)), edge(random, MOST_EPOCH), contact, extent, own
    )


def closed_log(random: Random) -> closed.Closed:
    starts, end = log_epochs(random)
    return closed.make_closed(random.randbytes(16), end, starts)


def deletions(random: Random) -> tuple[bytes, LogDeletions]:
    kinds, count = list(DeletionKind), random.randrange(1, 4)
    found = [Deletion(random.choice(kinds), *(edge(random, most) for most in (U32, U32, U64))) for _ in range(count)]
    return random.randbytes(16), LogDeletions(epoch(random), position(random), tuple(found))


def salvage_request(random: Random) -> salvage.SalvageRequest:
    starts, end = log_epochs(random)
    taken, is_copied = random.choice((None, position(random))), random.random() < 0.5
    return salvage.SalvageRequest(edge(random, U32), random.randbytes(16), end, tuple(starts), taken, is_copied)


def answer(random: Random) -> salvage.SalvageReply:
    decision = random.choice(list(salvage.Decision))
    return salvage.SalvageReply(edge(random, U32), random.randbytes(16), decision, position(random))


def configurations(random: Random) -> list[configs.VersionedConfig]:
    def number() -> int | None:
        return random.choice((None, edge(random, configs.MOST_VALUE)))

    def one() -> configs.VersionedConfig:
        durability = random.choice((None, *Durability))
        own = TopicConfig(durability, number(), number(), random.choice((None, 1, 3)), random.choice((None, 0, 5)))
        topic = f"topic{random.randrange(9)}"
        return configs.VersionedConfig(topic, edge(random, configs.MOST_VALUE), edge(random, 1023), own)

    return [one() for _ in range(random.randrange(4))]


def identity(random: Random) -> NodeIdentity:
    ranges = tuple(IdRange(*(edge(random, NO_END) for _ in range(3))) for _ in range(random.randrange(3)))
    log_id, one = random.randbytes(16), random.randbytes(14)
    numbers = edge(random, 1023), edge(random, (1 << 63) - 1)
    return NodeIdentity(*numbers, log_id, one, "node:4152", random.choice(("", "node:1")), "z", ranges)


def members(random: Random) -> list[Member]:
    return [Member(identity(random), random.choice(list(Standing))) for _ in range(random.randrange(4))]


def have(random: Random) -> stream.Have:
    segments = {position(random): position(random) for _ in range(random.randrange(4))}
    return stream.Have(position(random), epochs(random), segments, edge(random, 9))


def offered(random: Random) -> tuple[int | None, list[offers.Offer] | None]:
    lease = random.choice((None, edge(random, MOST_LEASE)))
    found = []
    for _ in range(random.randrange(3)):
        starts, end = log_epochs(random)
        leader = random.choice((None, edge(random, 1023)))
        packed = tuple((one.pack(), at) for one, at in starts)
        found.append(offers.Offer("a:1", end, packed, (lease or 0) if leader is None else 0, leader))
    return lease, random.choice((None, found))


def piece(random: Random) -> offers.Fetched | None:
    segment = f"{position(random):020}.{random.randrange(3)}.log"
    return random.choice((None, offers.Fetched(segment, position(random), random.randbytes(random.randrange(30)))))


def loan(random: Random) -> Loan:
    place = edge(random, U64), random.choice(("mail", "x" * 200)), edge(random, U64)
    numbers = [edge(random, U32) for _ in range(5)]
    return Loan(*place, *numbers, random.randbytes(random.randrange(20)), edge(random, U64), edge(random, U64))


def returned(random: Random) -> tuple[int, int, int, bool]:
    return edge(random, U64), edge(random, U64), edge(random, U32), random.random() < 0.5


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


@dataclass(frozen=True)
class Parser:
    """How a kind of content is made, read, and said again."""

    name: str
    make: Callable[[Random], Any]
    say: Callable[[Any], bytes]  # returns the content that says this
    read: Callable[[bytes], Any]
    is_msgpack: bool = False


def frame(kind: FrameKind, pack_one: Callable[..., bytes], *, spread: bool = False) -> Callable[[Any], bytes]:
    """Return a function that packs a value, or several that are `spread`, checks the frame and returns its content."""

    def content(value: Any) -> bytes:
        reader = FrameReader()
        reader.limit = AFTER_PROOF
        ((found, content),) = reader.feed(pack_one(*value) if spread else pack_one(value))
        assert found is kind
        return content

    return content


def pack_bytes(base: int, at: int, data: bytes) -> bytes:
    return stream.pack_bytes(base, at, [bytes(data)], len(data))[0]


K = FrameKind
PARSERS = [
    Parser("leaders", leaders, frame(K.LEADERS, leader_frames.pack_leaders), leader_frames.unpack_leaders),
    Parser("in sync", in_sync, frame(K.IN_SYNC, elections.pack_in_sync), elections.unpack_in_sync),
    Parser("claim", request, frame(K.VOTE_REQUEST, elections.pack_vote_request), elections.unpack_vote_request),
    Parser("vote", reply, frame(K.VOTE_REPLY, elections.pack_vote_reply), elections.unpack_vote_reply),
    Parser("closed", closed_log, frame(K.CLOSED, closed.pack_closed), closed.unpack_closed),
    Parser("deleted", deletions, frame(K.DELETED, deleted.pack_deleted, spread=True), deleted.unpack_deleted),
    Parser("question", salvage_request, frame(K.SALVAGE, salvage.pack_request), salvage.unpack),
    Parser("answer", answer, frame(K.SALVAGE, salvage.pack_reply), salvage.unpack),
    Parser("handover", lambda random: (random.randbytes(16), epoch(random)),
           frame(K.TRANSFER, transfers.pack_transfer, spread=True), transfers.unpack_transfer),
    Parser("configs", configurations, frame(K.CONFIGS, configs.pack_configs), configs.unpack_configs, True),
    Parser("members", members, lambda words: msgpack.packb([[*pack(word.node), word.standing] for word in words]),
           _unpack_members, True),
    Parser("identity", identity, lambda one: msgpack.packb(pack(one)), lambda data: unpack(msgpack.unpackb(data)), True),
    Parser("have", have, frame(K.HAVE, stream.pack_have), stream.unpack_have, True),
    Parser("resume", epochs, frame(K.RESUME, partial(stream.pack_epochs, K.RESUME)), stream.unpack_epochs, True),
    Parser("anew", lambda random: (position(random), epochs(random)),
           frame(K.RESYNC, stream.pack_resync, spread=True), stream.unpack_resync, True),
    Parser("keep", lambda random: (position(random), [position(random)] * random.randrange(3)),
           frame(K.KEEP, stream.pack_keep, spread=True), stream.unpack_keep, True),
    Parser("bytes", lambda random: (position(random), position(random), random.randbytes(random.randrange(1, 30))),
           frame(K.BYTES, pack_bytes, spread=True), stream.unpack_bytes),
    Parser("copied", lambda random: (position(random), position(random)),
           frame(K.COPIED, stream.pack_copied, spread=True), stream.unpack_copied),
    Parser("switch", position, frame(K.SWITCH, stream.pack_switch), stream.unpack_switch),
    Parser("follow", lambda random: edge(random, U32), frame(K.FOLLOW, stream.pack_follow), stream.unpack_follow),
    Parser("log", lambda random: random.randbytes(16), frame(K.LOG, partial(encode, K.LOG)),
           partial(stream.unpack_log_id, K.LOG)),
    Parser("sync", lambda random: random.random() < 0.5, frame(K.SYNC, stream.pack_sync), stream.unpack_sync),
    Parser("gave up", lambda random: "no space é", frame(K.GAVE_UP, stream.pack_gave_up), stream.unpack_gave_up),
    Parser("offers", offered, frame(K.OFFERS, offers.pack_offers, spread=True),
           lambda data: offers.unpack_offers("a:1", data), True),
    Parser("piece", piece, frame(K.FETCHED, offers.pack_fetched), offers.unpack_fetched, True),
    Parser("fetch", lambda random: (random.randbytes(16), position(random)),
           frame(K.FETCH, offers.pack_fetch, spread=True), offers.unpack_fetch),
    Parser("offers asked for", lambda random: random.randbytes(16), frame(K.ASK_OFFERS, offers.pack_ask),
           partial(stream.unpack_log_id, K.ASK_OFFERS)),
    Parser("loan", loan, frame(K.LOAN, lambda one: b"".join(jobs.pack_loan(one))),
           lambda data: jobs.unpack_loan(data, b""), True),
    Parser("want", lambda random: ("mail", edge(random, jobs.MOST_WANTED)), frame(K.WANT, jobs.pack_want, spread=True),
           jobs.unpack_want, True),
    Parser("return", returned, frame(K.RETURN, lambda number, message_id, reservation, was_taken: jobs.pack_return(
               Loan(number, "q", message_id, 0, 0, reservation, 0, 0, b""), was_taken), spread=True), jobs.unpack_return, True),
    Parser("ask", lambda random: (edge(random, U64), random.randbytes(5), random.randbytes(random.randrange(9))),
           frame(K.ASK, jobs.pack_ask, spread=True), jobs.unpack_ask),
    Parser("said", lambda random: (edge(random, U64), random.randbytes(random.randrange(9))),
           frame(K.SAID, partial(jobs.pack_number, K.SAID), spread=True), jobs.unpack_number),
]  # fmt: skip
# those of which nearly all contents, or nearly none, are something that a peer may say
SIMPLE = {"gave up", "fetch", "offers asked for", "handover", "log", "sync", "follow", "ask", "said", "answer"}


def changed(random: Random, parser: Parser, content: bytes) -> bytes:
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        try:
            by_field = parser.is_msgpack and random.random() < 0.6
            content = changed_fields(random, content) if by_field else changed_bytes(random, content)
        except (ValueError, TypeError, msgpack.UnpackException):  # an earlier change left no list in msgpack
            content = changed_bytes(random, content)
    return content


@each("parser", PARSERS)
def test_what_was_packed_is_read_and_what_is_almost_right_is_refused_or_means_what_it_says(parser: Parser) -> None:
    random, read = Random(parser.name), 0
    for _ in range(FUZZED):
        value = parser.make(random)
        whole = parser.say(value)
        content = changed(random, parser, whole)
        try:
            found = parser.read(content)
        except PeerError:
            assert content != whole
            continue
        except (ValueError, msgpack.UnpackException):
            assert parser.name == "identity"  # of which the handshake refuses what is not msgpack at all
            continue
        read += 1
        if content == whole:
            assert found == value
        elif parser.name != "bytes" or len(found[2]) <= stream.MOST_BYTES:  # more would be sent in several frames
            assert parser.read(parser.say(found)) == found, content
    assert FUZZED // 10 < read < FUZZED or parser.name in SIMPLE


def test_a_handshake_in_which_anything_was_changed_never_succeeds() -> None:
    """Of the fields, of the bytes or of the kind of one frame; except that the peer refuses then, nothing is raised."""
    random, refused = Random(7), 0
    parser = Parser("handshake", lambda random: b"", lambda value: b"", lambda content: None, True)
    for _ in range(FUZZED):
        dialer, acceptor = side(node(1), True), side(node(2), False)
        sent, sender, receiver, place = dialer.begin(), dialer, acceptor, random.randrange(4)
        try:
            while sent:
                kind, content = sole(sent)
                before = kind, content
                if place == 0:
                    is_proof = kind is FrameKind.CHALLENGE and random.random() < 0.7
                    proof = content[len(content) - PROOF_SIZE :] if is_proof else b""
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
