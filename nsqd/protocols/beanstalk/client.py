"""Turn the bytes of a beanstalkd client into commands, and answers into bytes, without input or output.

Commands are answered in their order. While a reserve waits, or while a body is read from disk, later input is kept and not
looked at. A body that is too large is discarded as it comes.

See docs/design/beanstalkd.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.sequence.mark import Mark
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.waiters import Reading
from nsqd.core.work_queue.worker import Worker
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
from nsqd.protocols.job_client import JobClient, JobContext
from nsqd.protocols.transport import NEVER, Transport
from shared.auth.verbs import Verb

if TYPE_CHECKING:
    from nsqd.core.work_queue.loan import Loan
    from nsqd.protocols.beanstalk.borrower import OtherNodes

UNITS_OF_A_TURN = 1024  # commands and replies count one each, and large ones more, so that no client gets a long turn
BYTES_OF_A_UNIT = 1024  # bytes of replies that count one unit: a megabyte in a turn
MOST_USUAL = 1024  # remembered lines of put: clients put with the same options again and again
TUBES_OF_A_UNIT = 8  # tubes that are looked at for one unit
MOST_KEPT = 64 * 1024  # bytes of commands that are read ahead while one waits
NOT_FOUND, OUT_OF_MEMORY, JOB_TOO_BIG = b"NOT_FOUND\r\n", b"OUT_OF_MEMORY\r\n", b"JOB_TOO_BIG\r\n"
DRAINING = b"DRAINING\r\n"
BAD_FORMAT, UNKNOWN_COMMAND = b"BAD_FORMAT\r\n", b"UNKNOWN_COMMAND\r\n"
AUTH = b"auth "  # a command only where there is an auth file
DEADLINE_SOON, TIMED_OUT, UNAUTHORIZED = b"DEADLINE_SOON\r\n", b"TIMED_OUT\r\n", b"UNAUTHORIZED\r\n"


@dataclass(slots=True)
class BeanstalkContext(JobContext):
    """What all connections of beanstalkd clients to a node share."""

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
    key: str = ""  # the key of a put-unique; "": there is none
    copies: int = 0  # that a put-replicated asks for; 0: as many as the topic does


def job_reply(word: bytes, client_id: int, body: bytes) -> bytes:
    """Return a reply that contains a job."""
    return b"%s %d %d\r\n%s\r\n" % (word, client_id, len(body), body)


class Client(JobClient, ABC):
    """The reading of one client's bytes and the waiting of its commands; Peer implements the commands.

    Implements nsqd.protocols.conversation.Conversation, and the sink of its worker.
    """

    __slots__ = (
        "_broker",
        "_context",
        "_deadline",
        "_discard",
        "_discard_reply",
        "_half_put",
        "_is_gone",
        "_loans",
        "_now",
        "_put",
        "_skips_line",
        "_spent",
        "body_since",
        "buffered",
        "port",
    )

    def __init__(
        self, broker: Broker, context: BeanstalkContext, transport: Transport, remote_ip: str, port: str, now: int
    ) -> None:
        self._broker = broker
        self._context = context
        super().__init__(broker.tubes, context, transport, remote_ip, b"INTERNAL_ERROR\r\n")
        self.port = port
        self.buffered = 0  # bytes of a whole body that is coming, or of commands that are kept; 0: neither
        self.body_since = -1  # ns: when that body began to come; -1: none is coming
        self._half_put: Put | None = None  # the put that the body belongs to
        self.worker = Worker(self)
        self.worker.takes_loans = context.others is not None
        # by message id: the jobs of other nodes that the client has, each with the number of the node that lent it
        self._loans: dict[int, tuple[int, Loan]] = {}
        self._put: Put | None = None
        self._spent = 0  # units of this turn, out of UNITS_OF_A_TURN
        self._discard = 0  # bytes of a body that are still to be discarded
        self._discard_reply = JOB_TOO_BIG  # the answer then
        self._skips_line = False  # True: the line was too long, and its end is looked for
        self._deadline = NEVER  # ns: when a waiting reserve is given up; -1 for a moment while a read from disk begins
        self._is_gone = False
        self._now = now
        broker.tubes.join(self.worker)
        if self.credential is not None:
            self.credential.show_user()

    # input

    def receive(self, data: bytes, now: int) -> None:
        """Handle the complete commands that came, up to UNITS_OF_A_TURN; keep the rest."""
        self._now = now
        self.has_more = False
        if not (self._buffer or self._wait or self.outbox.closing):
            self._handle_fresh_input(data)
            return
        self._buffer += data
        if self._wait or self.outbox.closing:
            self.waiting = len(self._buffer) > MOST_KEPT and not self.outbox.closing
            self._note_kept()
        elif self._put is None or self._long is not None or len(self._buffer) >= self._put.size + 2:
            self._handle_kept_input()  # else wait for the whole body: a large body is not copied for each piece

    def _handle_kept_input(self) -> None:
        """Handle the input that was kept."""
        data = bytes(self._buffer)
        self._buffer.clear()
        self._spent = 0
        self._handle_input(data, 0)

    def _handle_fresh_input(self, data: bytes) -> None:
        """Handle input before which none was kept: mostly a single command, of a client that waits for each answer."""
        self._spent = 1
        end = self._step(data, 0) if data and self._long is None else 0
        is_single = end == len(data) and self._put is None and self._long is None
        if not is_single or self._eof or self.buffered or self._discard:
            self._handle_input(data, max(end, 0))

    def _handle_input(self, data: bytes, at: int) -> None:
        """Handle the complete commands from `at` on, while units are left, and keep the rest."""
        while self._spent < UNITS_OF_A_TURN:
            self._spent += 1
            if self._wait or self.outbox.closing or (at == len(data) and self._long is None):
                break
            end = self._step(data, at)
            if end < 0:
                break
            at = end
        else:
            self.has_more = at < len(data)
        if self._long is not None:
            self.has_more = True
        if at < len(data) and not self.outbox.closing:
            self._buffer += data[at:] if at else data
        self.waiting = self._wait and len(self._buffer) > MOST_KEPT
        if self.buffered or self._buffer or self._put is not None or self._discard:
            self._note_kept()
        if self._eof and not self._wait and not self.has_more:
            self.outbox.end()

    def _note_kept(self) -> None:
        """Set `buffered` and `body_since` from the kept part of a half-received job or line."""
        put = self._put
        if put is not None and not self._wait:
            self.buffered = put.size + 2
            if put is not self._half_put:
                self._half_put, self.body_since = put, self._now
        elif self._discard:  # a discarded body takes no memory
            self.buffered, self.body_since = 1, self._now
        else:
            self.buffered, self.body_since = len(self._buffer), -1
            self._half_put = None

    def _step(self, data: bytes, at: int) -> int:
        """Take one line or body. Return where it ended, or -1 if it is not complete."""
        if self._long is not None:
            self._continue_long()
            return at if self._long is None else -1
        if self._discard:
            size = min(self._discard, len(data) - at)
            self._discard -= size
            if self._discard:
                return len(data) if size else -1
            self._fail(self._discard_reply)
            return at + size
        if self._put is not None:
            return self._body(self._put, data, at)
        newline = data.find(b"\r\n", at)
        if self._skips_line:
            if newline < 0:
                keep = 1 if data.endswith(b"\r") else 0
                return len(data) - keep if len(data) - keep > at else -1
            self._skips_line = False
            self._fail(BAD_FORMAT)
            return newline + 2
        if newline < 0 or newline + 2 - at > MAX_LINE:
            if begins_foreign(data[at : at + MAX_LINE]):
                return self._drop(data[at:])
            if newline < 0 and len(data) - at < MAX_LINE:
                return -1
            self._skips_line = True
            return at
        line = data[at:newline]
        usual = self._context.usual.get(line)
        if usual is not None:
            end = self._put_together(usual, data, at, newline + 2)
            if end:
                return end
        self._line(line)
        if self._wait and self._deadline < 0:  # the line is read again after the disk has answered
            self._deadline = NEVER
            return -1
        return newline + 2

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
            self._fail(BAD_FORMAT)
        except UnknownCommand:
            self._fail(UNKNOWN_COMMAND)
        except TooMany:
            self._fail(OUT_OF_MEMORY)
        except Reading as reading:
            self._broker.tubes.waiters.block(self.worker, reading.queue)
            self._wait, self._deadline = True, -1

    def _drop(self, data: bytes) -> int:
        self._transport.note_foreign("BEANSTALK", data)
        self.outbox.break_off()
        return -1

    def _unusual_line(self, line: bytes) -> None:
        if b"\0" in line:
            raise BadFormat
        verb, reader = verb_of(line)
        if verb == b"pause-tube":  # counted whatever follows
            self._broker.tubes.commands["pause-tube"] += 1
        arguments = reader(line, len(verb))
        if verb == b"put ":
            self._context.learn(line, arguments)
        self._do(verb, arguments)

    def _fail(self, error: bytes) -> None:
        """Answer with an error, and count it."""
        self._count_error(error)
        self._reply(error)

    def _count_error(self, error: bytes) -> None:
        self._broker.client_errors["beanstalkd", error[:-2].decode()] += 1

    def _reply(self, data: bytes) -> None:
        self._spent += 1 + len(data) // BYTES_OF_A_UNIT
        self.outbox.reply(data)

    def receive_eof(self) -> None:
        """Answer everything that the client has sent, and end a waiting reserve: the client sends no more."""
        self._eof = True
        if self._wait and self.waits_for_job:
            self._answer(TIMED_OUT)
        if not self._wait and not self.has_more:
            self.outbox.end()

    def disconnected(self) -> None:
        """Release everything: the connection is gone. The reactor calls this twice if the connection was drained first."""
        self.outbox.closing = True
        self._buffer.clear()
        self.buffered = 0
        self._half_put = None
        self.has_more = False
        if not self._is_gone:
            self._is_gone = True
            self._broker.seal_puts()
            self._broker.tubes.leave(self.worker)
            self.leave_account()

    def rights_changed(self) -> None:
        """End the connection if the client is nobody any more, or waits for jobs that it may not have."""
        credential, worker = self.credential, self.worker
        if credential is None or (credential.renew() and not (self.waits_for_job and not self.may_wait())):
            return
        self._broker.tubes.waiters.stop_waiting(worker)
        self._fail(UNAUTHORIZED)
        self.outbox.end()

    def may_wait(self) -> bool:
        """Return whether the client may have jobs of all the tubes that it watches."""
        credential = self.credential
        return credential is None or all(credential.may(Verb.CONSUME, name) for name in self.worker.watching)

    def break_off(self, why: str = "") -> None:
        """End the connection without another word to the client."""
        self.outbox.break_off()

    # Sink of its worker

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        self.outbox.wait_for(marks)

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        """Answer the waiting reserve with its job."""
        self._answer(job_reply(b"RESERVED", self._broker.tubes.client_id(job), body))
        if self.credential is not None:
            self.note_reserved()

    def read_completed(self) -> None:
        """Handle the waiting command again, at once, now that the disk has answered: a body is not kept for long."""
        self._wait = self.waiting = False
        self._now = self._broker.now  # a reservation made now counts from now on
        self._handle_kept_input()
        self._transport.output_ready()

    def _answer(self, reply: bytes) -> None:
        """Answer a waiting reserve, and go on with the kept input."""
        self._broker.tubes.waiters.stop_waiting(self.worker)
        self._deadline = self._room_due = NEVER
        self._reply(reply)
        self.continue_input()

    # time

    def next_timer(self) -> int:
        """Return when `tick` has something to do (monotonic ns)."""
        if not self.waits_for_job:
            return NEVER
        warned = self.worker.warned_at()
        due = min(self._deadline, self._room_due)
        return due if warned is None else min(due, warned)

    def tick(self, now: int) -> None:
        """End a waiting reserve that has waited long enough, or whose worker has a reservation that ends soon."""
        self._now = now
        if not self.waits_for_job or now < self.next_timer():
            return
        self._broker.tubes.release_due(self.worker, now)
        if not self.waits_for_job:  # the worker got a job that was due as early as its own deadline
            return
        warned = self.worker.warned_at()
        if warned is not None and warned <= now:
            self._answer(DEADLINE_SOON)
        elif now >= self._deadline:
            self._answer(TIMED_OUT)
        else:
            self.look_for_room(now)

    # calls that the reactor makes to every peer

    def take_output(self) -> list[bytes]:
        """Take everything that waits to be sent."""
        return self.outbox.drain()

    @property
    def patience(self) -> int:
        """Return 0: the usual limit applies to a network that takes nothing."""
        return 0

    # helpers of the commands

    def _promise(self, name: str) -> None:
        """Hold the reply back until the tube's records are as durable as its topic promises."""
        topic = self._broker.topics.get(name)
        for one in topic.shards if topic is not None else ():
            one.journal.promise()
            self.outbox.wait_for(one.marks)

    def _count(self, command: str) -> None:
        self._broker.tubes.commands[command] += 1

    def _begin_long(self, some: Callable[[], bytes | None]) -> None:
        """Begin a command that may take several turns.

        `some` does a part of it, and returns the reply when all is done, else None.
        """
        self._long = some
        self._continue_long()

    def _continue_long(self) -> None:
        assert self._long is not None
        self._broker.seal_puts()
        reply = self._long()
        if reply is not None:
            self._long = None
            self._reply(reply)

    def __repr__(self) -> str:
        return f"<Client {self.remote_ip}:{self.port}, {self.worker!r}, {len(self._buffer)} bytes kept>"

    @abstractmethod
    def _put_together(self, usual: tuple[int, JobOptions], data: bytes, at: int, body: int) -> int:
        """Handle a complete put and those like it that follow. Return where the last one ended; 0: nothing was done.

        The line of the first one is at `at`, its body at `body`.
        """

    @abstractmethod
    def _do(self, verb: bytes, arguments: tuple[Any, ...]) -> None:
        """Do a command, and reply. Raises BadFormat, TooMany, Reading."""

    @abstractmethod
    def _body(self, put: Put, data: bytes, at: int) -> int:
        """Handle the body of a put if it is complete, and return where it ended; else return -1."""
