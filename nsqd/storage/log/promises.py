"""What somebody waits for in a turn: that its records are written, or that they are synced."""


class Promises:
    """See above. A topic's mode says which of the two its replies promise."""

    __slots__ = ("_unkept", "interval", "strong", "weak")

    def __init__(self) -> None:
        self.strong = False  # somebody waits for the sync of a record of this turn
        self.weak = False  # likewise, for its write
        self.interval = 0  # messages of this turn of topics in the mode `interval`
        self._unkept = False  # somebody waits for a record of earlier turns, which could not be written

    def take(self, written: bool) -> tuple[bool, int]:
        """The turn's group was written, or could not be: whether somebody waits for its sync, and messages to be synced
        some time. A group that was late is synced, whatever was promised: its promises are old enough."""
        strong, weak, self.strong, self.weak = self.strong, self.weak, False, False
        interval, self.interval = self.interval, 0
        if not written:
            self._unkept = strong = self._unkept or strong or weak
        elif self._unkept:
            self._unkept, strong = False, True
        return strong, interval
