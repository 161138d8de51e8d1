"""Hold the output for a client: replies, which leave with the turn, and messages, held back as the client asked for.

Held messages leave together with the next reply. The outbox does not decide when a client is full; the client's protocol
does. `closing` is an attribute of the outbox because it means: when all of this output is sent, the connection ends.
"""

from typing import NamedTuple

from nsqd.core.sequence.mark import Mark
from nsqd.protocols.transport import NEVER, Transport


class Limited(NamedTuple):
    """Replies that `instead` replaces if a mark is not reached in time."""

    place: int  # of their frame among those of the turn
    mark: Mark
    due: int  # monotonic ns
    instead: bytes
    replies: int


class Outbox:
    """The replies and held messages of one client."""

    __slots__ = (
        "_messages", "_replies", "_transport", "closing", "flush_due", "limited", "lost", "marks", "refused", "size",
        "unsent",
    )  # fmt: skip

    def __init__(self, transport: Transport, lost: bytes = b"") -> None:
        """`lost`: the last reply if replies have waited for copies in vain."""
        self._transport = transport
        self.lost = lost
        # frames in the order of their commands; while there are any, `output_ready` was called
        self._replies: list[bytes] = []
        self._messages: list[bytes] = []  # frames that are held back
        self.closing = False  # True: no more input is read, and the connection ends with its output
        # the marks that the replies wait for, unless the turn's records have reached them
        self.marks: tuple[Mark, ...] = ()
        self.limited: list[Limited] = []  # replies of this turn that have a limit of their own, in their order
        self.size = 0  # bytes of the held messages
        self.unsent = 0  # bytes that the network has not accepted; the transport sets it
        # True: a consumer was refused room, and Conversation.network_ready must follow when all is sent
        self.refused = False
        self.flush_due = NEVER  # ns: when held messages are sent at the latest

    def reply(self, frame: bytes, marks: tuple[Mark, ...] = ()) -> None:
        """Send a response, an error or a heartbeat with this turn. `marks` are those that it waits for, as in `wait_for`."""
        if marks:  # what follows is `wait_for`, inlined
            if marks is not self.marks:
                self.marks = self._with(marks) if self.marks else marks
            self._transport.output_ready()
        elif not self._replies:
            self._transport.output_ready()
        self._replies.append(frame)

    def reply_by(self, frame: bytes, marks: tuple[Mark, ...], due: int, instead: bytes, count: int) -> None:
        """Send replies as `reply` does, or `instead` if the last of the marks is not reached by `due` (monotonic ns).

        `count`: the replies in `frame`. Not for clients that are sent held messages, or behind layers.
        """
        self.limited.append(Limited(len(self._replies), marks[-1], due, instead, count))
        self.reply(frame, marks)

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        """Hold the output of this turn back until all these marks have reached the records of this turn."""
        self._transport.output_ready()  # replies that wait behind sealed output are sealed together with this one
        # the same tuple comes with the second reply of a turn, and while an earlier turn's reply still waits
        if marks is not self.marks:
            self.marks = self._with(marks) if self.marks else marks

    def _with(self, marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
        return self.marks + tuple(mark for mark in marks if mark not in self.marks)

    def end(self) -> None:
        """End the connection once the present output is sent."""
        self.closing = True
        self._transport.output_ready()

    def break_off(self) -> None:
        """End the connection without sending anything more."""
        self._replies.clear()
        self._messages.clear()
        self.limited.clear()
        self.size = 0
        self.flush_due = NEVER
        self.end()

    def hold(self, frames: list[bytes], size: int, *, flush: bool) -> None:
        """Hold messages (`size` bytes) back until a flush or another reply. `flush`: send them with this turn."""
        if self._replies:  # replies of this turn: SUB's OK comes before the first message
            self._messages += self._replies
            self._replies = []
        self._messages += frames
        self.size += size
        if flush:
            self.flush()

    def flush_by(self, due: int) -> None:
        """Send the held messages at `due` (ns), or earlier."""
        if due < self.flush_due:
            self.flush_due = due
            self._transport.timer_changed()

    def flush(self) -> None:
        """Send the held messages with this turn."""
        self.flush_due = NEVER
        if self._messages:
            self._transport.output_ready()

    def drain(self) -> list[bytes]:
        """Take all output, held messages first, to be sent now."""
        output, self._replies, self.marks = self._replies, [], ()
        if self.limited:
            self.limited = []
        if self._messages:
            output, self._messages = self._messages + output, []
            self.size = 0
            self.flush_due = NEVER
        return output

    @property
    def is_scarce(self) -> bool:
        """Return True if memory for buffers is scarce: see Transport."""
        return self._transport.is_scarce
