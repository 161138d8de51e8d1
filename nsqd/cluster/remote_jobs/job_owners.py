"""The nodes that may own a job, from its id, and the acknowledgements that are kept for owners that cannot be asked.

A kept acknowledgement is a job itself, of a queue that no client can use: its body is the id, and its time to live is the one
in the id. So it is as durable as any job, in as many copies, and ends by itself. Its row has the message id, too, in place of
a retry time and a delay, so the owner of the acknowledged job is known without the disk.

If the client may not consume all queues, the owner of the job has to know which ones. Such acknowledgements are in another
queue, and in the body the rights follow the id.

See docs/contributing/design/cluster-protocol.md#lending.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.remote_jobs.lending import TOO_LARGE, Lending
from nsqd.core.broker import Broker
from nsqd.core.limits import TooFewCopies, TooMany
from nsqd.core.message.ids import SEQUENCE
from nsqd.core.queues import Queues
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.listing import list_jobs
from nsqd.core.work_queue.loan import Loan
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading
from nsqd.core.work_queue.worker import Worker
from nsqd.protocols.beanstalk.client import NOT_FOUND, OUT_OF_MEMORY
from nsqd.protocols.beanstalk.guest import request_of
from nsqd.protocols.credential import identity_of_another_node
from nsqd.protocols.disque import resp
from nsqd.protocols.disque.ids import ID_SIZE, JobIds
from nsqd.protocols.disque.jobs import CANNOT_HOLD
from shared.auth.verbs import Verb
from shared.values import SECOND

# the queue; clients of Disque can name no queue so, nor can those of beanstalkd and NSQ
KEPT = "#kept-acknowledgements"
KEPT_WITH_RIGHTS = "#kept-acknowledgements-with-rights"
MOST_KEPT = 1_000_000  # in each of the two; the oldest go first
MOST_RIGHTS = 4096  # bytes of the rights of a client whose acknowledgements are kept
MOST_REQUEST = (1 << 20) - 64  # bytes of a command that other nodes are asked to do: it is sent in one frame
SENT_AT_ONCE = 100  # kept acknowledgements that are sent in a turn
SEND_EVERY = SECOND  # ns
LOW = (1 << 32) - 1  # the bits of a message id that are stored in place of the retry time
ACKNOWLEDGES = (b"ackjob", b"fastack")
NO_JOB = b":0\r\n"  # reply to an acknowledgement
NOT_OPEN = b"-NOTOPEN the job may be in a log that this node does not serve yet\r\n"
NO_PERMISSION = b"-NOPERM "  # begin of the reply of an owner that has checked the rights of the client
_COUNT = re.compile(rb":[0-9]{1,9}\r\n")
ALLOWED = frozenset(  # of other nodes
    (*ACKNOWLEDGES, b"addjob", b"deljob", b"nack", b"enqueue", b"dequeue", b"working", b"show", b"pause")
)


class JobOwners:
    """The other nodes, as clients of Disque need them. Implements nsqd.protocols.disque.context.OtherNodes."""

    def __init__(self, cluster: Cluster, lending: Lending, queues: Queues, ids: JobIds) -> None:
        self._cluster = cluster
        self._lending = lending
        self._queues = queues
        self._ids = ids
        self._reader = Worker(self)  # waits for the disk, which has the rights of a client
        self._send_due = 0  # monotonic ns
        self._last_adder = -1  # number of the node that was asked last to add a job
        self._asked: set[int] = set()  # message ids whose kept acknowledgements are being sent
        self.kept = self.dropped = 0  # acknowledgements kept, and dropped because there were too many, since the start

    def owners(self, number: int) -> set[int]:
        """Return the numbers of the other nodes that may own a job of that node's number."""
        cluster = self._cluster
        own_logs = {node.number: node.log_id for node in cluster.membership.members}
        # A lost member keeps its log in `own_logs`, whichever node has promoted it, until it returns with another one.
        epochs = cluster.leaders.epochs.items()
        new_leaders = {epoch.node for log_id, epoch in epochs if own_logs.get(epoch.node) != log_id and epoch.number}
        return {number, *new_leaders} - {cluster.own.number}

    def reachable(self, numbers: Iterable[int]) -> bool:
        """Return True if any of these nodes can be asked."""
        return any(number in self._cluster.links for number in numbers)

    def checked(self, reply: bytes) -> bytes:
        """Return a reply to another node, or NOT_OPEN instead of a reply that no job was found, if it may be found later."""
        return NOT_OPEN if reply in (NO_JOB, NOT_FOUND) and self._cluster.has_unserved_log else reply

    # commands

    def count(self, command: bytes, job_ids: list[bytes], rights: bytes, then: Callable[[int | None], None]) -> bool:
        groups: dict[frozenset[int], list[tuple[bytes, int]]] = {}
        for job_id in job_ids:
            message_id = self._ids.decode(job_id)
            if message_id is None:
                continue
            numbers = frozenset(self.owners(message_id >> 48))
            if self.reachable(numbers):
                groups.setdefault(numbers, []).append((job_id, message_id))
            elif command in ACKNOWLEDGES:
                self._keep(job_id, message_id, rights)
        totals: list[int] = []  # of the groups whose owners have replied
        refusals: list[bytes] = []

        def answered(asked: list[tuple[bytes, int]], nodes: int, replies: list[bytes]) -> None:
            counts = [int(reply[1:]) for reply in replies if _COUNT.fullmatch(reply)]  # an error does not count
            refused = [reply for reply in replies if reply.startswith(NO_PERMISSION)]
            is_known = len(counts) == nodes and not self._cluster.has_unserved_log
            if command in ACKNOWLEDGES and sum(counts) < len(asked) and not is_known and not refused:
                self.keep_all(asked, rights)
            totals.append(sum(counts))
            refusals.extend(refused)
            if len(totals) == len(groups):
                then(None if refusals else sum(totals))

        for numbers, asked in groups.items():
            request = resp.words([command, *(job_id for job_id, _ in asked)])
            self._lending.ask(set(numbers), rights, request, partial(answered, asked, len(numbers)))
        return bool(groups)

    def add(self, words: list[bytes], wait: int, then: Callable[[bytes | None], None]) -> bool:
        request, membership = resp.words(words), self._cluster.membership
        able = [number for number in sorted(self._cluster.links) if membership.is_awaited(number)]
        if not able or len(request) > MOST_REQUEST:
            return False
        self._last_adder = next((number for number in able if number > self._last_adder), able[0])  # in turn
        at = able.index(self._last_adder)
        self._add_at([*able[at:], *able[:at]], request, wait, then)
        return True

    def _add_at(self, able: list[int], request: bytes, wait: int, then: Callable[[bytes | None], None]) -> None:
        """Have the first of these nodes add a job, or the next one if that takes none."""

        def answered(replies: list[bytes]) -> None:
            if replies and able[1:] and CANNOT_HOLD in replies[0]:
                self._add_at(able[1:], request, wait, then)
            else:
                then(replies[0] if replies else None)

        self._lending.ask({able[0]}, b"", request, answered, wait)  # this node has looked at the right on the queue

    def ask(self, command: bytes, job_id: bytes, rights: bytes, then: Callable[[list[bytes]], None]) -> bool:
        message_id = self._ids.decode(job_id)
        numbers = self.owners(message_id >> 48) if message_id is not None else set()
        is_reachable = self.reachable(numbers)
        if is_reachable:
            self._lending.ask(numbers, rights, resp.words([command, job_id]), then)
        return is_reachable

    def request_of_all(self, words: list[bytes]) -> None:
        self._lending.ask(set(self._cluster.links), b"", resp.words(words), lambda replies: None)

    # kept acknowledgements

    def keep_all(self, asked: list[tuple[bytes, int]], rights: bytes) -> None:
        """Keep acknowledgements if not all were done, and a possible owner has not responded, or has logs to open."""
        for job_id, message_id in asked:
            self._keep(job_id, message_id, rights)

    def _keep(self, job_id: bytes, message_id: int, rights: bytes) -> None:
        """Keep the acknowledgement of a job that may exist, and may be redelivered. Others are useless."""
        number, minutes = message_id >> 48, int(job_id[-4:], 16)
        is_own = number == self._cluster.own.number  # another node may have promoted a log of this one
        lease = self._cluster.lease if is_own else self._cluster.leases.get(number, 0)
        may_be = message_id & SEQUENCE < lease & SEQUENCE
        if not self.owners(number) or not may_be or not minutes % 2 or len(rights) > MOST_RIGHTS:
            return
        tubes, name = self._queues.tubes, KEPT_WITH_RIGHTS if rights else KEPT
        tube = tubes.tube(name)
        if tube is not None and tube.jobs.count >= MOST_KEPT and (oldest := tube.table.head()) is not None:
            tube.finish(oldest)
            self.dropped += 1
        try:
            tubes.put_into(name, [job_id + rights], options_of(message_id, minutes))
        except (TooMany, TooFewCopies):
            return
        self.kept += 1

    def tick(self, now: int) -> None:
        """Send kept acknowledgements to owners that can be asked now, and end loans to lost members. Call it in a turn."""
        if now >= self._send_due:
            self._send_due = now + SEND_EVERY
            self._lending.end_guests({node.number for node in self._cluster.membership.members})
            self._send_from(KEPT)
            self._send_from(KEPT_WITH_RIGHTS)

    def _send_from(self, name: str) -> None:
        tube = self._queues.tubes.tube(name)
        if tube is None:
            return
        try:
            for job in self._oldest(tube):
                self._send(tube, job)
        except Reading as reading:
            self._queues.tubes.waiters.block(self._reader, reading.queue)

    # as the sink of its reader

    def reserved(self, *_: object) -> None:
        raise AssertionError("it waits for no job")

    wait_for = reserved

    def read_completed(self) -> None:
        """Continue with the acknowledgements whose rights were on disk only."""
        self._send_from(KEPT_WITH_RIGHTS)

    def _oldest(self, tube: Tube) -> list[Job]:
        """Return kept acknowledgements: those that were sent in vain before come last."""
        jobs = list_jobs(tube.table, JobState.READY, "", SENT_AT_ONCE)[0]
        return [job for job in jobs if job.id not in self._asked]

    def _send(self, tube: Tube, job: Job) -> None:
        message_id = acknowledged_by(job)
        own = self._queues.find(message_id)  # this node has promoted it
        rights = self._rights_of(tube, job)
        if rights is None:
            return
        if own is not None:
            if may_acknowledge(rights, own[0].topic_name):
                self._queues.acknowledge(own)
            tube.finish(job)
            return
        # any node may have a copy of a log without a leader; the acknowledgement stays while a member is away
        numbers = self.owners(message_id >> 48) if self._cluster.is_any_member_away else set(self._cluster.links)
        self._asked.add(job.id)

        def then(replies: list[bytes]) -> None:
            self._asked.discard(job.id)
            found = self._queues.find(job.id)
            is_refused = any(reply.startswith(NO_PERMISSION) for reply in replies)
            is_asked = not self._cluster.is_any_member_away and numbers >= self._cluster.links.keys()
            is_nowhere = is_asked and replies == [NO_JOB] * len(numbers) and not self._cluster.has_unserved_log
            if found is not None and (b":1\r\n" in replies or is_refused or is_nowhere):
                self._queues.acknowledge(found)
            elif found is not None:  # others come first next time
                tube.table.move(found[1], JobState.READY, found[1].priority + 1, 0)

        job_id = self._ids.encode(message_id, job.ttl - 60, retry=1)
        self._lending.ask(numbers, rights, resp.words([b"ackjob", job_id]), then)

    def _rights_of(self, tube: Tube, job: Job) -> bytes | None:
        """Return the rights of the client whose acknowledgement is kept. Raises Reading if they are on disk only.

        Returns None if they are corrupt there: then the acknowledgement is lost.
        """
        if tube.topic_name == KEPT:
            return b""
        body = tube.body(job)
        return body[ID_SIZE:] if body is not None else None

    def apply_kept(self, promoted: Broker) -> None:
        """Apply kept acknowledgements to a log that this node has promoted, before it delivers the log's messages.

        Those with rights that are on disk only are applied when these are read.
        """
        for tube in filter(None, map(self._queues.tubes.tube, (KEPT, KEPT_WITH_RIGHTS))):
            try:
                for job in list(tube.jobs):
                    self._apply(promoted, tube, job)
            except Reading:
                self._send_due = 0

    def _apply(self, promoted: Broker, tube: Tube, job: Job) -> None:
        held = promoted.tubes.find(promoted.tubes.index.client_id(acknowledged_by(job)))
        if held is None:
            return
        rights = self._rights_of(tube, job)
        if rights is None:
            return
        if may_acknowledge(rights, held[0].topic_name):
            held[0].finish(held[1])
        tube.finish(job)


