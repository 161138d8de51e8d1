"""The frames on a connection between two nodes.

    frame, numbers big-endian
       0   4  length of everything after it
       4   1  kind
       5   .  content, by kind

See docs/contributing/design/cluster-protocol.md#connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

AFTER_PROOF = 1 << 20  # bytes of a frame after its length, at most: the records of 1,024 nodes take less than half
BEFORE_PROOF = 1024  # bytes after the length, at most, until the peer has proved its identity
KIND_AT = 4  # offset of the kind in a frame
_HEAD = Struct(">IB")
_LENGTH = Struct(">I")


class FrameKind(IntEnum):
    """The kind of a frame. The numbers are never used again."""

    HELLO = 1  # identity of the node that dialed
    CHALLENGE = 2  # identity of the node that was dialed, and its proof
    PROOF = 3  # proof of the node that dialed
    WELCOME = 4  # the proof is accepted
    REFUSED = 5  # a reason in UTF-8 follows, and the connection is closed
    HEARTBEAT = 6  # every second; message ids of the sender below the number that follows may be issued
    MEMBERS = 7  # the sender's member records, in msgpack: identities, each with its standing
    RESTARTS = 8  # the sender stops, and will be back within the given number of ms
    # How a log is copied: see stream.py
    FOLLOW = 9
    HAVE = 10
    RESUME = 11
    RESYNC = 12
    SEGMENT = 13
    BYTES = 14
    SWITCH = 15
    KEEP = 16
    SYNC = 17
    COPIED = 18
    GAVE_UP = 19
    DROP = 20
    LOG = 21  # the log that the stream frames which follow are about
    # The leaders of logs: see leader_frames.py and election_frames.py
    LEADERS = 22
    IN_SYNC = 23
    VOTE_REQUEST = 24
    VOTE_REPLY = 25
    CLOSED = 26  # a log that is closed: see leader_frames.py
    CONFIGS = 27  # the configurations of topics: see topic_configs.py
    TRANSFER = 28  # a node that leaves asks the receiver to lead a log: see leaving.py
    TIME = 29  # from the leader of a log: the log's id and time, in ns
    DELETED = 30  # deletions in a log at a node that no longer led it: see deletions.py
    SALVAGE = 32  # about bytes of a copy that the log's leader lacks: see salvage_frames.py
    # Lent jobs and remote commands: see job_frames.py
    WANT = 40
    BODY = 41
    LOAN = 42
    TOOK = 43
    RETURN = 44
    ASK = 45
    SAID = 46
    # Requests of a node that has not read its log yet: see replication/offers.py
    ASK_OFFERS = 50
    OFFERS = 51
    FETCH = 52
    FETCHED = 53


# kinds that have their place only before a node is proved, or another length
HANDSHAKE = frozenset(range(FrameKind.HELLO, FrameKind.WELCOME + 1)) | {FrameKind.HEARTBEAT, FrameKind.RESTARTS}
_KINDS = {int(kind): kind for kind in FrameKind}  # calling FrameKind takes longer
OF_LOGS = frozenset(range(FrameKind.FOLLOW, FrameKind.LOG + 1))  # by which logs are copied
VISIT = frozenset(range(FrameKind.ASK_OFFERS, FrameKind.FETCHED + 1))  # the only kinds on a visit: see visit.py


class PeerError(Exception):
    """The peer broke the rules of the protocol, or is refused. The text says why; the connection is closed."""


def encode(kind: FrameKind, content: bytes = b"") -> bytes:
    """Return the bytes of a frame with this kind and content."""
    return _HEAD.pack(1 + len(content), kind) + content


class FrameReader:
    """Cuts the bytes of one connection into frames."""

    def __init__(self) -> None:
        # bytes of a frame after its length, at most; raised when the peer has proved its identity
        self.limit = BEFORE_PROOF
        self._waiting = b""  # the beginning of a frame

    def feed(self, data: bytes) -> Iterator[tuple[FrameKind, bytes]]:
        """Yield the kind and content of each frame that is complete now. Raises PeerError.

        `limit` is checked for each frame, so the caller may raise it between two.
        """
        if self._waiting:
            data = b"".join((self._waiting, data))
        at, size = 0, len(data)
        try:
            while size - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(data, at)
                if not 0 < length <= self.limit:
                    raise PeerError(f"a frame of {length} bytes is not allowed here")
                end = at + _LENGTH.size + length
                if size < end:
                    return
                kind, content = data[at + _LENGTH.size], data[at + _HEAD.size : end]
                at = end
                known = _KINDS.get(kind)
                if known is None:
                    raise PeerError(f"frames of kind {kind} are not known")
                yield known, content
        finally:
            self._waiting = data[at:]
