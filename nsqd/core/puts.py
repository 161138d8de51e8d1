"""Jobs that clients of beanstalkd put in a turn: they have their ids at once, and exist when the turn's are sealed together."""

from typing import NamedTuple


class Terms(NamedTuple):
    """On what a job is put."""

    priority: int = 65_536  # of what NSQ's clients publish, as clients of beanstalkd have it
    ttr: int = 60  # s
    delay: int = 0  # s
    due: int = 0  # monotonic ns: when the delay is over; 0: there is none
    was_put: bool = False  # by a client of beanstalkd: the message's record says so


USUAL = Terms()


class Puts:
    """Jobs of a topic, one behind the other, on the same terms: one record."""

    __slots__ = ("came", "created", "first", "frames", "ids", "key", "largest", "numbers", "terms")

    def __init__(self, terms: Terms, created: int, key: str = "") -> None:
        self.terms = terms
        self.created = created  # ns since the epoch
        self.key = key  # against putting it twice; "": none
        self.first = -1  # ordinal of the first, once they are sealed
        self.numbers: list[int] = []  # their ids, as clients of beanstalkd name them; ascending
        self.frames: list[bytes] = []
        self.ids: list[bytes] = []  # 16 bytes for each, end to end
        self.largest = 0  # bytes of the largest frame
        self.came = False  # they are jobs

    @property
    def end(self) -> int:
        """The ordinal behind the last."""
        return self.first + len(self.frames)