def options_of(message_id: int, minutes: int) -> JobOptions:
    """Return the options of a kept acknowledgement of the job with that message id and time to live."""
    return JobOptions(ttr=message_id & LOW, delay=message_id >> 32, was_put=True, ttl=(minutes + 1) * 60)


def acknowledged_by(kept: Job) -> int:
    """Return the message id of the job that a kept acknowledgement is of."""
    return kept.delay << 32 | kept.ttr


def may_acknowledge(rights: bytes, queue: str) -> bool:
    """Return whether a client with these rights (Rights.dump) may acknowledge jobs of that queue."""
    return not rights or identity_of_another_node(rights).rights.may(Verb.CONSUME, queue)


class TubeOwners:
    """The other nodes as beanstalkd's clients need them. Implements nsqd.protocols.beanstalk.borrower.OtherNodes."""

    def __init__(self, owners: JobOwners, lending: Lending, ids: JobIds) -> None:
        """`ids`: those of the cluster, by which acknowledgements are kept."""
        self._owners = owners
        self._lending = lending
        self._ids = ids

    def ask(
        self, verb: bytes, job_id: int, loan: Loan | None, line: bytes, rights: bytes, then: Callable[[bytes], None]
    ) -> bool:
        numbers = self._owners.owners(job_id >> 48)
        # a deletion that may not have been done is done when its owner can be asked, if the client had the job
        kept = []
        if loan is not None and verb == b"delete ":
            kept = [(self._ids.encode(job_id, loan.ttl, loan.retry), job_id)]
        if not self._owners.reachable(numbers):
            self._owners.keep_all(kept, rights)
            return False

        def answered(replies: list[bytes]) -> None:
            found = (OUT_OF_MEMORY if one == TOO_LARGE else one for one in replies)
            answers = [one for one in found if not one.startswith(b"-")]  # other errors say nothing of the job
            reply = next((one for one in answers if one != NOT_FOUND), NOT_FOUND)
            if reply == NOT_FOUND and (len(answers) < len(numbers) or self._owners.checked(reply) != reply):
                self._owners.keep_all(kept, rights)
            then(reply)

        request = request_of(loan.reservation if loan is not None else 0, line)
        self._lending.ask(numbers, rights, request, answered)
        return True

    def end_loan(self, lender: int, loan: Loan) -> None:
        self._lending.end_loan(lender, loan)
