"""The record of Disque's clients in a simulated cluster: responses, deliveries of nodes, and invariants.

A delivery begins when the owner of a job takes it out of its queue, for a client of its own or for another node that borrows
it. It leaves when bytes go to the client. Each function that judges something says what the specification allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nsqd.cluster.wire.link import Link
from nsqd.core.broker import Broker
from nsqd.core.work_queue.loan import Loan
from shared.topic_config import Durability
from tests.nsqd.core.node import SECOND
from tests.simulation.books import Books, Loss, Publish, number_of
from tests.simulation.job_node import IDS, JobNode

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun


ON_ITS_WAY = 5 * SECOND  # a delivery that began this long ago may not have arrived


@dataclass(slots=True, eq=False)
class Delivery:
    job: Job
    at: int  # true ns
    owner: JobNode
    log_id: bytes
    position: int  # the end of that log after the turn in which it began
    link: Link | None = None  # over which it was lent; None: to a client of the owner
    loan: int = 0  # its number
    borrower: JobNode | None = None  # it has come there
    how: str = ""  # by the borrower: borrowed, returned, kept
    has_left: bool = False  # a client was sent it
    is_lost: bool = False  # the connection of the client was closed before, or its copies did not come in time
    holders: frozenset[int] = frozenset()  # machines that had its record when it left, or came to the borrower

    @property
    def machine(self) -> int:
        return self.owner.node.machine.name

    def __str__(self) -> str:
        return f"delivery of job {self.job.publish.number} by {self.machine} at {self.at // 1_000_000 % 1_800_000_000_000} ms"


@dataclass(frozen=True, slots=True)
class Done:
    """An acknowledgement that was confirmed to the client, or to the node that kept it."""

    at: int  # true ns
    sent: int
    by: frozenset[int]  # machines that had the job when it was sent, and have it no more


@dataclass(slots=True, eq=False)
class Job:
    publish: Publish
    retry: int  # s
    is_short: bool  # its time to live may end during the run
    message_id: int = 0  # 0: not known
    deliveries: list[Delivery] = field(default_factory=list)
    left: list[Delivery] = field(default_factory=list)
    done: Done | None = None
    is_dequeued: bool = False  # a client took it out of its queue, as a delivery does until its retry time is over


@dataclass(slots=True)
class Kept:
    """An acknowledgement that a node keeps."""

    at: int
    job: Job
    owners: frozenset[int]  # machines that had the job then, or got it with a log that they have promoted since


class JobBooks:
    def __init__(self, run: ClusterRun) -> None:
        self._run = run
        self.jobs: dict[int, Job] = {}  # by number of the publish
        self.by_id: dict[int, Job] = {}  # by message id
        self.losses: list[Loss] = []  # of earlier rounds
        self.failovers: list[tuple[bytes, int, int, frozenset[int]]] = []  # log id, time, new leader, nodes in contact
        # log id, time, machines that could be asked for its end: a node began to lead it again, with what these and itself had
        self.restarts: list[tuple[bytes, int, frozenset[int]]] = []
        self._loans: dict[tuple[int, int, int, int], Delivery] = {}  # by lender and its incarnation, borrower, number
        self._kept: dict[tuple[JobNode, int], Kept] = {}

    @property
    def _books(self) -> Books:
        return self._run.books

    def count(self, what: str, number: int = 1) -> None:
        self._books.counts[f"disque: {what}"] += number

    def named(self, number: int, message_id: int) -> None:
        job = self.jobs[number]
        other = self.by_id.setdefault(message_id, job)
        if other is not job:
            reusing = {one.number for one in self._run.machines if one.name in self._books.may_reuse_ids}
            assert message_id >> 48 in reusing, f"two jobs have one id: {other.publish}, {job.publish}"
            self.by_id[message_id] = job
        job.message_id = job.message_id or message_id

    def forwarded(self, number: int, message_id: int, taker: JobNode) -> None:
        """Note that a node has added a job that was forwarded to it."""
        publish, node = self.jobs[number].publish, taker.node
        self.named(number, message_id)
        for one in self._run.machines:
            if one.node is not None and publish in one.node.unwritten:
                one.node.unwritten.remove(publish)
        publish.node, publish.log_id = node.machine.name, node.machine.log_id
        publish.position = node.log.writer.written.position
        node.unwritten.append(publish)
        self.count("forwarded")

    def owners_of(self, job: Job) -> frozenset[int]:
        found = (one for one in self._run.machines if one.node is not None and one.node.jobs_part is not None)
        return frozenset(one.name for one in found if one.node.jobs_part.find(job.message_id))

    def begun(self, job: Job, owner: JobNode) -> Delivery:
        """Note a delivery that an owner begins in this turn, whose group is written."""
        log_id, position = owner.place_of(job.publish)
        delivery = Delivery(job, self._run.now, owner, log_id, position)
        job.deliveries.append(delivery)
        if not job.retry:
            job.publish.finished = True
        self.count("deliveries begun")
        self._judge_begun(delivery)
        return delivery

    def lent(self, lender: JobNode, link: Link, loan: Loan) -> Delivery:
        delivery = self.begun(self.jobs[number_of(loan.body)], lender)
        self.named(delivery.job.publish.number, loan.message_id)
        delivery.link, delivery.loan = link, loan.number
        own = lender.cluster.own
        self._loans[own.number, own.incarnation, link.peer.number, loan.number] = delivery
        self.count("lent")
        return delivery

    def came(self, borrower: JobNode, link: Link, loan: Loan, how: str) -> None:
        """Note that a loan has come, and what the borrower did with it: borrowed, returned, kept."""
        key = link.peer.number, link.peer.incarnation, borrower.cluster.own.number, loan.number
        assert key in self._loans, f"a loan came that was not lent in a turn: {loan.number} of node {link.peer.number}"
        delivery = self._loans.pop(key)
        job = delivery.job
        assert number_of(loan.body) == job.publish.number
        delivery.borrower, delivery.how, delivery.holders = borrower, how, self._holders(delivery)
        self.count(f"loans {how}")
        if how == "borrowed":
            borrower.arrived.setdefault(job.publish.number, []).append(delivery)
        if not job.retry:
            self._judge_finish(delivery)
        if how == "kept":
            self._keep(job, borrower)

    def placed(self, borrower: JobNode, loan: Loan) -> None:
        """Note that a job that has come before is in a queue of the borrower now."""
        job = self.jobs[number_of(loan.body)]
        for delivery in job.deliveries:
            if delivery.borrower is borrower and delivery.how == "not placed yet":
                delivery.how = "kept"
                self.count("loans kept later")
                self._keep(job, borrower)

    def _keep(self, job: Job, borrower: JobNode) -> None:
        """A job that is delivered once at most is the borrower's now, alone."""
        publish = job.publish
        publish.former.append(publish.log_id)
        publish.log_id, publish.n, publish.lost = borrower.node.machine.log_id, 1, frozenset()
        publish.holders = frozenset({borrower.node.machine.name})
        publish.mode = borrower.mode_of(publish.topic)
        publish.at = self._run.now
        publish.finished, publish.acked = job.is_short, False
        borrower.keeps(publish)

    def sent(self, delivery: Delivery) -> None:
        job = delivery.job
        delivery.has_left = True
        delivery.holders = delivery.holders or self._holders(delivery)
        job.left.append(delivery)
        self.count("deliveries")
        if not job.retry:
            if delivery.link is None:
                self._judge_finish(delivery)
            if len(job.left) > 1:
                self._judge_again(job)

    def _holders(self, delivery: Delivery) -> frozenset[int]:
        """Return the machines that have the record of a delivery, as far as its owner knows."""
        node = delivery.owner.node
        if delivery.log_id != node.log.identity.log_id:
            return frozenset({delivery.machine})
        strict = delivery.job.publish.mode is Durability.ALWAYS
        return frozenset({delivery.machine, *self._run.replicas(node, delivery.position, strict)})

    def acknowledged(self, job: Job, sent: int, owners: frozenset[int]) -> None:
        job.done = Done(self._run.now, sent, owners - self.owners_of(job))
        self.count("acknowledged")

    def kept(self, keeper: JobNode, ordinal: int, job_id: bytes) -> None:
        message_id = IDS.decode(job_id)
        job = self.by_id.get(message_id) if message_id is not None else None
        assert job is not None, "an acknowledgement is kept of a job that no client has added"
        self._kept[keeper, ordinal] = Kept(self._run.now, job, self.owners_of(job))
        self.count("acknowledgements kept")

    def attached(self, owner: JobNode, broker: Broker) -> None:
        """Note the jobs of a log that a node has promoted: it may be sent an acknowledgement that another node keeps."""
        for kept in self._kept.values():
            if broker.tubes.find(broker.tubes.index.client_id(kept.job.message_id)) is not None:
                kept.owners |= {owner.node.machine.name}

    def kept_no_more(self, keeper: JobNode, ordinal: int, job_id: bytes) -> None:
        """Note that a node has applied an acknowledgement, or notified the owner, or that no node has the job."""
        kept = self._kept.pop((keeper, ordinal))
        gone, publish = kept.owners - self.owners_of(kept.job), kept.job.publish
        if keeper.node.promoted.logs.keys() & {publish.log_id, *publish.former, *publish.others}:
            gone |= {keeper.node.machine.name}  # it was applied to a log that the keeper promotes
        kept.job.done = Done(self._run.now, kept.at, gone)
        self.count("kept acknowledgements sent")

    # what must hold

    def _judge_begun(self, delivery: Delivery) -> None:
        """After an acknowledgement was done, no delivery of the job begins.

        Allowed: by another owner than the one that did it (two owners, or one that promotes what has been streamed), or after
        the owner died, or the log changed its owner, since it was sent. A node that keeps an acknowledgement of a log that it
        promotes does not deliver the job.
        """
        job, done = delivery.job, delivery.job.done
        attached = delivery.owner.attached_at(job.message_id)
        for (keeper, _), kept in self._kept.items():
            if keeper is delivery.owner and kept.job is job and attached is not None:
                assert kept.at >= attached, f"an acknowledgement is kept, and not applied: {delivery}"
                self.count("delivered again: kept while the log was attached")
        if done is None or delivery.at <= done.at:
            return
        if self._is_upset(job.publish, done.sent):
            reason = "its owner died or changed"
        elif self._is_of_former_owner(delivery):
            reason = "a node that did not know that its log has another leader"
        elif job.is_short and not done.by:
            reason = "its kept acknowledgement ended with its life, by another clock"
        else:
            assert done.by, f"an acknowledgement was dropped: {delivery}"
            assert delivery.machine not in done.by, f"delivered again for no reason: {delivery}"
            reason = "another owner"
        self.count(f"delivered again: {reason}")

    def _is_upset(self, publish: Publish, since: int) -> bool:
        logs = (publish.log_id, *publish.former, *publish.others)
        return max(self._books.upsets.get(log_id, 0) for log_id in logs) >= since

    def _judge_finish(self, delivery: Delivery) -> None:
        """A job that is delivered once at most leaves its owner when its finish has the job's copies."""
        node, publish = delivery.owner.node, delivery.job.publish
        promoted = {publish.log_id, *publish.former, *publish.others} & node.promoted.logs.keys()
        if promoted or delivery.log_id != node.log.identity.log_id:
            return  # in a log that was taken over, the new leader alone has it; it may be delivered from there, too
        holders, n = self._holders(delivery), delivery.owner.copies_of(delivery.job.publish.topic)
        assert len(holders) >= n, f"only {set(holders)} have the finish of what is delivered once at most: {delivery}"

    def _judge_again(self, job: Job) -> None:
        """A job with RETRY 0 is delivered once at most.

        Allowed: a delivery, or a loan that another node has kept, began at a node that did not know that another one had taken
        the log over; or the finish of a delivery is not in the log that continues: all machines that had it have lost it, or
        were not connected to a node that took the log over or started with it, or that waited for the owner in vain.
        """
        reasons = ["two owners" for one in job.deliveries if self._is_of_former_owner(one)]
        reasons += [reason for one in job.deliveries[:-1] if (reason := self._why_undone(one))]
        assert reasons, f"delivered twice: {job.publish}, {[str(one) for one in job.deliveries]}"
        self.count(f"RETRY 0 delivered again: {reasons[0]}")

    def _failovers_of(self, delivery: Delivery) -> list[tuple[bytes, int, int, frozenset[int]]]:
        return [one for one in self.failovers if one[0] in self._logs_of(delivery)]

    def _logs_of(self, delivery: Delivery) -> set[bytes]:
        publish = delivery.job.publish
        return {delivery.log_id, publish.log_id, *publish.former, *publish.others}

    def _is_of_former_owner(self, delivery: Delivery) -> bool:
        """Return True if another node had taken the log over before a delivery began."""
        before = [by for _, at, by, _ in self._failovers_of(delivery) if at <= delivery.at]
        return bool(before) and before[-1] != delivery.machine

    def _why_undone(self, delivery: Delivery) -> str:
        """Return the reason why the continued log may lack the finish of a delivery; "" if it must have it."""
        connected = [names for _, at, _, names in self._failovers_of(delivery) if at > delivery.at]
        logs = self._logs_of(delivery)
        connected += [names for log_id, at, names in self.restarts if log_id in logs and at > delivery.at]
        holders = delivery.holders or frozenset({delivery.machine})
        reached = [name for name in holders if all(name in names for names in connected)]
        kept = [name for name in reached if not self._has_lost(name, delivery)]
        return "" if kept else f"its {len(holders)} copies were lost or unreachable"

    def _has_lost(self, name: int, delivery: Delivery) -> bool:
        losses = [one for one in (*self.losses, *self._books.losses) if one.node == name]
        place = delivery.at, delivery.log_id, delivery.position, delivery.job.publish.mode
        return any(one.takes(*place) for one in losses)

    def judge_lost(self, present: set[int]) -> None:
        """A job with RETRY 0 whose delivery was begun may get lost only on its way.

        That is: a node that had it out died, the client's connection was closed, or the one between the nodes.
        """
        for job in self.jobs.values():
            last = job.deliveries[-1] if job.deliveries else None
            if job.retry or job.is_short or last is None or last.has_left or last.how in ("kept", "not placed yet"):
                continue
            if job.publish.number not in present and job.publish.acked:
                assert self._is_excused(last), f"lost for no reason: {last}"
                self.count("RETRY 0 lost on its way")

    def under_way(self) -> list[Delivery]:
        """Return the deliveries of jobs with RETRY 0 that have begun, and may arrive yet."""
        last = [job.deliveries[-1] for job in self.jobs.values() if job.deliveries and not job.retry]
        begun = [one for one in last if not (one.has_left or one.is_lost or one.how == "kept")]
        return [one for one in begun if one.at > self._run.now - ON_ITS_WAY]

    def is_cut(self, delivery: Delivery) -> bool:
        """Return True if a delivery is a loan, and the connection over which it went is gone."""
        links = delivery.owner.node.cluster.links.values()
        return delivery.link is not None and not any(one is delivery.link for one in links)

    def _is_excused(self, last: Delivery) -> bool:
        nodes = [last.owner] + ([last.borrower] if last.borrower is not None else [])
        has_died = not all(one.is_running for one in nodes) or last.at > self._run.now - ON_ITS_WAY
        return has_died or last.is_lost or self.is_cut(last)

    def settle(self) -> None:
        self.losses += self._books.losses
