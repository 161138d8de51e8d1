"""The base of beanstalkd's and Disque's clients: kept input, commands that wait or take several turns, and limits of accounts.

Commands are answered in their order. While one waits for a job, the disk, nsqlookupd or another node, later input is kept
and not parsed. A client whose account has no room for more reserved jobs waits as if there were none
(nsqd/protocols/account.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from nsqd.core.broker import Broker
from nsqd.core.sequence.mark import Mark
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.waiters import Reading
from nsqd.core.work_queue.worker import FEW, Worker
from nsqd.protocols.account import LOOK_AGAIN, NO_LIMIT, Account, Accounts
from nsqd.protocols.conversation import PlainPeer
from nsqd.protocols.credential import Credential, Proofs
from nsqd.protocols.outbox import Outbox
from nsqd.protocols.transport import NEVER, Transport, UntilRegistered
from shared.audit.event import UNKNOWN, Event, Note, Outcome
from shared.auth.verbs import Verb

if TYPE_CHECKING:
    from shared.tls.info import TlsInfo

UNITS_OF_A_TURN = 1024  # commands and replies count one each, and large ones more, so that no client gets a long turn
BYTES_OF_A_UNIT = 1024  # bytes of replies that count one unit: a megabyte in a turn
MOST_KEPT = 64 * 1024  # bytes of commands that are read ahead while one waits


@dataclass(slots=True, kw_only=True)
class JobContext:
    """What all such clients of a node share, whatever protocol they speak."""

    proofs: Proofs | None = None  # the auth file; None: every client has all rights
    accounts: Accounts | None = None  # of the identities in the auth file
    audit: Note | None = None  # records operators' actions and refusals; None: there is no audit
    until_registered: UntilRegistered | None = None  # None: there is no nsqlookupd


class JobClient(PlainPeer, ABC):
    """A client that puts and reserves jobs. Implements Conversation, AccountClient, and the sink of its worker.

    A subclass reads and executes one command (`_step`).
    """

    __slots__ = (
        "_again", "_buffer", "_deadline", "_eof", "_is_held", "_long", "_needed", "_room_due", "_spent", "_transport", "_wait",
        "body_since", "broker", "buffered", "bytes_published", "context", "credential", "has_more", "is_gone", "is_heavy",
        "jobs_published", "last_input", "now", "outbox", "port", "remote_ip", "waiting", "worker",
    )  # fmt: skip
    protocol: str  # as the audit and /metrics name it
    not_known: bytes  # the error for a client that has lost its rights

    def __init__(
        self,
        broker: Broker,
        context: JobContext,
        transport: Transport,
        remote_ip: str,
        port: str,
        now: int,
        lost: bytes,
        holder: Worker | None = None,
    ) -> None:
        """`remote_ip`: "" for a unix socket. `lost`: as in Outbox. `holder`: as in Worker."""
        self.broker, self.context = broker, context
        self._transport = transport
        self.remote_ip, self.port = remote_ip, port
        self.outbox = Outbox(transport, lost)
        self.now = self.last_input = now  # monotonic ns
        self.waiting = False  # True: so much input is kept that no more is to be read
        self.has_more = False  # True: there is input to handle even if no more comes
        # bytes of memory that the command needs that is coming, or of kept commands; 0: there are none
        self.buffered = 0
        self.body_since = -1  # ns: when the body of that command began to come; -1: none is coming
        self.is_heavy = False  # True: the client watches many tubes, and each reserve checks all of them
        self.is_gone = False  # True: the connection has ended, or is about to
        self.jobs_published = self.bytes_published = 0  # bytes of their bodies; counted where there is an auth file
        self._buffer = bytearray()  # kept input
        self._needed = 0  # bytes of input without which the first kept command is not complete
        self._spent = 0  # units of this turn, out of UNITS_OF_A_TURN
        self._eof = False  # True: the client sends no more
        self._wait = False  # True: no command is handled until the current one has its reply
        self._again = False  # True: the current command is then executed again
        self._is_held = False  # True: a publish waits until the account of the client is out of debt
        self._long: Callable[[], bytes | None] | None = None  # a command that takes several turns
        self._deadline = NEVER  # ns: until when the command waits
        self._room_due = NEVER  # ns: when to check again for room in flight; NEVER: the client may have a job
        self.worker = Worker(self, holder)
        self.credential: Credential | None = None  # None: there is no auth file
        if context.proofs is not None:
            self.credential = Credential(context.proofs, context.accounts, self, transport, remote_ip)
            self.credential.show_user()

    # input

    def receive(self, data: bytes, now: int) -> None:
        """Handle the complete commands that came, up to UNITS_OF_A_TURN; keep the rest."""
        self.now = now
        if not data or self._buffer or self._wait or self._long or self.outbox.closing:
            self._receive_more(data)
            return
        # no input was kept: mostly it is a single command, of a client that waits for each reply
        self.last_input = now
        self._spent, self._needed = 1, 0
        end = self._step(data, 0)
        if end < 0:
            self._keep(data, 0)
        elif end < len(data) or self._needed or self.buffered or self._long or self._eof:
            self._handle(data, end)

    def _receive_more(self, data: bytes) -> None:
        """Handle input behind input that was kept, or the latter alone (b"")."""
        self.has_more = False
        if data:
            self.last_input = self.now
        if self.outbox.closing:
            return
        self._buffer += data
        if self._wait or len(self._buffer) < self._needed:  # a large body is not copied for each piece of it
            self._keep(b"", 0)
        else:
            self._handle_kept_input()

    def _handle_kept_input(self) -> None:
        data = bytes(self._buffer)
        self._buffer.clear()
        self._spent = self._needed = 0
        self._handle(data, 0)

    def _handle(self, data: bytes, at: int) -> None:
        """Handle the complete commands from `at` on, while units are left, and keep the rest."""
        size = len(data)
        while (at < size or self._long) and not (self._wait or self.outbox.closing):
            if self._spent >= UNITS_OF_A_TURN:
                self.has_more = True
                break
            self._spent += 1
            end = self._step(data, at) if self._long is None else self._continue_long(at)
            if end < 0:
                break
            at = end
        self._keep(data, at)

    def _keep(self, data: bytes, at: int) -> None:
        """Keep the input from `at` on, behind commands that are complete, and set what the reactor reads."""
        if at:
            self.body_since = -1
        if at < len(data) and not self.outbox.closing:
            self._buffer += data[at:] if at else data
        self.waiting = self._wait and len(self._buffer) > MOST_KEPT
        if self._needed and not self._wait:
            self.buffered = max(self._needed, len(self._buffer))
            if self.body_since < 0:
                self.body_since = self.now
        else:
            self.buffered, self.body_since = len(self._buffer), -1
        if self._long is not None:
            self.has_more = True
        if self._eof and not (self._wait or self.has_more):
            self.outbox.end()

    @abstractmethod
    def _step(self, data: bytes, at: int) -> int:
        """Handle one command, or several of a kind. Return where they end, or -1 if the first is incomplete or waits."""

    def begin_long(self, step: Callable[[], bytes | None]) -> None:
        """Begin a command that may take several turns. `step` does the part of one turn; the last call returns the reply."""
        self._long = step
        if self._continue_long(0) < 0:
            self._spent = UNITS_OF_A_TURN

    def _continue_long(self, at: int) -> int:
        assert self._long is not None
        self.broker.seal_puts()
        reply = self._long()
        if reply is None:
            return -1
        self._long = None
        self.reply(reply)
        return at

    @abstractmethod
    def reply(self, data: bytes, marks: tuple[Mark, ...] = ()) -> None:
        """Answer the next command, as encoded bytes of the protocol, once these marks have reached the records of this turn."""

    @abstractmethod
    def fail(self, error: bytes) -> None:
        """Answer a command with an error, and count it."""

    # waiting

    def wait_for_job(self, deadline: int) -> None:
        """Let the client wait for a job of the tubes that its worker watches, until `deadline` (ns)."""
        self.broker.tubes.waiters.wait(self.worker)
        self.hold_back()
        self._wait = True
        self._deadline = deadline
        self._transport.timer_changed()

    @property
    def waits_for_job(self) -> bool:
        """Return True while the client waits for a job, or for room in flight."""
        return self.worker.waiting or self._room_due != NEVER

    @property
    @abstractmethod
    def no_job(self) -> bytes:
        """Return the reply if no job came in time."""

    def end_wait(self, reply: bytes) -> None:
        """Answer the command that waits, and handle the kept input in the next turn."""
        self._stop_waiting()
        self.reply(reply)
        self.continue_input()

    def _stop_waiting(self) -> None:
        self.broker.tubes.waiters.stop_waiting(self.worker)
        self._deadline = self._room_due = NEVER

    def wait_for_start(self, topic: str) -> None:
        """Handle no further command until nsqlookupd has named the channels of a new topic: then they have the jobs, too."""
        if self.context.until_registered is not None:
            self._wait = True
            self._transport.suspend(partial(self.context.until_registered, topic))

    def resume(self, now: int) -> None:
        self.continue_input()

    def continue_input(self) -> None:
        """Handle the kept input in the next turn."""
        self._wait = self._again = self.waiting = False
        self.has_more = bool(self._buffer)
        self._transport.output_ready()
        if self._eof and not self.has_more:
            self.outbox.end()

    def _block(self, reading: Reading) -> None:
        """Execute the command again when the disk has answered."""
        self.broker.tubes.waiters.block(self.worker, reading.queue)
        self._wait = self._again = True

    def promise(self, name: str) -> None:
        """Hold the reply back until the tube's records of this turn are as durable as its topic promises."""
        self.outbox.wait_for(self.promised(name))

    def promised(self, name: str) -> tuple[Mark, ...]:
        """Return the marks that a reply about the tube's records of this turn waits for, of all logs that have the tube."""
        topic = self.broker.topics.get(name)
        if topic is None:
            return ()
        if len(topic.shards) == 1:
            topic.journal.promise()
            return topic.marks
        for one in topic.shards:
            one.journal.promise()
        return sum([one.marks for one in topic.shards], ())

    # sink of the worker

    @abstractmethod
    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        """Answer the command that waits with its job."""

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        self.outbox.wait_for(marks)

    def read_completed(self) -> None:
        """Execute the waiting command again, at once, now that the disk has answered: a body is not kept for long."""
        self._wait = self._again = self.waiting = False
        self.now = self.broker.now  # a reservation made now counts from now on
        self._handle_kept_input()
        self._transport.output_ready()

    # calls of the reactor

    def next_timer(self) -> int:
        return min(self._deadline, self._room_due)

    def tick(self, now: int) -> None:
        """End a wait for a job that is over, or check for room in flight."""
        self.now = now
        if not self.waits_for_job or now < self.next_timer():
            return
        self.broker.tubes.release_due(self.worker, now)
        if not self.waits_for_job:  # the worker got a job that was due as early as its own deadline
            return
        reply = self._wait_result(now)
        if reply is not None:
            self.end_wait(reply)
        else:
            self._check_room(now)

    def _wait_result(self, now: int) -> bytes | None:
        """Return the reply to a command that has waited for a job in vain; None if it continues to wait at `now` (ns)."""
        return self.no_job if now >= self._deadline else None

    def receive_eof(self) -> None:
        """Answer everything that the client has sent, and end a wait for a job: the client sends no more."""
        self._eof = True
        if self.waits_for_job:
            self.end_wait(self.no_job)
        elif not (self._wait or self.has_more):
            self.outbox.end()

    def rights_changed(self) -> None:
        """End the connection of a client that is no longer known, or waits for jobs of tubes that it may not consume."""
        credential = self.credential
        if credential is None:
            return
        names = self.worker.watching if self.waits_for_job else ()
        if not credential.renew() or not all(credential.may(Verb.CONSUME, name) for name in names):
            self._stop_waiting()
            self.fail(self.not_known)
            self.outbox.end()

    def disconnected(self) -> None:
        """Release everything: the connection is gone. May be called again."""
        self.outbox.closing = True
        self._buffer.clear()
        self.buffered, self.has_more, self._long = 0, False, None
        if not self.is_gone:
            self.is_gone = True
            self.broker.seal_puts()
            self._leave()
            if self.credential is not None:
                self.credential.leave()

    @abstractmethod
    def _leave(self) -> None:
        """Remove the worker from the tubes, once."""

    def break_off(self, why: str = "") -> None:
        """End the connection without another byte to the client, and give it no more jobs."""
        self.outbox.break_off()
        self.disconnected()

    def upgraded(self, tls: TlsInfo | None = None) -> None:
        """Take the client's certificate. A client that connects by TLS expects no reply to it."""
        if self.credential is not None and tls is not None:
            self.credential.show_certificate(tls)

    @property
    def is_stranger(self) -> bool:
        return self.credential is not None and self.credential.identity is None

    # as AccountClient has them

    def published(self) -> tuple[int, int]:
        return self.jobs_published, self.bytes_published

    def in_flight(self) -> int:
        """Return the number of jobs that the worker holds: the account holds those of Disque's clients."""
        return len(self.worker.holds)

    @property
    def is_executing(self) -> bool:
        return self._long is not None

    def joined_account(self, account: Account) -> None:
        """Do nothing: the worker counts what it holds."""
        return

    def limits_changed(self) -> None:
        """Do nothing: each request for a job checks the limits."""
        return

    def debt_began(self) -> None:
        """Do nothing: each publish calls `is_in_debt`."""
        return

    def pause_ended(self, now: int) -> None:
        """Continue with a publish that was held back. Such clients may be silent indefinitely."""
        if self._is_held:
            self._is_held = False
            self.continue_input()

    def hold_back(self) -> None:
        if self.worker.waiting and self.room_in_flight() <= 0:
            self.broker.tubes.waiters.stop_waiting(self.worker)
            self._room_due = self.broker.now + LOOK_AGAIN
            self._transport.timer_changed()

    # for the protocols

    def rights_elsewhere(self, verb: Verb | None) -> bytes:
        """Return on which tubes of other nodes the client may do this (Rights.dump). Only for clients that may ask them."""
        if self.credential is None or verb is None:
            return b""
        rights = self.credential.dump(verb)
        assert rights is not None, "a client without rights on other nodes was refused"
        return rights

    def make_tube(self, name: str) -> None:
        """Make the topic of a tube, if there is none, as the limits of the client allow. Raises TooMany."""
        tubes = self.broker.tubes
        if self.credential is not None and name not in tubes.topics:
            self.credential.make_topic(name, tubes.topics, lambda: tubes.made(name))

    def record(self, action: str, target: str = "", outcome: Outcome = Outcome.DONE, count: int = UNKNOWN) -> None:
        """Record in the audit what the client did as an operator, or was refused."""
        if self.context.audit is not None:
            who = self.credential.name if self.credential is not None else ("", "")
            self.context.audit(Event(self.protocol, action, target, outcome, *who, address=self.remote_ip, count=count))

    def note_watched(self) -> None:
        """Set `is_heavy`: the worker watches other tubes now."""
        self.is_heavy = len(self.worker.watching) > FEW

    def count_published(self, jobs: int, size: int) -> None:
        """Count jobs that were put, with `size` bytes of bodies."""
        self.jobs_published += jobs
        self.bytes_published += size

    def is_in_debt(self) -> bool:
        """Return True if the client may not publish now, because its account has published too much."""
        usage = self.credential.usage if self.credential is not None else None
        return usage is not None and usage.debt(self.broker.now)

    def is_held_back(self) -> bool:
        """Return True if the client may not publish now; then no command is handled until it may."""
        if self.is_in_debt():
            self._wait = self._is_held = True
        return self._is_held

    def room_in_flight(self) -> int:
        """Return for how many more reserved jobs there is room in the account; at most 0: none."""
        usage = self.credential.usage if self.credential is not None else None
        return usage.room() if usage is not None else NO_LIMIT

    def note_reserved(self) -> None:
        """Keep other connections of the account from getting jobs, if this one has got the last that may be reserved."""
        usage = self.credential.usage if self.credential is not None else None
        if usage is not None and usage.limits.in_flight:
            usage.account.hold_back()

    def _check_room(self, now: int) -> None:
        """Let the client wait for a job again if there is room in flight at `now` (ns)."""
        if self.room_in_flight() > 0:
            self._room_due = NEVER
            self.broker.tubes.wait_again(self.worker)
        else:
            self._room_due = now + LOOK_AGAIN
        self._transport.timer_changed()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.remote_ip}:{self.port}, {self.worker!r}, {len(self._buffer)} bytes kept>"
