"""What waits to be sent to a client: replies, which leave with the turn, and messages, held back as it asked for.

Replies and heartbeats carry held messages out with them (specs/nsq.md a10). Nothing here decides when a client is full; its
subscription does. `closing` is said here because it means: when all of this is sent, the connection ends.
"""

from typing import TYPE_CHECKING, Protocol

from nsqd.core.message.frame import error
from nsqd.core.sequence.mark import Mark
from nsqd.protocols.nsq.errors import WireError

if TYPE_CHECKING:
    from nsqd.protocols.nsq.authorization import Question
    from nsqd.protocols.nsq.identify import Upgrade

NEVER = 1 << 62  # ns: later than any time


class Transport(Protocol):
    """What carries a peer's bytes."""

    def output_ready(self) -> None:
        """There is output that wants to be sent at the end of this turn."""

    def timer_changed(self) -> None:
        """Peer.next_timer has become earlier."""

    def unsent(self) -> int:
        """Bytes taken from the peer that the network has not accepted yet."""

    def upgrade(self, upgrade: "Upgrade") -> None:
        """After the output there is now, everything passes through these layers; call Peer.upgraded as each stands."""

    def authorize(self, question: "Question") -> None:
        """Ask the authorization servers, and call Peer.authorized with what they say; read no input meanwhile."""

    def await_registration(self, topic: str) -> None:
        """Call Peer.resume when nsqlookupd knows the topic, or after a bounded time; read no input meanwhile."""


class Outbox:
    """See above."""

    __slots__ = ("_messages", "_replies", "_transport", "closing", "flush_due", "marks", "size")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._replies: list[bytes] = []  # frames, in the order of their commands
        self._messages: list[bytes] = []  # frames that are held back
        self.closing = False  # no more input is read; the connection ends with its output
        self.marks: tuple[Mark, ...] = ()  # what the replies wait for, if the turn's records are not there yet
        self.size = 0  # bytes of those messages
        self.flush_due = NEVER  # when they are sent at the latest (ns)

    def reply(self, frame: bytes) -> None:
        """Send a response, an error or a heartbeat with this turn."""
        self._replies.append(frame)
        self._transport.output_ready()

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        """The output of this turn tells of records: it leaves when all these marks have come to them."""
        self.marks = self.marks + tuple(mark for mark in marks if mark not in self.marks) if self.marks else marks

    def fail(self, failure: WireError) -> None:
        """Send an error; most end the connection."""
        self.reply(error(failure.data))
        if failure.fatal:
            self.closing = True

    def end(self) -> None:
        """The connection ends with the output that there is."""
        self.closing = True
        self._transport.output_ready()

    def break_off(self) -> None:
        """The connection ends without another word."""
        self._replies.clear()
        self._messages.clear()
        self.size = 0
        self.flush_due = NEVER
        self.end()

    def hold(self, frames: list[bytes], size: int) -> None:
        """Keep messages (`size` bytes) until flush, or until something else is sent."""
        if self._replies:  # of this turn: SUB's OK stands before the first message
            self._messages += self._replies
            self._replies = []
        self._messages += frames
        self.size += size

    def flush_by(self, due: int) -> None:
        """Send what is held back at `due`, or earlier."""
        if due < self.flush_due:
            self.flush_due = due
            self._transport.timer_changed()

    def flush(self) -> None:
        """Send what is held back with this turn."""
        self.flush_due = NEVER
        if self._messages:
            self._transport.output_ready()

    def take(self) -> list[bytes]:
        """Everything, to be sent now."""
        output = self._messages + self._replies if self._messages else self._replies
        self._messages, self._replies = [], []
        self.marks = ()
        self.size = 0
        self.flush_due = NEVER
        return output

    def room(self, limit: int) -> int:
        """Bytes of messages that may be added until `limit` are waiting here and at the network; none while closing."""
        return 0 if self.closing else max(0, limit - self.size - self._transport.unsent())
