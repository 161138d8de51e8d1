"""What waits to be sent to a client: replies, which leave with the turn, and messages, held back as it asked for.

Replies carry held messages out with them. Nothing here decides when a client is full; its protocol does. `closing` is said
here because it means: when all of this is sent, the connection ends.
"""

from nsqd.core.sequence.mark import Mark
from nsqd.protocols.transport import NEVER, Transport


class Outbox:
    """See above."""

    __slots__ = (
        "_messages",
        "_replies",
        "_transport",
        "closing",
        "flush_due",
        "marks",
        "refused",
        "size",
        "unsent",
    )

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._replies: list[bytes] = []  # frames, in the order of their commands; not empty: the transport knows
        self._messages: list[bytes] = []  # frames that are held back
        self.closing = False  # no more input is read; the connection ends with its output
        self.marks: tuple[Mark, ...] = ()  # what the replies wait for, if the turn's records are not there yet
        self.size = 0  # bytes of those messages
        self.unsent = 0  # bytes that the network has not accepted; the transport writes it
        self.refused = False  # a consumer was refused room: Conversation.network_ready is to be called when all is sent
        self.flush_due = NEVER  # when held messages are sent at the latest (ns)

    def reply(self, frame: bytes, marks: tuple[Mark, ...] = ()) -> None:
        """Send a response, an error or a heartbeat with this turn. `marks`: what it waits for, as in `wait_for`."""
        if marks:
            self.wait_for(marks)
        elif not self._replies:
            self._transport.output_ready()
        self._replies.append(frame)

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        """The output of this turn tells of records: it leaves when all these marks have come to them."""
        self._transport.output_ready()  # the replies that wait behind sealed output are sealed with this one
        if marks is not self.marks:  # the same: the second of a turn, or of an earlier one's that still waits
            self.marks = self.marks + tuple(mark for mark in marks if mark not in self.marks) if self.marks else marks

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

    def hold(self, frames: list[bytes], size: int, *, flush: bool) -> None:
        """Keep messages (`size` bytes) until flush, or until something else is sent. `flush`: send them with this turn."""
        if self._replies:  # of this turn: SUB's OK stands before the first message
            self._messages += self._replies
            self._replies = []
        self._messages += frames
        self.size += size
        if flush:
            self.flush()

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

    @property
    def is_scarce(self) -> bool:
        """True if memory is: see Transport."""
        return self._transport.is_scarce
