"""One client of Disque, with all of its commands."""

from __future__ import annotations

from dataclasses import dataclass

from nsqd.core.broker import Broker
from nsqd.core.limits import TooFewCopies, TooMany
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.loan import Loan
from nsqd.core.work_queue.worker import FEW
from nsqd.protocols.disque import jobs, queues, server
from nsqd.protocols.disque.arguments import Command, GetJob, Refused, addjob, getjob
from nsqd.protocols.disque.audited import Handler, audited
from nsqd.protocols.disque.client import Client, DisqueContext
from nsqd.protocols.disque.ids import ID_SIZE
from nsqd.protocols.job_client import UNITS_OF_A_TURN
from nsqd.protocols.transport import Transport

_STAR = ord("*")
_ACKJOB = b"*2\r\n$6\r\nACKJOB\r\n$40\r\n"  # how most clients acknowledge
_ACKJOB_END = len(_ACKJOB) + ID_SIZE
_ACKJOB_SIZE = _ACKJOB_END + 2
_HANDLERS: dict[bytes, Handler[Client]] = {
    b"addjob": jobs.add,
    b"getjob": jobs.get,
    b"ackjob": jobs.acknowledge,
    b"fastack": jobs.acknowledge,
    b"deljob": jobs.acknowledge,
    b"nack": jobs.nack,
    b"enqueue": audited(b"enqueue", jobs.enqueue),
    b"dequeue": audited(b"dequeue", jobs.dequeue),
    b"working": jobs.working,
    b"show": jobs.show,
    b"qlen": queues.length,
    b"qpeek": queues.peek,
    b"qstat": queues.stat,
    b"qscan": queues.scan_queues,
    b"jscan": queues.scan_jobs,
    b"pause": audited(b"pause", queues.set_pause),
    **{name: audited(name, handler) for name, handler in server.HANDLERS.items()},
}


@dataclass(frozen=True, slots=True)
class _Add:
    """The last ADDJOB of a client, without its body: clients send the same again and again."""

    queue: str
    options: JobOptions  # without the time when a delay ends
    before: bytes  # up to the body
    size: int  # bytes of the body
    behind: bytes
    is_usual: bool  # the number of copies is that of the cluster, which may change
    asks_for_copies: bool  # its reply waits for them
    timeout: int  # ms that it waits; 0: no limit


@dataclass(frozen=True, slots=True)
class _Get:
    """The last GETJOB of a client."""

    request: bytes  # as it came
    wanted: GetJob
    queue: str  # the only one that it names, if it asks for one job without more; "": it asks for more
    name: bytes  # of the first queue


