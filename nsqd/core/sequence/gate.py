"""What holds a topic's messages back from clients until other nodes have copies of them."""

from collections.abc import Callable

from nsqd.core.sequence.mark import Mark

NOT_WRITTEN = 1 << 62  # a log position: the newest publish has none yet


class Gate:
    """The gate of one topic whose messages need copies. It is open once everything published has them."""

    __slots__ = ("_needed", "_promise", "usual")

    def __init__(self, usual: Mark | None, promise: Callable[[tuple[Mark, ...]], None], position: int) -> None:
        """`usual`: the mark up to which messages may leave that ask for as many copies as the topic; None: it asks for none.

        `promise` notes that output of this turn waits for marks. Everything before `position` may need copies.
        """
        self.usual = usual
        # where each of these marks must be: the end of the log after the newest publish that needs it
        self._needed: dict[Mark, int] = {} if usual is None else {usual: position}
        self._promise = promise

    def shut(self, mark: Mark) -> None:
        """Note that something is published in this turn that needs this mark."""
        self._needed[mark] = NOT_WRITTEN

    def written(self, position: int) -> None:
        """Note that what was published is written, and that the log ends at `position`."""
        needed = self._needed
        for mark, at in needed.items():
            if at == NOT_WRITTEN:
                needed[mark] = position

    def pass_through(self) -> tuple[Mark, ...]:
        """Return the marks for which messages of this turn wait: none if all that was published is copied."""
        marks = tuple([mark for mark, position in self._needed.items() if mark.position < position])
        if marks:
            self._promise(marks)
        return marks

    def left_at(self, turn: int, now: int) -> int | None:
        """Return the time at which messages delivered in the turn at `turn` left for their clients; None: not by `now`.

        The clock of a message runs from then on. Times are monotonic ns.
        """
        times = [mark.left_at(turn, now) for mark in self._needed]
        return max([turn, *(time for time in times if time is not None)]) if None not in times else None

    def readable(self, durable: int) -> int:
        """Return the log position up to which messages may be read back, of those before the position `durable`."""
        return min([durable, *(mark.position for mark, position in self._needed.items() if mark.position < position)])

    def __repr__(self) -> str:
        return f"<Gate {self._needed}>"
