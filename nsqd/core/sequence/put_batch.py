"""Jobs that clients of beanstalkd put in a turn: they get ids at once, and exist when the turn's jobs are sealed together."""

from typing import NamedTuple

from nsqd.core.message.attributes import Attributes
from nsqd.core.message.frame import HEADER_SIZE, encode, encode_one
from nsqd.core.message.ids import IdSource, ids_from


class JobOptions(NamedTuple):
    """The options with which a client puts a job. `ttr` 0: the job is delivered once at most."""

    priority: int = 65_536  # the default of clients of beanstalkd, which published messages get, too
    ttr: int = 60  # s
    delay: int = 0  # s
    due: int = 0  # monotonic ns: when the delay is over; 0: there is none
    was_put: bool = False  # True: a client put it as a job, as the message's record says
    ttl: int = 0  # s after which the job is deleted, in whatever state it is; 0: never
    copies: int = 0  # how many nodes are to have it before the client is answered; 0: as many as the topic asks for

    @property
    def packed(self) -> tuple[int, ...]:
        """Return the fields of the message's record that `unpacked` reads."""
        life = (self.ttl, self.copies) if self.ttl or self.copies else ()
        return self.priority, self.ttr, self.delay, *life


def unpacked(packed: tuple[int, ...], due: int) -> JobOptions:
    """Return the options that `packed` packed, of a job that was put with a delay until `due` (ns; 0: without)."""
    priority, ttr, delay, *life = packed
    return JobOptions(priority, ttr, delay, due, True, *life)


USUAL = JobOptions()


class PutBatch:
    """Consecutive jobs of a topic with the same options, which become one record of the log."""

    __slots__ = ("bodies", "created", "first", "identity", "numbers", "options")

    def __init__(self, options: JobOptions, created: int, identity: Attributes | None = None) -> None:
        self.options = options
        self.created = created  # ns since the epoch
        self.identity = identity  # has the key that recognizes a second put of the same job; None: it has none
        self.first = -1  # ordinal of the first job, once the jobs are sealed
        self.numbers: list[int] = []  # their ids, as numbers, ascending
        self.bodies: list[bytes] = []

    def add(self, bodies: list[bytes], ids: IdSource) -> int:
        """Add jobs, which get the next ids. Returns the first id as a number; the others follow it."""
        count = len(bodies)
        number = ids.issue_numbers(count)
        self.bodies += bodies
        if count == 1:
            self.numbers.append(number)
        else:
            self.numbers += range(number, number + count)
        return number

    def add_one(self, body: bytes, number: int) -> None:
        """Add a job that has an id already; `number` is the id as a number."""
        self.bodies.append(body)
        self.numbers.append(number)

    def encode(self) -> tuple[list[bytes], bytes, int]:
        """Return the frames of the jobs, their ids (16 bytes each, end to end), and the bytes of the largest frame."""
        bodies, numbers = self.bodies, self.numbers
        if len(numbers) == 1:  # a third of the cost of a batch of one
            message_id = b"%016x" % numbers[0]
            frame = encode_one(bodies[0], message_id, self.created)
            return [frame], message_id, len(frame)
        sizes = set(map(len, bodies))
        if numbers[-1] - numbers[0] == len(numbers) - 1:  # no other message was issued an id between two of these
            blocks = ids_from(numbers[0], len(numbers))
            frames, ids = encode(bodies, sizes, blocks, self.created), b"".join([block.joined for block in blocks])
        else:
            each = [b"%016x" % number for number in numbers]
            frames = [encode_one(body, one, self.created) for body, one in zip(bodies, each, strict=True)]
            ids = b"".join(each)
        return frames, ids, max(sizes) + HEADER_SIZE

    def __repr__(self) -> str:
        return f"<Puts: {len(self.bodies)} jobs from ordinal {self.first} on, {self.options}>"
