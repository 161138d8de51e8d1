"""Turn the bytes of a client of Disque into commands, and replies into bytes, without input or output.

See docs/reference/compatibility-disque.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany, TopicFull
from nsqd.core.queues import Queues
from nsqd.core.sequence.mark import Mark
from nsqd.core.work_queue.waiters import Reading
from nsqd.core.work_queue.worker import FEW, Names
from nsqd.protocols.account import Account
from nsqd.protocols.disque import resp
from nsqd.protocols.disque.arguments import COMMANDS, Command, Refused
from nsqd.protocols.disque.audited import note
from nsqd.protocols.disque.context import (
    BAD_NAME,
    MOST_NAMES,
    NO_FIGURES,
    QUEUE_NAME,
    DisqueCluster,
    OtherNodes,
    ServerFigures,
)
from nsqd.protocols.disque.ids import JobIds
from nsqd.protocols.disque.rights import allows
from nsqd.protocols.job_client import BYTES_OF_A_UNIT, JobClient, JobContext
from nsqd.protocols.transport import NEVER, Transport
from shared.audit.event import Outcome
from shared.tls.info import TlsInfo
from shared.values import SECOND

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


class Client(JobClient):
    """The reading of one client's bytes, and the waiting of its commands; Peer has the commands."""

    __slots__ = (
        "asks_others", "authorized", "joined", "last_command", "name", "nil", "nil_array", "number", "put_due",
        "put_since", "silence", "wants_counters",
    )  # fmt: skip
    protocol = "disque"
    not_known = NO_AUTH
    context: DisqueContext

    def __init__(
        self, broker: Broker, context: DisqueContext, transport: Transport, remote_ip: str, port: str, now: int
    ) -> None:
        lost = resp.error(COPIES_TOO_LATE)
        super().__init__(broker, context, transport, remote_ip, port, now, lost, context.queues.holder)
        self.worker.watching.remove(self.worker.using)
        self.worker.takes_loans = True
        self.joined = now
        self.number = context.next_number()  # for CLIENT LIST
        self.name = b""  # by CLIENT SETNAME
        self.last_command = b""
        self.authorized = not (context.password or context.proofs)
        if self.credential is not None:
            self.authorized = self.credential.identity is not None
        self.nil, self.nil_array = resp.NIL, resp.NIL_ARRAY  # as the version of RESP has them that the client asked for
        self.wants_counters = False  # the last GETJOB asked for the counters of jobs
        self.silence = 0  # replies that are not sent, because the client has asked for it; -1: all
        self.put_since = -1  # ns: when the ADDJOB came that waits until enough nodes can have a copy; -1: none waits
        self.put_due = NEVER  # ns: until when that one waits
        self.asks_others = False  # True: other nodes were asked to execute the command that waits

    def _step(self, data: bytes, at: int) -> int:
        """Handle one command, or several like the last one. Return where it ended, or -1 if it is not complete or waits."""
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
            self.outbox.reply(wrong.line)
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
        command = COMMANDS.get(name) or COMMANDS.get(name.lower())
        if command is None:
            self._unknown(name)
            return
        if not command.arity_ok(len(arguments)):
            self.fail(b"ERR wrong number of arguments for '%s' command" % command.name)
            return
        if not self.authorized and command.name not in (b"auth", b"hello"):
            note(self, arguments, Outcome.REFUSED)
            self.fail(NO_AUTH)
            return
        if not self.may(command.name, arguments):
            note(self, arguments, Outcome.REFUSED)
            self.fail(NO_PERMISSION % command.name)
            return
        if command.needs_memory and self.broker.store.refusal:
            self.fail(b"MISCONF Errors writing to the AOF file: " + self.broker.store.refusal.encode())
            return
        self.last_command = command.name
        if self.put_since < 0:  # else it is counted already
            self.context.count(self, command.name, arguments)
        try:
            self.do(command, arguments)
        except Refused as refused:
            self.fail(refused.text)
            if self.credential is not None and self.credential.is_guess:
                self.outbox.end()
        except TooMany as error:
            self.fail((b"MAXLEN " if isinstance(error, TopicFull) else b"OOM ") + str(error).encode())
        except Reading as reading:
            self._block(reading)
        if not self._again:
            self.put_since = -1

    def may(self, command: bytes, arguments: list[bytes]) -> bool:
        """Return whether the client may execute a command. AUTH and HELLO identify it."""
        credential = self.credential
        if credential is None or not self.authorized:
            return True
        return allows(credential, self.context.queues, self.context.ids, command, arguments)

    def show_token(self, secret: bytes) -> bool:
        """Identify the client by the password of AUTH or HELLO, a token of the auth file."""
        if self.credential is None or not self.credential.show_token(secret):
            note(self, [b"auth"], Outcome.REFUSED)
            return False
        self.forget_usual()
        self._end_monitoring()
        self.authorized = True
        return True

    def joined_account(self, account: Account) -> None:
        self.worker.holder = account.holder

    def _end_monitoring(self) -> None:
        """End MONITOR if the client may not use it now."""
        if not self.may(b"monitor", [b"monitor"]):
            self.context.forget(self)

    def rights_changed(self) -> None:
        self.forget_usual()
        super().rights_changed()
        if self.credential is not None:
            self.authorized |= self.credential.identity is not None
            self._end_monitoring()

    def upgraded(self, tls: TlsInfo | None = None) -> None:
        super().upgraded(tls)
        if self.credential is not None:
            self.authorized |= self.credential.identity is not None

    @property
    def is_stranger(self) -> bool:
        return not self.authorized

    @abstractmethod
    def forget_usual(self) -> None:
        """Read the next commands as those of a client that has sent none: its rights may have changed."""

    def execute_again(self) -> None:
        """Execute the command again when what it waits for is over."""
        self._again = True

    def _unknown(self, name: bytes) -> None:
        if name.lower() == b"quit":
            self.outbox.reply(resp.status(b"OK"))
            self.outbox.end()
            return
        self.fail(b"ERR unknown command '%s'" % name[:MOST_ECHOED])

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

    def fail(self, text: bytes) -> None:
        """Answer with an error: its code and its text. Count it."""
        self.count_error(text)
        self.reply(resp.error(text))

    def count_error(self, text: bytes) -> None:
        """Count an error that the client is answered. text: begins with the code."""
        code = text.partition(b" ")[0]
        self.broker.client_errors["disque", code.decode() if code in CODES else "ERR"] += 1

    def spend(self, units: int) -> None:
        """Count a command that does the work of several."""
        self._spent += units

    # waiting

    @property
    def no_job(self) -> bytes:
        return self.nil_array

    def _stop_waiting(self) -> None:
        super()._stop_waiting()
        self.forget_many_queues()

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
        self._deadline = NEVER
        self.continue_input()

    @property
    def is_blocked(self) -> bool:
        """Return True while the client waits for a job, or for nodes that can have a copy of one."""
        return self.worker.waiting or self.put_since >= 0

    def wait_for_others(self) -> None:
        """Handle no further command until `others_answered`."""
        self._wait = self.asks_others = True

    def others_answered(self, reply: bytes) -> None:
        """Answer the command that waited for other nodes, and handle the kept input in the next turn."""
        self.asks_others = False
        if not self.is_gone:
            if reply.startswith(b"-"):
                self.count_error(reply[1:])
            self.end_wait(reply)

    def receive_eof(self) -> None:
        """Do the same; an ADDJOB does not wait much longer for nodes."""
        if self.put_since >= 0:
            self._eof = True
            self.put_due = self._deadline = min(self.put_due, self.broker.now + GONE_WITHIN)
            self._transport.timer_changed()
        else:
            super().receive_eof()

    def _leave(self) -> None:
        self.broker.put_waiters.pop(self, None)
        self.broker.tubes.forget_waiting(self.worker)
        self.context.forget(self)

    def tick(self, now: int) -> None:
        """Do the same, or end the wait of an ADDJOB for nodes."""
        if self.put_since >= 0 and now >= self._deadline:
            self.now = now
            self.retry_put()
        else:
            super().tick(now)

    @abstractmethod
    def do(self, command: Command, arguments: list[bytes]) -> None:
        """Do a command, and reply. Raises Refused, TooMany, Reading."""

    @abstractmethod
    def show_command(self, client: Client, command: bytes, arguments: list[bytes]) -> None:
        """Send a command that `client` has sent, since this client has sent MONITOR."""

    @abstractmethod
    def repeat(self, data: bytes, at: int) -> int:
        """Handle commands at `at` that are like the last one. Return where they end; 0: there are none."""

    @abstractmethod
    def learn(self, arguments: list[bytes], data: bytes, at: int, end: int) -> None:
        """Remember an executed command, because clients send the same again; its bytes are data[at:end]."""


@dataclass(slots=True)
class DisqueContext(JobContext):
    """The data that all clients of Disque share."""

    queues: Queues
    ids: JobIds
    cluster: DisqueCluster
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
    # writes the configuration file, and returns the error; None: there is none
    rewrite: Callable[[], str] | None = None
    config: dict[str, str] = field(default_factory=dict)  # for CONFIG GET
    monitors: dict[Client, None] = field(default_factory=dict)  # clients that have sent MONITOR
    counts: Counter[bytes] = field(default_factory=Counter)  # of each command
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
            if QUEUE_NAME.fullmatch(name) is None:
                raise Refused(BAD_NAME)
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            known = self._names[name] = name.decode()
        return known

    def count(self, client: Client, command: bytes, arguments: list[bytes]) -> None:
        """Count a command, and send it to the monitors."""
        self.counts[command] += 1
        if self.monitors and command != b"monitor":
            for monitor in self.monitors:
                monitor.show_command(client, command, arguments)

    def forget(self, client: Client) -> None:
        """Forget a connection that is gone."""
        self.monitors.pop(client, None)
