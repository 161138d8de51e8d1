"""Jobs that clients of beanstalkd put in a turn: they have their ids at once, and exist when the turn's are sealed together."""

from typing import NamedTuple

from nsqd.core.message.frame import HEADER_SIZE, encode, encode_one
from nsqd.core.message.ids import IdSource


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

    def add(self, bodies: list[bytes], ids: IdSource) -> int:
        """More of them: the number of the first one's id; the others' follow."""
        number = ids.next
        if len(bodies) == 1:  # half of what a batch of one costs
            self.add_one(bodies[0], number, ids.one())
            return number
        blocks, sizes = ids.take(len(bodies)), set(map(len, bodies))
        self.ids += [block.joined for block in blocks]
        self.frames += encode(bodies, sizes, blocks, self.created)
        self.numbers += range(number, number + len(bodies))
        self.largest = max(self.largest, max(sizes) + HEADER_SIZE)
        return number

    def add_one(self, body: bytes, number: int, message_id: bytes) -> None:
        """One more, which has that id."""
        frame = encode_one(body, message_id, self.created)
        self.ids.append(message_id)
        self.frames.append(frame)
        self.numbers.append(number)
        if len(frame) > self.largest:
            self.largest = len(frame)

    @property
    def end(self) -> int:
        """The ordinal behind the last."""
        return self.first + len(self.frames)
