"""A transport of which nothing comes: what clients of all protocols have in common in tests."""

from nsqd.protocols.account import Usage
from nsqd.protocols.transport import Begin, Fact, Upgrade
from shared.foreign import describe
from shared.process.unix_sockets import NOBODY


class StillTransport:
    """Implements Transport; it notes what the peer asks for."""

    is_scarce = False

    def __init__(self, user: int = NOBODY) -> None:
        """`user`: who connects by a unix socket; NOBODY: it is a connection over TCP."""
        self.user = user
        self.usage: Usage | None = None  # by which the connection is metered
        self.facts: list[tuple[Fact, str]] = []
        self.foreign: list[tuple[str, str]] = []  # logged input of other protocols: port, input
        self.is_over = False  # the end of the suspension

    def output_ready(self) -> None: ...

    def timer_changed(self) -> None: ...

    def record_fact(self, fact: Fact, client: str, text: str = "") -> None:
        self.facts.append((fact, text))

    def note_foreign(self, port: str, data: bytes) -> None:
        self.foreign.append((port, describe(data)))

    def peer_user(self) -> int:
        return self.user

    def upgrade(self, upgrade: Upgrade) -> None:
        raise AssertionError("there are no layers")

    def suspend(self, begin: Begin) -> None:
        self.is_over = False
        begin(self._over)

    def _over(self) -> None:
        self.is_over = True

    def meter(self, usage: Usage) -> None:
        self.usage = usage
