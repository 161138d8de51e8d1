"""Jobs for clients of other nodes, and commands to other nodes about their jobs.

A node announces for which queues its clients wait, and for how many jobs: WANT. The owner of a job for which no client
of its own waits gives it to a client of another node, as if that client had fetched it here: LOAN. So the job is redelivered
after its retry time, and commands about it go to the owner, which follows from the job's id: ASK.

A loan that came when no client waited is returned at once: RETURN; so is one whose client is gone, if clients of its
protocol keep jobs only while they are connected. A loan that did not come, because a connection was lost, is taken back when
the other node reports which loans came: TOOK.

See docs/contributing/design/cluster-protocol.md#lending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from nsqd.cluster.remote_jobs.job_frames import (
    MOST_REPLY,
    MOST_WANTED,
    pack_ask,
    pack_loan,
    pack_number,
    pack_return,
    pack_want,
    unpack_ask,
    unpack_loan,
    unpack_number,
    unpack_return,
    unpack_want,
)
from nsqd.cluster.wire.frames import FrameKind, PeerError
from nsqd.cluster.wire.link import Link
from nsqd.core.limits import TooFewCopies, TooMany
from nsqd.core.queues import QueuedJob, Queues
from nsqd.core.sequence.mark import Mark
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.loan import Loan
from nsqd.core.work_queue.worker import Names, Worker
from penstock.protocol.headers import split_headers
from shared.values import SECOND

MOST_QUEUES = 10_000  # for which clients of one other node wait
MOST_AHEAD = 8 * 1024 * 1024  # bytes that wait for the network, beyond which nothing more is lent
MOST_BYTES = 1 << 30  # of a job, whatever this node's own limit is: its owner has taken it
MOST_RETURNS = 10_000  # RETURNs that a lender is sent again
REPEAT_EVERY = 30_000_000_000  # ns
LATE = 1_000_000_000  # ns until WANTs are sent again after a loan that came too late
ANSWER_WITHIN = 2_000_000_000  # ns for other nodes to reply to a request
TOO_LARGE = b"-ERR the reply is too large to be sent to another node: ask the owner of the job\r\n"


class LoanSink(Protocol):
    """The sink of a worker that takes jobs of other nodes."""

    def lent(self, loan: Loan, lender: int) -> bool:
        """Send the job of another node, the lender, that the worker waited for.

        Returns True if the client has the job only until it disconnects: then Lending.end_loan follows.
        """


class _Credit:
    """The clients of another node that wait for jobs of one queue. It is the sink of a worker that represents all of them."""

    def __init__(self, guest: _Guest, queue: str) -> None:
        self.guest = guest
        self.left = 0  # jobs
        self.worker = Worker(self, guest.lending.queues.holder)
        self.worker.is_guest = self.worker.takes_headers = True
        self.worker.watching = Names(queue)

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        """Lend a job that the worker has reserved to the other node."""
        self.left -= 1
        self.guest.lend(tube, job, body)
        if self.left > 0:
            self.wait()

    def wait(self) -> None:
        """Wait for a job, also for one that is ready already; first for the network, if it has not taken what was lent."""
        guest, queues = self.guest, self.guest.lending.queues
        if guest.is_full():
            guest.stalled[self] = None
        elif self.left > 0 and not self.worker.waiting:
            queues.wait(self.worker)
            for name in self.worker.watching:
                for tube in queues.tubes.everywhere(name):
                    tube.offer()

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        """Do nothing: loans of a turn are sent when all ack conditions of that turn are met."""

    def read_completed(self) -> None:
        """Do nothing: the tube offers the job again."""


@dataclass(slots=True)
class _Guest:
    """Another node, as far as it borrows jobs of this one."""

    lending: Lending
    incarnation: int
    link: Link | None = None
    credits: dict[str, _Credit] = field(default_factory=dict)  # by queue
    last: int = 0  # number of the last loan
    queued: int = 0  # bytes of jobs that were lent in this turn
    stalled: dict[_Credit, None] = field(default_factory=dict)  # those that wait for the network
    uncertain: int = 0  # loans up to this number went over an earlier connection
    # message id and reservation of each loan by its number, ascending, but of jobs that are delivered once at most
    unconfirmed: dict[int, tuple[int, int]] = field(default_factory=dict)
    # has the jobs that clients of that node have until they disconnect; its sink is never called, because it never waits
    holder: Worker = field(default_factory=lambda: Worker(None))  # type: ignore[arg-type]

    def lend(self, queue: str, job: Job, body: bytes) -> None:
        assert self.link is not None
        self.last += 1
        if job.ttr:
            self.unconfirmed[self.last] = job.id, job.reserves
        more = job.timeouts + job.kicks
        ends = job.created + job.ttl * SECOND if job.ttl else 0
        counts = job.reserves, job.releases, more
        loan = Loan(self.last, queue, job.id, job.ttl, job.ttr, *counts, body, self.lending.now, ends)
        self.lending.output += ((self.link, frame) for frame in pack_loan(loan))
        self.queued += len(body)
        self.lending.lent += 1
        self.lending.queues.note_fetched(queue, self.lending.now)

    def is_full(self) -> bool:
        """Return True if the network has not taken what was lent before."""
        return self.link is None or self.link.backlog + self.queued > MOST_AHEAD

    def resume(self) -> None:
        """Continue to lend, if the network has taken most of the loans."""
        if self.stalled and self.link is not None and self.link.backlog < MOST_AHEAD // 2:
            credits, self.stalled = self.stalled, {}
            for credit in credits:
                credit.wait()

    def leave(self) -> None:
        """Give nothing more: the connection is gone."""
        self.stalled.clear()
        for credit in self.credits.values():
            self.lending.queues.stop_waiting(credit.worker)
        self.credits.clear()
        self.link = None


@dataclass(slots=True)
class _Request:
    """A request to other nodes about jobs, until all have replied or its time is over."""

    waiting: set[int]  # numbers of the nodes that have not replied
    then: Callable[[list[bytes]], None]
    due: int  # monotonic ns: when the wait ends
    replies: list[bytes] = field(default_factory=list)


class Lending:
    """The loans and requests of one node. All methods belong to a turn, except `closed`."""

    def __init__(
        self,
        queues: Queues,
        links: Mapping[int, Link],
        execute: Callable[[bytes, bytes, Callable[[bytes], None]], None],
    ) -> None:
        """`links`: the connections to other nodes, by their numbers.

        `execute` does a command, its second argument, of a client of another node that has the rights in the first one, and
        calls the third with the reply, now or later.
        """
        self.queues = queues
        self._links = links
        self._execute = execute
        self.now = 0  # monotonic ns of this turn
        self.output: list[tuple[Link, bytes]] = []  # frames to send when the ack conditions of this turn are met
        self.lent = self.borrowed = self.returned = 0  # loans since the start
        self._guests: dict[int, _Guest] = {}  # by node number
        self._known: dict[int, dict[str, int]] = {}  # the WANTs of this node that each node has
        self._parts: dict[int, bytearray] = {}  # of the body of the next loan, by node number
        # by number of the lender: its incarnation, and the number of its last loan that came
        self._came: dict[int, tuple[int, int]] = {}
        # by number of the lender: its incarnation, and its last RETURNs, which it may not have got when a connection is lost
        self._returns: dict[int, tuple[int, deque[bytes]]] = {}
        self._repeat_due = 0  # monotonic ns: when all WANTs are sent again
        self._unplaced: list[Loan] = []  # jobs that are this node's, and that no queue takes now
        self._requests: dict[int, _Request] = {}
        self._last_serial = 0
        queues.tubes.waiters.changed = set()

    # connections

    def admitted(self, link: Link) -> None:
        """Send a newly connected node which of its loans came, and the WANTs of this node."""
        number, incarnation = link.node.number, link.node.incarnation
        guest = self._guests.get(number)
        if guest is not None and guest.incarnation != incarnation:
            self._end_guest(number)
            guest = None
        if guest is None:
            guest = self._guests[number] = _Guest(self, incarnation)
        else:
            guest.leave()
        guest.link, guest.uncertain = link, guest.last
        if self._came.get(number, (0, 0))[0] != incarnation:
            self._came[number] = incarnation, 0
        self._parts.pop(number, None)
        of, returns = self._returns.get(number, (0, deque()))
        if of == incarnation:  # another run of the lender has nothing lent
            self.output += ((link, frame) for frame in returns)
        self.output.append((link, pack_number(FrameKind.TOOK, self._came[number][1])))
        self._known[number] = {}
        waiters = self.queues.tubes.waiters
        for name in waiters.names():
            self._announce_queue(name)

    def closed(self, number: int, link: Link) -> None:
        """Note that a connection to a node is gone."""
        guest = self._guests.get(number)
        if guest is None or guest.link is not link:
            return
        guest.leave()
        self._known.pop(number, None)
        for request in self._requests.values():
            request.waiting.discard(number)

    def end_guests(self, members: Collection[int]) -> None:
        """Take back what was lent to nodes that are no longer members: nothing comes from them."""
        for number in [one for one in self._guests if one not in members]:
            self._end_guest(number)

    def _end_guest(self, number: int) -> None:
        """Take back what a run of a node has not confirmed, and what its clients have until they disconnect."""
        guest = self._guests.pop(number)
        guest.leave()
        self._take_back(guest, 0, guest.last)
        self.queues.tubes.release_all(guest.holder)

    def _take_back(self, guest: _Guest, behind: int, last: int) -> None:
        """Take back the loans with numbers above `behind`, up to `last`, that no client has got."""
        for loan in [one for one in guest.unconfirmed if behind < one <= last]:
            self._release(*guest.unconfirmed.pop(loan), was_taken=False)

    # frames

    def receive(self, link: Link, kind: FrameKind, content: bytes) -> None:
        """Take a frame about jobs that came from another node. Raises PeerError."""
        number = link.node.number
        match kind:
            case FrameKind.WANT:
                self._wanted(number, *unpack_want(content))
            case FrameKind.BODY:
                parts = self._parts.setdefault(number, bytearray())
                parts += content
                if len(parts) > MOST_BYTES:
                    raise PeerError("the body of a loan is too large")
            case FrameKind.LOAN:
                loan = unpack_loan(content, bytes(self._parts.pop(number, b"")))
                try:
                    split_headers(loan.content)
                except ValueError as error:
                    raise PeerError(f"the headers of a loan: {error}") from error
                self._borrow(link, loan)
            case FrameKind.TOOK:
                self._confirm(number, *unpack_number(content))
            case FrameKind.RETURN:
                self._take_return(number, *unpack_return(content))
            case FrameKind.ASK:
                serial, rights, request = unpack_ask(content)
                self._execute(rights, request, lambda reply: self._reply(link, serial, reply))
            case FrameKind.SAID:
                self._take_reply(number, *unpack_number(content))

    # the lender's side

    def _wanted(self, number: int, queue: str, count: int) -> None:
        guest = self._guests.get(number)
        if guest is None or guest.link is None:
            return
        credit = guest.credits.get(queue)
        if credit is None:
            if not count or len(guest.credits) >= MOST_QUEUES:
                return
            try:
                self.queues.tubes.prepare(queue)
            except TooMany:
                return
            credit = guest.credits[queue] = _Credit(guest, queue)
        credit.left = count
        if not count:
            self.queues.stop_waiting(credit.worker)
            del guest.credits[queue]
        else:
            credit.wait()

    def _confirm(self, number: int, loan: int, is_held: bytes) -> None:
        guest = self._guests.get(number)
        if guest is None:
            return
        if is_held and loan in guest.unconfirmed:
            found = self._lent(*guest.unconfirmed[loan])
            if found is not None:
                found[0].hand_over(found[1], guest.holder)
        for one in [one for one in guest.unconfirmed if one <= loan]:
            del guest.unconfirmed[one]
        self._take_back(guest, loan, guest.uncertain)
        guest.uncertain = 0

    def _lent(self, message_id: int, reservation: int) -> QueuedJob | None:
        """Return a job that is still out by that reservation."""
        found = self.queues.find(message_id)
        is_out = found is not None and found[1].state is JobState.RESERVED and found[1].reserves == reservation
        return found if is_out else None

    def _take_return(self, number: int, loan: int, message_id: int, reservation: int, was_taken: bool) -> None:
        """Take back what the other node returns; it may do that twice."""
        guest = self._guests.get(number)
        if was_taken:
            self._release(message_id, reservation, was_taken)
        elif guest is not None and guest.unconfirmed.get(loan) == (message_id, reservation):
            del guest.unconfirmed[loan]
            self._release(message_id, reservation, was_taken)

    def _release(self, message_id: int, reservation: int, was_taken: bool) -> None:
        """Make a job ready again that was lent. If no client has got it, it does not count as fetched."""
        found = self._lent(message_id, reservation)
        if found is not None:
            tube, job = found
            if was_taken:
                tube.fail(job)
            else:
                job.reserves -= 1
                tube.unreserve(job)

    # the borrower's side

    def announce(self) -> None:
        """Send the other nodes the WANTs that have changed."""
        changed = self.queues.tubes.waiters.changed
        if self.now >= self._repeat_due and changed is not None:  # others may have had no room for an announcement
            self._repeat_due = self.now + REPEAT_EVERY
            again = [name for name in self.queues.tubes.waiters.names() if any(self._takers(name))]
            changed.update(again)
            for announced in self._known.values():
                for name in again:
                    announced.pop(name, None)
        if changed:
            names = sorted(changed)
            changed.clear()
            for name in names:
                self._announce_queue(name)

    def _announce_queue(self, name: str) -> None:
        count = sum(1 for _ in islice(self._takers(name), MOST_WANTED))
        for number, announced in self._known.items():
            link = self._links.get(number)
            if link is None or announced.get(name, 0) == count:
                continue
            if count:
                announced[name] = count
            else:
                del announced[name]
            self.output.append((link, pack_want(name, count)))

    def _takers(self, name: str) -> Iterator[Worker]:
        """Yield the workers that wait for jobs of a queue, and take those of other nodes, the longest wait first."""
        tube = self.queues.tubes.tube(name)
        if tube is not None and tube.pause_until > self.now:
            return iter(())
        return (one for one in self.queues.tubes.waiters.own_at(name) if one.takes_loans)

    def _borrow(self, link: Link, loan: Loan) -> None:
        """Give a loan to the client that has waited longest; if none waits, return it."""
        number = link.node.number
        announced = self._known.get(number, {})
        if loan.queue in announced:  # the lender has counted it
            announced[loan.queue] -= 1
            if not announced[loan.queue]:
                del announced[loan.queue]
        # its owner may have delivered it to another client by now, which may have finished it
        is_late = loan.retry > 0 and link.age(loan.lent, self.now) >= loan.retry * SECOND
        is_over = is_late or 0 < loan.ends <= self.queues.tubes.wall
        taker = next(self._takers(loan.queue), None) if not is_over else None
        is_held = False
        if taker is not None:
            self.borrowed += 1
            self.queues.imports.count(loan.queue, number, self.now)
            sink: LoanSink = taker.sink  # type: ignore[assignment]  # that of a worker which takes loans
            is_held = sink.lent(loan, number)
        elif loan.retry:
            self.returned += 1
            if is_late:  # clients here continue to wait
                self._repeat_due = min(self._repeat_due, self.now + LATE)
            self._give_back(number, loan, was_taken=False)
        else:  # its owner has forgotten it
            self._unplaced.append(loan)
            self.keep_unplaced()
        self._came[number] = link.node.incarnation, loan.number
        self.output.append((link, pack_number(FrameKind.TOOK, loan.number, b"\1" if is_held else b"")))

    def keep_unplaced(self) -> None:
        """Add jobs of other nodes, which have forgotten them, to the queues of this one, as far as that is possible now."""
        loans, self._unplaced = self._unplaced, []
        for loan in loans:
            # the rest of its life, cut to whole seconds
            ttl = (loan.ends - self.queues.tubes.wall) // SECOND if loan.ends else loan.ttl
            if loan.ends and ttl <= 0:
                continue
            options = JobOptions(ttr=0, was_put=True, ttl=ttl, copies=1)
            headers, body = split_headers(loan.content)
            try:
                self.queues.tubes.put_into(loan.queue, [body], options, headers)
            except (TooMany, TooFewCopies):
                self._unplaced.append(loan)

    def end_loan(self, lender: int, loan: Loan) -> None:
        """Give a job back whose client is gone: now, or when the lender is connected again, unless it has restarted."""
        self._give_back(lender, loan, was_taken=True)

    def _give_back(self, lender: int, loan: Loan, was_taken: bool) -> None:
        frame, incarnation = pack_return(loan, was_taken), self._came[lender][0]
        if self._returns.get(lender, (0,))[0] != incarnation:
            self._returns[lender] = incarnation, deque(maxlen=MOST_RETURNS)
        self._returns[lender][1].append(frame)
        link = self._links.get(lender)
        if link is not None:
            self.output.append((link, frame))

    # requests

    def ask(
        self, numbers: set[int], rights: bytes, request: bytes, then: Callable[[list[bytes]], None], wait: int = 0
    ) -> None:
        """Ask nodes to do a command, and call `then`, in this turn or later, with the replies of those that have answered.

        `rights`: on which tubes they may do it (Rights.dump); b"": on all. `wait`: ns that the command may wait at the other
        node before it is done.
        """
        asked = {number: self._links[number] for number in numbers if number in self._links}
        self._last_serial += 1
        for link in asked.values():
            self.output.append((link, pack_ask(self._last_serial, rights, request)))
        self._requests[self._last_serial] = _Request(set(asked), then, self.now + wait + ANSWER_WITHIN)

    def _reply(self, link: Link, serial: int, reply: bytes) -> None:
        self.output.append(
            (link, pack_number(FrameKind.SAID, serial, reply if len(reply) <= MOST_REPLY else TOO_LARGE))
        )

    def _take_reply(self, number: int, serial: int, reply: bytes) -> None:
        asked = self._requests.get(serial)
        if asked is not None and number in asked.waiting:
            asked.waiting.discard(number)
            asked.replies.append(reply)

    def conclude(self) -> None:
        """Finish the requests to which all nodes have replied, or that are due."""
        over = [one for one, asked in self._requests.items() if not asked.waiting or asked.due <= self.now]
        for one in over:
            asked = self._requests.pop(one)
            asked.then(asked.replies)

    def resume(self) -> None:
        """Continue to lend to nodes whose connections had too much to send. Call it in a turn."""
        for guest in self._guests.values():
            guest.resume()

    def take_output(self) -> list[tuple[Link, bytes]]:
        """Return the frames to send when the ack conditions of this turn are met, and forget them."""
        for guest in self._guests.values():
            guest.queued = 0
        output, self.output = self.output, []
        return output
