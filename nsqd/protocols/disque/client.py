"""Turn the bytes of a client of Disque into commands, and answers into bytes, without input or output.

Commands are answered in their order. While a GETJOB waits, an ADDJOB waits for nodes, or a body is read from disk, later input
is kept and not looked at. See docs/disque.md.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.queues import Queues
from nsqd.core.sequence.mark import Mark
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.loan import Loan
from nsqd.core.work_queue.waiters import Reading
from nsqd.core.work_queue.worker import FEW, Names, Worker
from nsqd.protocols.account import Account
from nsqd.protocols.disque import resp
from nsqd.protocols.disque.arguments import COMMANDS, Command, Refused, find
from nsqd.protocols.disque.audited import describe
from nsqd.protocols.disque.context import MOST_NAME, NO_FIGURES, ClusterFacts, OtherNodes, ServerFigures
from nsqd.protocols.disque.ids import JobIds
from nsqd.protocols.disque.rights import allows
from nsqd.protocols.job_client import JobClient, JobContext
from nsqd.protocols.recording import name_of, record
from nsqd.protocols.transport import NEVER, Transport
from shared.audit.event import Outcome
from shared.auth.verbs import Verb
from shared.values import SECOND

UNITS_OF_A_TURN = 1024  # commands and replies count one each, and large ones more, so that no client gets a long turn
BYTES_OF_A_UNIT = 1024  # bytes of replies that count one unit
MOST_KEPT = 64 * 1024  # bytes of commands that are read ahead while one waits
GONE_WITHIN = SECOND  # ns that an ADDJOB waits for nodes when its client sends no more: the client may be gone
CODES = frozenset(
    (b"BADID", b"ERR", b"LEAVING", b"MAXLEN", b"MISCONF", b"NOAUTH", b"NOJOB", b"NOPERM", b"NOPROTO", b"NOREPL", b"OOM",
     b"PAUSED", b"TOOLATE", b"WRONGPASS")
)  # fmt: skip
MOST_ECHOED = 64 * 1024  # bytes of an unknown command's name that an error repeats
NO_AUTH = b"NOAUTH Authentication required."
NO_PERMISSION = b"NOPERM this user has no permissions to run the '%s' command"
TOO_FEW_NODES = b"NOREPL Not enough reachable nodes for the requested replication level"
COPIES_TOO_LATE = b"NOREPL Timeout reached before replicating to the requested number of nodes"
GONE_BEFORE_COPIED = b"NOREPL job removed (expired?) before the requested replication level was achieved"

MOST_NAMES = 4096  # remembered names of queues
_NAME = re.compile(rb"(?!#)[!-~]{1,%d}(?<!#ephemeral)" % MOST_NAME)
BAD_NAME = (
    b"ERR Invalid queue name: 1 to 200 printable ASCII characters without spaces, not with # at the beginning"
    b" or #ephemeral at the end"
)


@dataclass(slots=True)
class DisqueContext(JobContext):
    """What all clients of Disque to a node share."""

    queues: Queues
    ids: JobIds
    cluster: ClusterFacts
    most_bytes: int  # of one argument: -max-msg-size
    others: OtherNodes | None = None  # None: there are none, or the client is one of another node, which has asked
    # True: a reply waits for copies until a limit of its own; False: as long as replies of other protocols
    has_limits: bool = True
    password: bytes = b""  # b"": there is none
    figures: Callable[[], ServerFigures] = lambda: NO_FIGURES  # of the process, for INFO
    clients: Callable[[], Sequence[Client]] = tuple  # of all connections
    stop: Callable[[], None] | None = None  # ends the process; None: SHUTDOWN is refused
    has_debug: bool = False  # DEBUG and CLUSTER RESET may throw jobs away
    is_ip: Callable[[str], bool] = bool  # whether a text is an IP address
    rewrite: Callable[[], str] | None = None  # writes the configuration file, returns why it failed; None: no file
    config: dict[str, str] = field(default_factory=dict)  # what CONFIG GET tells
    monitors: dict[Client, None] = field(default_factory=dict)  # clients that have sent MONITOR
    counts: dict[bytes, int] = field(default_factory=dict)  # how often each command came
    connections: int = 0  # since the start
    _names: dict[bytes, str] = field(default_factory=dict)

    def next_number(self) -> int:
        """Return the number of a new connection."""
        self.connections += 1
        return self.connections

    def queue(self, name: bytes) -> str:
        """Return the name of a queue as topics have it. Raises Refused if no queue can have it."""
        known = self._names.get(name)
        if known is None:
            if _NAME.fullmatch(name) is None:
                raise Refused(BAD_NAME)
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            known = self._names[name] = name.decode()
        return known

    def count(self, client: Client, command: bytes, arguments: list[bytes]) -> None:
        """Count a command, and show it to those who monitor."""
        self.counts[command] = self.counts.get(command, 0) + 1
        if self.monitors and command != b"monitor":
            for monitor in self.monitors:
                monitor.show_command(client, command, arguments)

    def forget(self, client: Client) -> None:
        """Take note that a connection is gone."""
        self.monitors.pop(client, None)


class Client(JobClient, ABC):
    """The reading of one client's bytes and the waiting of its commands; Peer has the commands.

    Implements nsqd.protocols.conversation.Conversation, and the sink of its worker.
    """

    __slots__ = (
        "_again",
        "_deadline",
        "_needed",
        "_spent",
        "asks_others",
        "authorized",
        "body_since",
        "broker",
        "buffered",
        "context",
        "is_gone",
        "joined",
        "last_command",
        "last_input",
        "name",
        "nil",
        "nil_array",
        "now",
        "number",
        "port",
        "put_due",
        "put_since",
        "silence",
        "wants_counters",
    )

    def __init__(
        self, broker: Broker, context: DisqueContext, transport: Transport, remote_ip: str, port: str, now: int
    ) -> None:
        self.broker = broker
        self.context = context
        super().__init__(broker.tubes, context, transport, remote_ip, resp.error(COPIES_TOO_LATE))
        self.port = port
        self.buffered = 0  # bytes that the command takes that is coming, or those that are kept; 0: neither
        self.body_since = -1  # ns: when that command began to come; -1: none is coming
        self.worker = Worker(self, context.queues.holder)
        self.worker.watching.remove(self.worker.using)
        self.worker.takes_loans = True
        self.now = self.joined = self.last_input = now
        self.number = context.next_number()  # CLIENT LIST tells it
        self.name = b""  # by CLIENT SETNAME
        self.last_command = b""
        self.authorized = not (context.password or context.proofs)
        self.nil, self.nil_array = resp.NIL, resp.NIL_ARRAY  # as the version of RESP has them that the client asked for
        self.wants_counters = False  # the last GETJOB asked for the counters of jobs
        self.silence = 0  # replies that are not sent, because the client has asked for it; -1: all
        self._needed = 0  # bytes of input without which the command that is kept is not complete
        self._spent = 0  # units of this turn, out of UNITS_OF_A_TURN
        self._again = False  # True: the command is executed again when the disk has answered
        self._deadline = NEVER  # ns: when a waiting GETJOB or ADDJOB is given up
        self.put_since = -1  # ns: when the ADDJOB came that waits until enough nodes can have a copy; -1: none waits
        self.put_due = NEVER  # ns: until when that one waits
        self.is_gone = False  # True: the client was ended, or its connection is gone
        self.asks_others = False  # True: other nodes were asked to do the command that waits
        if self.credential is not None:
            self.credential.show_user()
            self.authorized = self.credential.identity is not None

    # input

    def receive(self, data: bytes, now: int) -> None:
        """Handle the complete commands that came, up to UNITS_OF_A_TURN; keep the rest."""
        self.now = now
        self.has_more = False
        if data:
            self.last_input = now
        if not (self._buffer or self._wait or self._long or self.outbox.closing):
            self._handle_fresh_input(data)
            return
        self._buffer += data
        if self._wait or self.outbox.closing:
            self.waiting = len(self._buffer) > MOST_KEPT and not self.outbox.closing
            self.buffered = len(self._buffer)
        elif len(self._buffer) >= self._needed or self._long:  # a large body is not copied for each piece of it
            self._handle_kept_input()

    def _handle_kept_input(self) -> None:
        data = bytes(self._buffer)
        self._buffer.clear()
        self._spent = self._needed = 0
        self._handle(data, 0)

    def _handle_fresh_input(self, data: bytes) -> None:
        """Handle input before which none was kept: mostly a single command, of a client that waits for each answer."""
        self._spent, self._needed = 1, 0
        end = self._step(data, 0) if data else 0
        if end < 0:
            self._keep(data, 0)
        elif end < len(data) or self._long is not None or self._eof:
            self._handle(data, end)

    def _handle(self, data: bytes, at: int) -> None:
        """Handle the complete commands from `at` on, while units are left, and keep the rest."""
        size = len(data)
        while (at < size or self._long) and not (self._wait or self.outbox.closing):
            if self._spent >= UNITS_OF_A_TURN:
                self.has_more = True
                break
            self._spent += 1
            end = self._step(data, at)
            if end < 0:
                break
            at = end
        self._keep(data, at)

    def _keep(self, data: bytes, at: int) -> None:
        if at < len(data) and not self.outbox.closing:
            self._buffer += data[at:] if at else data
        self.waiting = self._wait and len(self._buffer) > MOST_KEPT
        if not self._buffer:
            self.buffered, self.body_since = 0, -1
        elif self._needed and not self._wait:
            if self.body_since < 0:
                self.body_since = self.now
            self.buffered = max(self._needed, len(self._buffer))
        else:
            self.buffered, self.body_since = len(self._buffer), -1
        if self._long is not None:
            self.has_more = True
        if self._eof and not self._wait and not self.has_more:
            self.outbox.end()

    def _step(self, data: bytes, at: int) -> int:
        """Handle one command, or several like the last one. Return where it ended, or -1 if it is not complete."""
        if self._long is not None:
            self._continue_long()
            return at if self._long is None else -1
        try:
            end = self.repeat(data, at)
        except Reading as reading:
            self._block(reading)
            return -1
        if end:
            return end
        try:
            found = resp.read_request(data, at, self.context.most_bytes)
        except resp.ForeignRequest:
            self._transport.note_foreign("DISQUE", data[at:])
            self.outbox.break_off()
            return -1
        except resp.ProtocolError as wrong:
            self.count_error(b"ERR")
            self._send(wrong.line)
            self.outbox.end()
            return -1
        if isinstance(found, int):
            self._needed = found
            return -1
        arguments, end = found
        if arguments:
            self._execute(arguments)
            if self._again:
                return -1
            self.learn(arguments, data, at, end)
        return end

    def _execute(self, arguments: list[bytes]) -> None:
        """Execute a command, after the checks that Disque makes of every command, in its order."""
        name = arguments[0]
        command = COMMANDS.get(name) or find(name)
        if command is None:
            self._unknown(name)
            return
        if not command.arity_ok(len(arguments)):
            self.reply_error(b"ERR wrong number of arguments for '%s' command" % command.name)
            return
        if not self.authorized and command.name not in (b"auth", b"hello"):
            self.record(arguments, Outcome.REFUSED)
            self.reply_error(NO_AUTH)
            return
        if not self.may(command.name, arguments):
            self.record(arguments, Outcome.REFUSED)
            self.reply_error(NO_PERMISSION % command.name)
            return
        if command.needs_memory and self.broker.store.refusal:
            self.reply_error(b"MISCONF Errors writing to the AOF file: " + self.broker.store.refusal.encode())
            return
        self.last_command = command.name
        if self.put_since < 0:  # else it is counted already
            self.context.count(self, command.name, arguments)
        try:
            self.do(command, arguments)
        except Refused as refused:
            self.reply_error(refused.text)
            if self.credential is not None and self.credential.is_guess:
                self.outbox.end()
        except TooMany as error:
            self.reply_error(b"OOM " + str(error).encode())
        except Reading as reading:
            self._block(reading)
        if not self._again:
            self.put_since = -1

    def may(self, command: bytes, arguments: list[bytes]) -> bool:
        """Return whether the client may do a command. AUTH and HELLO are how it says who it is."""
        credential = self.credential
        if credential is None or not self.authorized:
            return True
        return allows(credential, self.context.queues, self.context.ids, command, arguments)

    def record(self, arguments: Sequence[bytes], outcome: Outcome = Outcome.DONE) -> None:
        """Record a command in the audit, if there is one."""
        if self.context.audit is not None:
            who = name_of(self.credential.identity if self.credential is not None else None)
            action, target = describe(arguments)
            record(self.context.audit, "disque", self.remote_ip, who, action, target, outcome)

    def show_token(self, secret: bytes) -> bool:
        """Take the password of AUTH or HELLO as a token of the auth file."""
        if self.credential is None or not self.credential.show_token(secret):
            self.record([b"auth"], Outcome.REFUSED)
            return False
        self.forget_usual()
        self._end_monitoring()
        self.authorized = True
        return True

    def joined_account(self, account: Account) -> None:
        """Have the account hold the jobs that the client fetches."""
        self.worker.holder = account.holder

    def _end_monitoring(self) -> None:
        """Show the client no more commands of others, if it may not see them now."""
        if not self.may(b"monitor", [b"monitor"]):
            self.context.forget(self)

    def rights_changed(self) -> None:
        """End the connection if the client is nobody any more, or waits for jobs that it may not have."""
        credential = self.credential
        self.forget_usual()
        if credential is None:
            return
        waits = self.worker.watching if self.waits_for_job else ()
        is_known = credential.renew()
        self.authorized |= credential.identity is not None
        self._end_monitoring()
        if not is_known or not all(credential.may(Verb.CONSUME, name) for name in waits):
            self.context.queues.stop_waiting(self.worker)
            self.reply_error(NO_AUTH)
            self.outbox.end()

    @abstractmethod
    def forget_usual(self) -> None:
        """Read the next commands as those of a client that has sent none: its rights may have changed."""

    def _block(self, reading: Reading) -> None:
        """Execute the command again when the disk has answered."""
        self.broker.tubes.waiters.block(self.worker, reading.queue)
        self._wait = self._again = True

    def execute_again(self) -> None:
        """Execute the command again when what it waits for is over."""
        self._again = True

    def pause_ended(self, now: int) -> None:
        if self._is_held:
            self._again = False
            self._needed = 0
        super().pause_ended(now)

    def _unknown(self, name: bytes) -> None:
        if name.lower() == b"quit":
            self._send(resp.status(b"OK"))
            self.outbox.end()
            return
        self.reply_error(b"ERR unknown command '%s'" % name[:MOST_ECHOED])

    # replies

    def reply(self, data: bytes, marks: tuple[Mark, ...] = ()) -> None:
        """Answer the command, once these marks have reached the records of this turn."""
        self._spent += len(data) // BYTES_OF_A_UNIT
        if not self.silence:
            self.outbox.reply(data, marks)
        elif self.silence > 0:
            self.silence -= 1

    def reply_by(self, data: bytes, marks: tuple[Mark, ...], due: int, error: bytes, count: int) -> None:
        """Answer `count` commands alike, or each with that error if the last of the marks is not reached by `due` (ns)."""
        self._spent += len(data) // BYTES_OF_A_UNIT
        if not self.silence:
            self.outbox.reply_by(data, marks, due, resp.error(error) * count, count)
        elif self.silence > 0:
            self.silence -= 1

    def reply_error(self, text: bytes) -> None:
        """Answer with an error: its code and its text. Count it."""
        self.count_error(text)
        self.reply(resp.error(text))

    def count_error(self, text: bytes) -> None:
        """Count an error that the client is answered. text: begins with the code."""
        code = text.partition(b" ")[0]
        self.broker.client_errors["disque", code.decode() if code in CODES else "ERR"] += 1

    def _send(self, data: bytes) -> None:
        self.outbox.reply(data)

    def spend(self, units: int) -> None:
        """Count a command that does the work of several."""
        self._spent += units

    def promise(self, queue: str) -> None:
        """Hold the reply back until the queue's records of this turn are as durable as its topic promises."""
        topic = self.broker.topics.get(queue)
        for one in (topic, *topic.shards) if topic is not None else ():
            one.journal.promise()
            self.outbox.wait_for(one.marks)

    # waiting

    def wait_for_job(self, timeout: int) -> None:
        """Let the client wait for a job of the queues that its worker watches. `timeout`: ms; 0: without end.

        Raises TooMany.
        """
        self.broker.tubes.admit_waiting(self.worker)
        self.context.queues.wait(self.worker)
        self.hold_back()
        self._wait = True
        self._deadline = self.now + timeout * 1_000_000 if timeout else NEVER
        self._transport.timer_changed()

    def end_wait(self, reply: bytes) -> None:
        """Answer a GETJOB that waits, and go on with the kept input in the next turn."""
        self.context.queues.stop_waiting(self.worker)
        self.forget_many_queues()
        self._deadline = self._room_due = NEVER
        self.reply(reply)
        self.continue_input()

    def forget_many_queues(self) -> None:
        """Watch no queues after a GETJOB that named many: ten thousand such clients would take a gigabyte."""
        if len(self.worker.watching) > FEW:
            self.worker.watching = Names()

    def wait_for_nodes(self, due: int) -> None:
        """Execute the ADDJOB again when more nodes can have a copy, and at `due` (monotonic ns) for the last time."""
        if self.put_since < 0:
            self.put_since = self.now
            self.put_due = min(due, self.now + GONE_WITHIN) if self._eof else due
        self._wait = self._again = True
        self._deadline = self.put_due
        self.broker.put_waiters[self] = None
        self._transport.timer_changed()

    def retry_put(self) -> None:
        """Execute the ADDJOB that waits for nodes again, in the next turn."""
        self.broker.put_waiters.pop(self, None)
        self._again, self._deadline = False, NEVER
        self.continue_input()

    @property
    def is_blocked(self) -> bool:
        """Return True while the client waits for a job, or for nodes that can have a copy of one."""
        return self.worker.waiting or self.put_since >= 0

    def wait_for_others(self) -> None:
        """Look at no further command until `others_answered`."""
        self._wait = self.asks_others = True

    def others_answered(self, reply: bytes) -> None:
        """Answer the command that waited for other nodes, and go on with the kept input in the next turn."""
        self.asks_others = False
        if not self.is_gone:
            if reply.startswith(b"-"):
                self.count_error(reply[1:])
            self.end_wait(reply)

    def begin_long(self, some: Callable[[], bytes | None]) -> None:
        """Begin a command that may take several turns, of which this is the first.

        `some` does the part of a turn, and returns the reply when all is done.
        """
        self._long = some

    def _continue_long(self) -> None:
        assert self._long is not None
        self.broker.seal_puts()
        reply = self._long()
        if reply is not None:
            self._long = None
            self.reply(reply)

    # sink of its worker

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        self.outbox.wait_for(marks)

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        """Answer the waiting GETJOB with its job."""
        self.context.queues.note_fetched(tube, self.broker.now)
        self.end_wait(self.fetched([(tube, job, body)]))
        if self.credential is not None:
            self.note_reserved()

    def lent(self, loan: Loan, lender: int) -> bool:
        """Answer the waiting GETJOB with a job of another node. The client does not own it, so it stays out if that goes."""
        self.context.queues.use(loan.queue, self.broker.now)
        self.end_wait(self.borrowed(loan))
        return False

    def read_completed(self) -> None:
        """Execute the waiting command again now that the disk has answered: a body that was read is not kept for long."""
        self._wait = self._again = self.waiting = False
        self.now = self.broker.now
        self._handle_kept_input()
        self._transport.output_ready()

    # calls of the reactor

    def receive_eof(self) -> None:
        """Answer everything that the client has sent, and end a waiting GETJOB: the client sends no more."""
        self._eof = True
        if self.waits_for_job:
            self.end_wait(self.nil_array)
        elif self.put_since >= 0:
            self.put_due = self._deadline = min(self.put_due, self.broker.now + GONE_WITHIN)
            self._transport.timer_changed()
        elif not self._wait and not self.has_more:
            self.outbox.end()

    def disconnected(self) -> None:
        """Release everything: the connection is gone. The reactor calls this again if it was drained or broken off first."""
        self.outbox.closing = True
        self._buffer.clear()
        self.buffered, self.has_more, self._long = 0, False, None
        if not self.is_gone:
            self.is_gone = True
            self.broker.put_waiters.pop(self, None)
            self.broker.seal_puts()
            self.broker.tubes.forget_waiting(self.worker)
            self.context.forget(self)
            self.leave_account()

    def break_off(self, why: str = "") -> None:
        """End the connection without another word to the client, and give it no job any more."""
        self.outbox.break_off()
        self.disconnected()

    def next_timer(self) -> int:
        """Return when `tick` has something to do (monotonic ns)."""
        return min(self._deadline, self._room_due)

    def tick(self, now: int) -> None:
        """End a GETJOB or an ADDJOB that has waited long enough."""
        self.now = now
        if self.put_since >= 0 and now >= self._deadline:
            self.retry_put()
            return
        if not self.waits_for_job or now < self.next_timer():
            return
        self.broker.tubes.release_due(self.worker, now)
        if not self.waits_for_job:  # it got a job that was due as early as its own deadline
            return
        if now >= self._deadline:
            self.end_wait(self.nil_array)
        else:
            self.look_for_room(now)

    def take_output(self) -> list[bytes]:
        """Take everything that waits to be sent."""
        return self.outbox.drain()

    @property
    def is_stranger(self) -> bool:
        """Return True until the client has shown who it is, where that is asked for."""
        return not self.authorized

    @property
    def patience(self) -> int:
        """Return 0: the usual limit applies to a network that takes nothing."""
        return 0

    def __repr__(self) -> str:
        return f"<Client {self.remote_ip}:{self.port}, {self.worker!r}, {len(self._buffer)} bytes kept>"

    @abstractmethod
    def do(self, command: Command, arguments: list[bytes]) -> None:
        """Do a command, and reply. Raises Refused, TooMany, Reading."""

    @abstractmethod
    def show_command(self, client: Client, command: bytes, arguments: list[bytes]) -> None:
        """Send a command that `client` has sent, since this client has sent MONITOR."""

    @abstractmethod
    def fetched(self, jobs: list[tuple[str, Job, bytes]]) -> bytes:
        """Return the reply to a GETJOB that has fetched these jobs."""

    @abstractmethod
    def borrowed(self, loan: Loan) -> bytes:
        """Return the reply to a GETJOB that has got a job of another node."""

    @abstractmethod
    def repeat(self, data: bytes, at: int) -> int:
        """Handle commands at `at` that are like the last one. Return where they end; 0: there are none."""

    @abstractmethod
    def learn(self, arguments: list[bytes], data: bytes, at: int, end: int) -> None:
        """Take note of a command that was executed, because clients send the same again; its bytes are data[at:end]."""
