"""One client of Disque, with all of its commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.loan import Loan
from nsqd.protocols.disque import jobs, queues, server
from nsqd.protocols.disque.arguments import AddJob, Command, Refused, addjob
from nsqd.protocols.disque.client import UNITS_OF_A_TURN, Client
from nsqd.protocols.disque.context import DisqueContext
from nsqd.protocols.transport import Transport

Handler = Callable[[Client, list[bytes]], None]
_HANDLERS: dict[bytes, Handler] = {
    b"addjob": jobs.add,
    b"getjob": jobs.get,
    b"ackjob": jobs.acknowledge,
    b"fastack": jobs.acknowledge,
    b"deljob": jobs.acknowledge,
    b"nack": jobs.nack,
    b"enqueue": jobs.enqueue,
    b"dequeue": jobs.dequeue,
    b"working": jobs.working,
    b"show": jobs.show,
    b"qlen": queues.length,
    b"qpeek": queues.peek,
    b"qstat": queues.stat,
    b"qscan": queues.scan_queues,
    b"jscan": queues.scan_jobs,
    b"pause": queues.set_pause,
    **server.HANDLERS,
}


class _Usual(NamedTuple):
    """The last ADDJOB of a client, without its body: clients send the same again and again."""

    wanted: AddJob
    before: bytes  # what stands before the body
    size: int  # bytes of the body
    behind: bytes


class Peer(Client):
    """One client of Disque."""

    __slots__ = ("_usual",)

    def __init__(
        self, broker: Broker, context: DisqueContext, transport: Transport, remote_ip: str, port: str, now: int
    ) -> None:
        super().__init__(broker, context, transport, remote_ip, port, now)
        self._usual: _Usual | None = None

    def do(self, command: Command, arguments: list[bytes]) -> None:
        self._usual = None
        if command.name != b"addjob":
            self.broker.tubes.match()
        _HANDLERS[command.name](self, arguments)

    def fetched(self, found: list[tuple[str, Job, bytes]]) -> bytes:
        return jobs.fetched(self, found)

    def borrowed(self, loan: Loan) -> bytes:
        return jobs.borrowed(self, loan)

    def learn(self, arguments: list[bytes], data: bytes, at: int, end: int) -> None:
        if arguments[0].lower() != b"addjob" or len(arguments) < 4:
            return
        body = arguments[2]
        begin = at + sum(len(b"$%d\r\n" % len(one)) + len(one) + 2 for one in arguments[:2])
        begin += len(b"*%d\r\n" % len(arguments)) + len(b"$%d\r\n" % len(body))
        if data[begin : begin + len(body)] != body or data[at] != ord("*"):
            return
        try:
            wanted = addjob(arguments, jobs.usual_copies(self))
        except Refused:
            return
        if wanted.maxlen is None and wanted.retry != 0:  # these two are looked at for each job
            self._usual = _Usual(wanted, data[at:begin], len(body), data[begin + len(body) : end])

    def repeat(self, data: bytes, at: int) -> int:
        usual = self._usual
        if usual is None or not data.startswith(usual.before, at):
            return 0
        if self.silence or self.context.monitors or not self.authorized or self.broker.store.refusal:
            return 0
        before, size, behind = len(usual.before), usual.size, usual.behind
        step = before + size + len(behind)
        bodies: list[bytes] = []
        most = 1 if self.broker.tubes.waiters.count else UNITS_OF_A_TURN - self._spent + 1
        while len(bodies) < most and data.startswith(behind, at + before + size):
            bodies.append(data[at + before : at + before + size])
            at += step
            if not data.startswith(usual.before, at):
                break
        if not bodies:
            return 0
        try:
            jobs.add_together(self, usual.wanted, bodies)
        except (Refused, TooMany):
            self._usual = None  # the command is read as any other, and answered with the error
            return 0
        counts = self.context.counts
        counts[b"addjob"] = counts.get(b"addjob", 0) + len(bodies)
        self.spend(len(bodies) - 1)
        return at

    def show_command(self, client: Client, command: bytes, arguments: list[bytes]) -> None:
        """Send a command of another client, or of this one, since this client has sent MONITOR."""
        self.outbox.reply(server.monitored(self.broker.wall, client, command, arguments))

    # Calls that the reactor makes to every peer, and that have no effect here.

    def network_ready(self) -> None:
        """Do nothing, because no consumer was refused room."""

    def resume(self, now: int) -> None:
        """Do nothing, because this peer suspends nothing."""

    def upgraded(self, tls: object = None) -> None:
        """Do nothing, because a client that connects by TLS expects no answer to it."""
