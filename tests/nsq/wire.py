"""A client's end of a Peer: bytes in, frames out, in virtual time. No socket."""

import struct

from nsqd.core.limits import Limits
from nsqd.protocols.nsq.authorization import Question
from nsqd.protocols.nsq.identify import Upgrade
from nsqd.protocols.nsq.peer import Peer
from nsqd.protocols.nsq.settings import Settings
from tests.core.node import MS, Node

RESPONSE, ERROR, MESSAGE = 0, 1, 2


class Wire:
    """Implements Transport; the network takes everything at once unless told otherwise."""

    def __init__(self, node: Node | None = None, settings: Settings | None = None, magic: bool = True) -> None:
        self.node = node or Node(Limits())
        self.pending = 0  # bytes the network has not taken
        self.wants_output = False
        self.received = bytearray()
        self.upgrades: list[Upgrade] = []
        self.questions: list[Question] = []
        self.unregistered: list[str] = []  # topics that nsqlookupd must know before the peer goes on
        wall = self.node.broker.wall
        self.peer = Peer(self.node.broker, settings or Settings(), self, "10.0.0.1", "5555", self.node.now, wall)
        self.node.after_turn = self._chain(self.node.after_turn)
        if magic:
            self.peer.receive(b"  V2", self.node.now)

    # Transport

    def output_ready(self) -> None:
        self.wants_output = True

    def timer_changed(self) -> None:
        pass

    def unsent(self) -> int:
        return self.pending

    def upgrade(self, upgrade: Upgrade) -> None:
        self.upgrades.append(upgrade)

    def authorize(self, question: Question) -> None:
        self.questions.append(question)

    def await_registration(self, topic: str) -> None:
        self.unregistered.append(topic)

    # the test's side

    def send(self, data: bytes) -> "Wire":
        """Bytes arrive; the node takes its turn."""
        self.peer.receive(data, self.node.now)
        self.node.turn()
        while self.peer.has_more and not self.peer.closing and not self.peer.waiting:
            self.peer.receive(b"", self.node.now)
            self.node.turn()
        self._collect()
        return self

    def frames(self) -> list[tuple[int, bytes]]:
        """(type, data) of what came since the last call."""
        self._collect()
        data, self.received = bytes(self.received), bytearray()
        found, at = [], 0
        while at < len(data):
            size, kind = struct.unpack_from(">ii", data, at)
            found.append((kind, data[at + 8 : at + 4 + size]))
            at += 4 + size
        assert at == len(data)
        return found

    def replies(self) -> list[bytes]:
        """Data of the responses and errors that came; there must be no messages."""
        frames = self.frames()
        assert all(kind != MESSAGE for kind, _ in frames)
        return [data for _, data in frames]

    def messages(self) -> list[tuple[int, bytes, bytes]]:
        """(attempts, id, body) of the messages that came; other frames are dropped."""
        return [
            (int.from_bytes(data[8:10], "big"), data[10:26], data[26:])
            for kind, data in self.frames()
            if kind == MESSAGE
        ]

    def advance(self, ms: int) -> "Wire":
        """Time passes, with the peer's timers served every millisecond."""
        for _ in range(ms):
            self.node.advance(MS)
            if self.peer.next_timer() <= self.node.now:
                self.peer.tick(self.node.now)
            self._collect()
        return self

    def _collect(self) -> None:
        if self.wants_output and not self.pending:
            self.wants_output = False
            self.received += b"".join(self.peer.take_output())
            self.peer.network_ready()

    def _chain(self, before):  # type: ignore[no-untyped-def]
        def after_turn() -> None:
            before()
            self._collect()

        return after_turn


def body(data: bytes) -> bytes:
    """int32 length and bytes."""
    return struct.pack(">i", len(data)) + data


def mpub(topic: bytes, *bodies: bytes) -> bytes:
    """A whole MPUB."""
    inner = struct.pack(">i", len(bodies)) + b"".join(map(body, bodies))
    return b"MPUB " + topic + b"\n" + body(inner)
