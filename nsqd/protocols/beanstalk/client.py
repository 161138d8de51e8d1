"""Turn the bytes of a beanstalkd client into commands, and replies into bytes, without input or output.

A body that is too large is discarded as it comes.

See docs/contributing/design/beanstalkd.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.message.attributes import Attributes
from nsqd.core.sequence.mark import Mark
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.waiters import Reading
from nsqd.protocols.beanstalk import stats
from nsqd.protocols.beanstalk.commands import (
    MAX_LINE,
    BadFormat,
    UnknownCommand,
    begins_foreign,
    is_foreign,
    read_usual,
    verb_of,
)
from nsqd.protocols.job_client import BYTES_OF_A_UNIT, JobClient, JobContext
from nsqd.protocols.transport import NEVER, Transport

if TYPE_CHECKING:
    from nsqd.core.work_queue.loan import Loan

MOST_USUAL = 1024  # remembered lines of put: clients put with the same options again and again
TUBES_OF_A_UNIT = 8  # tubes that are checked for one unit
NOT_FOUND, OUT_OF_MEMORY, JOB_TOO_BIG = b"NOT_FOUND\r\n", b"OUT_OF_MEMORY\r\n", b"JOB_TOO_BIG\r\n"
BATCH_DONE = b"BATCH_DONE\r\n"
DRAINING = b"DRAINING\r\n"
BAD_FORMAT, UNKNOWN_COMMAND = b"BAD_FORMAT\r\n", b"UNKNOWN_COMMAND\r\n"
AUTH = b"auth "  # a command only where there is an auth file
DEADLINE_SOON, TIMED_OUT, UNAUTHORIZED = b"DEADLINE_SOON\r\n", b"TIMED_OUT\r\n", b"UNAUTHORIZED\r\n"


class OtherNodes(Protocol):
    """The other nodes of a cluster, as clients of beanstalkd need them."""

    def ask(
        self, verb: bytes, job_id: int, loan: Loan | None, line: bytes, rights: bytes, then: Callable[[bytes], None]
    ) -> bool:
        """Have the node that owns a job execute a command about it, and call `then` with the reply, in a later turn.

        `loan`: by which the client has the job; None: it has not. `line`: without CR LF. `rights`: those of the client
        (Rights.dump). Returns False if no node can be asked that may own the job.
        """

    def end_loan(self, lender: int, loan: Loan) -> None:
        """Give a job back to the node with that number, because the client that had it is gone."""


@dataclass(slots=True)
class BeanstalkContext(JobContext):
    """The data that all connections of beanstalkd clients to a node share."""

    max_job_size: int = 65_535  # bytes
    figures: Callable[[], stats.ServerFigures] = lambda: stats.ServerFigures(65_535, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0)
    # Recent lines of put: the body's size, and the options without the time when the delay ends.
    usual: dict[bytes, tuple[int, JobOptions]] = field(default_factory=dict)
    others: OtherNodes | None = None  # of the cluster; None: this node is alone

    def learn(self, line: bytes, arguments: tuple[Any, ...]) -> None:
        """Remember a line of put and its arguments, because clients send the same line again."""
        priority, delay, ttr, size, trailing = arguments
        if trailing or size > self.max_job_size:
            return
        if len(self.usual) >= MOST_USUAL:
            self.usual.clear()
        self.usual[line] = size, JobOptions(priority, ttr or 1, delay, 0, True)


@dataclass(slots=True)
class Put:
    """A put whose body is still coming."""

    options: tuple[int, int, int]  # priority, delay, ttr
    size: int  # bytes
    # has the key of a put-unique or put-unless-pending, the batch of a put-batch, or the group of a put-grouped; None: of a put
    identity: Attributes | None = None
    copies: int = 0  # that a put-replicated asks for; 0: as many as the topic does


def job_reply(name: bytes, client_id: int, body: bytes) -> bytes:
    """Return a reply that contains a job."""
    return b"%s %d %d\r\n%s\r\n" % (name, client_id, len(body), body)


class Client(JobClient):
    """The reading of one client's bytes; Peer implements the commands."""

    __slots__ = ("_discard", "_discard_reply", "_loans", "_put", "_skips_line")
    protocol = "beanstalkd"
    not_known = UNAUTHORIZED
    no_job = TIMED_OUT
    context: BeanstalkContext

    def __init__(
        self, broker: Broker, context: BeanstalkContext, transport: Transport, remote_ip: str, port: str, now: int
    ) -> None:
        super().__init__(broker, context, transport, remote_ip, port, now, b"INTERNAL_ERROR\r\n")
        self.worker.takes_loans = context.others is not None
        # by message id: the jobs of other nodes that the client has, each with the number of the node that lent it
        self._loans: dict[int, tuple[int, Loan]] = {}
        self._put: Put | None = None  # the put whose body is coming
        self._discard = 0  # bytes of a body that are still to be discarded
        self._discard_reply = JOB_TOO_BIG  # the reply then
        self._skips_line = False  # True: the line was too long, and the input up to its end is discarded
        broker.tubes.join(self.worker)

    def _step(self, data: bytes, at: int) -> int:
        """Take one line or body. Return where it ended, or -1 if it is not complete or waits."""
        if self._discard:
            return self._discard_piece(data, at)
        if self._put is not None:
            return self._body(self._put, data, at)
        newline = data.find(b"\r\n", at)
        if self._skips_line:
            if newline < 0:
                keep = 1 if data.endswith(b"\r") else 0
                return len(data) - keep if len(data) - keep > at else -1
            self._skips_line = False
            self.fail(BAD_FORMAT)
            return newline + 2
        if newline < 0 or newline + 2 - at > MAX_LINE:
            if begins_foreign(data[at : at + MAX_LINE]):
                return self._drop(data[at:])
            if newline < 0 and len(data) - at < MAX_LINE:
                return -1
            self._skips_line = True
            return at
        line = data[at:newline]
        usual = self.context.usual.get(line)
        if usual is not None:
            end = self._put_together(usual, data, at, newline + 2)
            if end:
                return end
        self._line(line)
        return newline + 2 if not self._again else -1

    def _line(self, line: bytes) -> None:
        try:
            usual = read_usual(line)
            if self.credential is not None and line.startswith(AUTH):
                self._do(AUTH, (line[len(AUTH) :],))
            elif usual is not None:
                self._do(*usual)
            elif is_foreign(line):
                self._drop(line + b"\r\n")
            else:
                self._unusual_line(line)
        except BadFormat:
            self.fail(BAD_FORMAT)
        except UnknownCommand:
            self.fail(UNKNOWN_COMMAND)
        except TooMany:
            self.fail(OUT_OF_MEMORY)
        except Reading as reading:
            self._block(reading)

    def _drop(self, data: bytes) -> int:
        self._transport.note_foreign("BEANSTALK", data)
        self.outbox.break_off()
        return -1

    def _unusual_line(self, line: bytes) -> None:
        if b"\0" in line:
            raise BadFormat
        verb, reader = verb_of(line)
        if verb == b"pause-tube":  # counted whatever follows
            self._count("pause-tube")
        arguments = reader(line, len(verb))
        if verb == b"put ":
            self.context.learn(line, arguments)
        self._do(verb, arguments)

    def _discard_body(self, size: int, reply: bytes) -> None:
        """Discard the body of a put, of `size` bytes with CR LF, as it comes, and then fail with `reply`."""
        self._discard, self._discard_reply = size, reply
        self._needed = 1  # it takes no memory, but the next piece has to come in time

    def _discard_piece(self, data: bytes, at: int) -> int:
        size = min(self._discard, len(data) - at)
        self._discard -= size
        self._needed = min(1, self._discard)
        if not self._discard:
            self.fail(self._discard_reply)
        return at + size

    def fail(self, error: bytes) -> None:
        self._count_error(error)
        self.reply(error)

    def _count_error(self, error: bytes) -> None:
        self.broker.client_errors["beanstalkd", error[:-2].decode()] += 1

    def reply(self, data: bytes, marks: tuple[Mark, ...] = ()) -> None:
        self._spent += 1 + len(data) // BYTES_OF_A_UNIT
        self.outbox.reply(data, marks)

    def _count(self, command: str) -> None:
        self.broker.tubes.commands[command] += 1

    def _leave(self) -> None:
        self.broker.tubes.leave(self.worker)

    # waiting

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        """Answer the waiting reserve with its job."""
        self.end_wait(job_reply(b"RESERVED", self.broker.tubes.client_id(job), body))
        if self.credential is not None:
            self.note_reserved()

    def next_timer(self) -> int:
        if not self.waits_for_job:
            return NEVER
        warned = self.worker.warned_at()
        return min(self._deadline, self._room_due, NEVER if warned is None else warned)

    def _wait_result(self, now: int) -> bytes | None:
        """Return the same; a reserve also ends if a reservation of its worker does soon."""
        warned = self.worker.warned_at()
        return DEADLINE_SOON if warned is not None and warned <= now else super()._wait_result(now)

    @abstractmethod
    def _put_together(self, usual: tuple[int, JobOptions], data: bytes, at: int, body: int) -> int:
        """Handle the put whose line is at `at` and body at `body`, and those like it that follow. Return the end, or 0."""

    @abstractmethod
    def _do(self, verb: bytes, arguments: tuple[Any, ...]) -> None:
        """Execute a command, and reply. Raises BadFormat, TooMany, Reading."""

    @abstractmethod
    def _body(self, put: Put, data: bytes, at: int) -> int:
        """Handle the body of a put if it is complete, and return where it ended; else return -1."""
