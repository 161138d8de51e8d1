"""A client's end of a Peer: bytes in, frames out, in virtual time. No socket."""

import struct
from collections.abc import Callable

from nsqd.core.limits import Limits
from nsqd.protocols.account import Accounts
from nsqd.protocols.credential import Credential, Proofs
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, AuthRequest
from nsqd.protocols.nsq.context import Context, no_auth_servers
from nsqd.protocols.nsq.peer import Peer
from nsqd.protocols.nsq.settings import Settings
from nsqd.protocols.transport import Upgrade
from shared.audit.event import Note
from shared.process.unix_sockets import NOBODY
from tests.nsqd.core.node import MS, Node
from tests.nsqd.protocols.transport import StillTransport

RESPONSE, ERROR, MESSAGE = 0, 1, 2


class Wire(StillTransport):
    """The network takes everything at once unless told otherwise."""

    def __init__(
        self,
        node: Node | None = None,
        settings: Settings | None = None,
        magic: bool = True,
        proofs: Proofs | None = None,
        asks: bool = True,
        user: int = NOBODY,
        audit: Note | None = None,
        accounts: Accounts | None = None,
        address: str = "10.0.0.1",
    ) -> None:
        """`asks`: there are authorization servers. `user`: who connects by a unix socket; NOBODY: it is TCP."""
        super().__init__(user)
        self.node = node or Node(Limits())
        self.wants_output = False
        self.received = bytearray()
        self.upgrades: list[Upgrade] = []
        self.requests: list[AuthRequest] = []
        self.unregistered: list[str] = []  # topics that nsqlookupd must know before the peer continues
        self.answers: list[Callable[[Authorization | AuthRefused], None]] = []  # callbacks for them, in order
        ask = self._ask if asks else no_auth_servers
        context = Context(self.node.broker, settings or Settings(), ask, self._register, proofs, audit, accounts)
        remote_ip = address if user == NOBODY else ""
        self.peer = Peer(context, self, remote_ip, "5555", self.node.now, self.node.broker.wall)
        self.node.after_turn = self._chain(self.node.after_turn)
        if magic:
            self.peer.receive(b"  V2", self.node.now)

    # Transport

    def output_ready(self) -> None:
        self.wants_output = True

    def upgrade(self, upgrade: Upgrade) -> None:
        self.upgrades.append(upgrade)

    # whom the peer asks

    def _ask(self, request: AuthRequest, answered: Callable[[Authorization | AuthRefused], None]) -> None:
        self.requests.append(request)
        self.answers.append(answered)

    def _register(self, topic: str, then: Callable[[], None]) -> None:
        self.unregistered.append(topic)
        self.registered = then

    # the test's side

    @property
    def credential(self) -> Credential:
        """Who the client is; there must be an auth file."""
        found = self.peer.introduction.access.credential
        assert found is not None
        return found

    @property
    def pending(self) -> int:
        """Bytes that the network has not taken."""
        return self.peer.outbox.unsent

    @pending.setter
    def pending(self, size: int) -> None:
        self.peer.outbox.unsent = size

    def answer(self, said: Authorization | AuthRefused) -> None:
        """The authorization servers answer the last request."""
        self.answers[-1](said)
        assert self.is_over
        self.peer.resume(self.node.now)

    def register(self) -> None:
        """nsqlookupd knows the topic, or the time is over."""
        self.registered()
        assert self.is_over
        self.peer.resume(self.node.now)

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
        """Time passes, in whole milliseconds up to what is due next; then the peer's timers are served."""
        end = self.node.now + ms * MS
        self._collect()
        while self.node.now < end:
            due = min(self.peer.next_timer(), self.node.broker.scan.next_turn() or end, end)
            self.node.advance(max(1, -(-(due - self.node.now) // MS)) * MS)
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
    """Return the body with its length before it, an int32."""
    return struct.pack(">i", len(data)) + data


def mpub(topic: bytes, *bodies: bytes) -> bytes:
    """Return the bytes of a whole MPUB command."""
    inner = struct.pack(">i", len(bodies)) + b"".join(map(body, bodies))
    return b"MPUB " + topic + b"\n" + body(inner)