class Peer(Client):
    """One client of Disque, with the commands that it may send."""

    __slots__ = ("_add", "_get")

    def __init__(
        self, broker: Broker, context: DisqueContext, transport: Transport, remote_ip: str, port: str, now: int
    ) -> None:
        super().__init__(broker, context, transport, remote_ip, port, now)
        self._add: _Add | None = None
        self._get: _Get | None = None

    def do(self, command: Command, arguments: list[bytes]) -> None:
        if command.name != b"addjob":
            self.broker.tubes.match()
        if command.name == b"getjob":
            self._get = None  # its worker watches other queues now
        _HANDLERS[command.name](self, arguments)

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        """Answer the waiting GETJOB with its job."""
        self.context.queues.note_fetched(tube, self.broker.now)
        self.end_wait(jobs.fetched(self, [(tube, job, body)]))
        if self.credential is not None:
            self.note_reserved()

    def lent(self, loan: Loan, lender: int) -> bool:
        """Answer the waiting GETJOB with a job of another node, which keeps it if the client disconnects."""
        self.context.queues.use(loan.queue, self.broker.now)
        self.end_wait(jobs.borrowed(self, loan))
        return False

    # commands that clients repeat

    def learn(self, arguments: list[bytes], data: bytes, at: int, end: int) -> None:
        name = arguments[0].lower()
        if not self.may(name, arguments):
            return  # the same command is refused again
        if name == b"getjob":
            try:
                wanted = getjob(arguments)
                names = [self.context.queue(name) for name in wanted.queues]
            except Refused:
                return
            if len(names) <= FEW:
                has_more = wanted.with_counters or wanted.with_headers
                is_plain = len(names) == 1 and not has_more and wanted.count == 1
                self._get = _Get(data[at:end], wanted, names[0] if is_plain else "", wanted.queues[0])
        elif name == b"addjob" and len(arguments) >= 4 and data[at] == _STAR:
            self._add = self._learned(arguments, data, at, end)

    def _learned(self, arguments: list[bytes], data: bytes, at: int, end: int) -> _Add | None:
        """Return the ADDJOB to remember; None if there is more to check than `jobs.add_usual` does."""
        try:
            wanted = addjob(arguments, jobs.usual_copies(self))
            queue = self.context.queue(wanted.queue)
        except Refused:
            return None
        copies = wanted.replicate or jobs.usual_copies(self)
        if wanted.maxlen is not None or wanted.headers:
            return None
        body = arguments[2]
        head = b"*%d\r\n" % len(arguments)
        words = b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in arguments[:2])
        begin = at + len(head) + len(words) + len(b"$%d\r\n" % len(body))
        if data[begin : begin + len(body)] != body:  # lengths may be written in another way
            return None
        options = jobs.options_of(wanted, copies)
        asks = copies > 1 and not wanted.is_async
        behind = data[begin + len(body) : end]
        is_usual = wanted.replicate is None
        return _Add(queue, options, data[at:begin], len(body), behind, is_usual, asks, wanted.timeout)

    def repeat(self, data: bytes, at: int) -> int:
        if self.silence or self.context.monitors or not self.authorized or self.put_since >= 0:
            return 0
        add, get = self._add, self._get
        if add is not None and data.startswith(add.before, at):
            return 0 if self.broker.store.refusal else self._add_again(add, data, at)
        if get is not None and data.startswith(get.request, at):
            self.last_command = b"getjob"
            self.context.counts[b"getjob"] += 1
            if not (get.queue and self.credential is None and jobs.get_plain(self, get.queue, get.name)):
                self._get_again(get.wanted)
            return at + len(get.request)
        if (
            self.credential is None
            and data.startswith(_ACKJOB, at)
            and data[at + _ACKJOB_END : at + _ACKJOB_SIZE] == b"\r\n"
        ):
            return self._acknowledge(data, at)
        return 0

    def _get_again(self, wanted: GetJob) -> None:
        self.broker.tubes.match()
        try:
            jobs.get_again(self, wanted)
        except Refused as refused:
            self.fail(refused.text)

    def forget_usual(self) -> None:
        self._add = self._get = None

    def _acknowledge(self, data: bytes, at: int) -> int:
        """Handle an ACKJOB of one job. Return where it ends; 0: there is more to it."""
        if self.broker.tubes.waiters.awake:
            self.broker.tubes.serve_waiting()
        if not jobs.acknowledge_one(self, data[at + len(_ACKJOB) : at + _ACKJOB_END]):
            return 0
        self.last_command = b"ackjob"
        self.context.counts[b"ackjob"] += 1
        return at + _ACKJOB_SIZE

    def _add_again(self, add: _Add, data: bytes, at: int) -> int:
        """Handle ADDJOBs that differ from the last one in their bodies only. Return where they end; 0: there are none."""
        options, behind = add.options, add.behind
        if add.is_usual and options.copies != jobs.usual_copies(self):
            return 0
        if self.credential is not None and self.is_in_debt():
            return 0
        begin = at + len(add.before)
        end = begin + add.size
        if not data.startswith(behind, end):
            return 0
        bodies = [data[begin:end]]
        at = end + len(behind)
        if at < len(data):
            at = self._more_bodies(add, data, at, bodies)
        try:
            if not jobs.add_usual(self, add.queue, options, bodies, add.asks_for_copies, add.timeout):
                return 0
        except (TooMany, TooFewCopies):  # the command is read as any other, and answered with the error
            return 0
        self.last_command = b"addjob"
        self.context.counts[b"addjob"] += len(bodies)
        if len(bodies) > 1:
            self.spend(len(bodies) - 1)
        return at

    def _more_bodies(self, add: _Add, data: bytes, at: int, bodies: list[bytes]) -> int:
        """Append the bodies of the ADDJOBs from `at` on that are like the last one in all else. Return where they end."""
        before, size, behind = len(add.before), add.size, add.behind
        step = before + size + len(behind)
        most = 1 if self.broker.tubes.waiters.count else UNITS_OF_A_TURN - self._spent + 1
        while len(bodies) < most and data.startswith(add.before, at) and data.startswith(behind, at + before + size):
            bodies.append(data[at + before : at + before + size])
            at += step
        return at

    def show_command(self, client: Client, command: bytes, arguments: list[bytes]) -> None:
        """Send a command of another client, or of this one, since this client has sent MONITOR."""
        self.outbox.reply(server.monitored(self.broker.wall, client, command, arguments))
