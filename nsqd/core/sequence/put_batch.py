"""Jobs that clients of beanstalkd put in a turn: they get ids at once, and exist when the turn's jobs are sealed together."""

from typing import NamedTuple

from nsqd.core.message.frame import HEADER_SIZE, encode, encode_one
from nsqd.core.message.ids import IdSource


class JobOptions(NamedTuple):
    """The options with which a client puts a job."""

    priority: int = 65_536  # the default of clients of beanstalkd, which published messages get, too
    ttr: int = 60  # s
    delay: int = 0  # s
    due: int = 0  # monotonic ns: when the delay is over; 0: there is none
    was_put: bool = False  # True: a client of beanstalkd put it, as the message's record says


USUAL = JobOptions()


class PutBatch:
    """Consecutive jobs of a topic with the same options, which become one record of the log."""

    __slots__ = ("created", "first", "frames", "ids", "key", "largest", "numbers", "options")

    def __init__(self, options: JobOptions, created: int, key: str = "") -> None:
        self.options = options
        self.created = created  # ns since the epoch
        self.key = key  # recognizes a second put of the same job; "": none
        self.first = -1  # ordinal of the first job, once the jobs are sealed
        self.numbers: list[int] = []  # their ids, as numbers, ascending
        self.frames: list[bytes] = []
        self.ids: list[bytes] = []  # 16 bytes a job, in blocks end to end
        self.largest = 0  # bytes of the largest frame

    def add(self, bodies: list[bytes], ids: IdSource) -> int:
        """Add jobs, which get the next ids. Returns the first id as a number; the others follow it."""
        number = ids.id_number(ids.next)
        if len(bodies) == 1:  # this costs half as much as a batch of one
            self.add_one(bodies[0], number, ids.issue_id())
            return number
        blocks, sizes = ids.issue_ids(len(bodies)), set(map(len, bodies))
        self.ids += [block.joined for block in blocks]
        self.frames += encode(bodies, sizes, blocks, self.created)
        self.numbers += range(number, number + len(bodies))
        self.largest = max(self.largest, max(sizes) + HEADER_SIZE)
        return number

    def add_one(self, body: bytes, number: int, message_id: bytes) -> None:
        """Add a job that has an id already; `number` is the id as a number."""
        frame = encode_one(body, message_id, self.created)
        self.ids.append(message_id)
        self.frames.append(frame)
        self.numbers.append(number)
        if len(frame) > self.largest:
            self.largest = len(frame)

    def __repr__(self) -> str:
        return f"<Puts: {len(self.frames)} jobs from ordinal {self.first} on, {self.options}>"
