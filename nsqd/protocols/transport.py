"""What carries a peer's bytes, as every protocol sees it. The reactor's connections implement it; tests have their own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

NEVER = 1 << 62  # ns: later than any time
DEFLATE_LEVEL = 6  # unless the client asks for another

# begins something that takes time; calls what it is given when that is over
Begin = Callable[[Callable[[], None]], None]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Layers that a connection's bytes pass through from some moment on. Never both compressions."""

    tls: bool = False
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = DEFLATE_LEVEL  # 1 to 9

    @property
    def changes(self) -> bool:
        """True if the bytes change at all."""
        return self.tls or self.snappy or self.deflate


class Transport(Protocol):
    """What carries a peer's bytes."""

    def output_ready(self) -> None:
        """There is output that wants to be sent at the end of this turn."""

    def timer_changed(self) -> None:
        """Conversation.next_timer has become earlier."""

    @property
    def is_scarce(self) -> bool:
        """True if the memory for buffers is used up: nobody may add to more than FREE bytes that the network has not taken."""

    def upgrade(self, upgrade: Upgrade) -> None:
        """After the output there is now, everything passes through these layers. Conversation.upgraded is called for each."""

    def suspend(self, begin: Begin) -> None:
        """Read no input until what `begin` begins is over; then call Conversation.resume in a turn.

        `begin` is called at once. What it is given may be called from any code of the reactor's thread, between turns.
        """
