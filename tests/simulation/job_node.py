"""A simulated node's part in the jobs of the cluster: clients of Disque, remote deliveries, and acknowledgements for others.

It is wired as nsqd/start/daemon.py and the reactor do it: commands are done within a turn, and replies and frames leave when
what they promise is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nsqd.cluster.remote_jobs.job_frames import Loan, unpack_loan
from nsqd.cluster.remote_jobs.job_owners import KEPT
from nsqd.cluster.remote_jobs.lent_jobs import LentJobs
from nsqd.cluster.wire.frames import KIND_AT, FrameKind
from nsqd.cluster.wire.link import Link
from nsqd.core.broker import Broker
from nsqd.core.queues import Queues
from nsqd.core.sequence.mark import Promise, are_kept, of_all
from nsqd.core.work_queue.job import JobState
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading
from nsqd.net.limits import ReplyLimits
from nsqd.protocols.disque.client import DisqueContext
from nsqd.protocols.disque.ids import JobIds
from nsqd.protocols.disque.peer import Peer
from nsqd.protocols.disque.resp import read_request
from nsqd.start.disque import Members
from shared.topic_config import Durability
from tests.nsqd.protocols.disque.wire import read_reply, request
from tests.nsqd.protocols.transport import StillTransport
from tests.simulation.books import number_of

if TYPE_CHECKING:
    from tests.simulation.books import Publish
    from tests.simulation.cluster_node import ClusterNode
    from tests.simulation.job_books import Delivery
    from tests.simulation.jobs import Jobs

MOST_BYTES = 1 << 20
IDS = JobIds(b"c")
# a command of a client: its node has `said` a reply, which may have to wait; then it is either `replied` or `lost`
Asked = Any


class Connection(StillTransport):
    """One client of Disque. It waits for promises as nsqd.net.connection.Connection does."""

    def __init__(self, jobs: JobNode) -> None:
        super().__init__()
        node = jobs.node
        self._jobs = jobs
        self.peer = Peer(node.broker, jobs.context, self, "10.0.0.1", "5555", node.clock.now)
        self.asked: deque[Asked] = deque()  # commands without a reply
        self._sealed: deque[tuple[list[Promise], list[bytes], list[Asked]]] = deque()
        self._limits = ReplyLimits()
        self.is_gone = False

    @property
    def is_idle(self) -> bool:
        return not self.asked and not self._sealed and not self.is_gone

    def waits_for(self, queue: str) -> bool:
        """Return True if the client waits for a job of a queue."""
        return self.peer.worker.waiting and queue in self.peer.worker.watching

    def send(self, asked: Asked, *words: bytes | str | int) -> None:
        """Send a command, within a turn."""
        self.asked.append(asked)
        self.peer.receive(request(*words), self._jobs.node.clock.now)

    def leave(self) -> None:
        """Close the connection, within a turn: unread bytes are lost."""
        if not self.is_gone:
            self.take_last()
            self.peer.disconnected()
            self.lose()

    def lose(self) -> None:
        self.is_gone = True
        for _, _, commands in self._sealed:
            for asked in commands:
                asked.lost()
        for asked in self.asked:
            asked.lost()
        self._sealed.clear()
        self.asked.clear()

    def work(self) -> None:
        now = self._jobs.node.clock.now
        if self.peer.has_more:
            self.peer.receive(b"", now)
        if now >= self.peer.next_timer():
            self.peer.tick(now)

    def _take(self) -> tuple[list[bytes], list[Asked]]:
        """Return the replies of the peer, with their commands. The last reply may have none."""
        output = self.peer.take_output()
        commands: list[Asked] = []
        for reply in replies_in(output):
            if self.asked:
                commands.append(self.asked.popleft())
                commands[-1].said(reply)
        return output, commands

    def take_last(self) -> None:
        """Note what the peer has said in a turn that does not end."""
        self._sealed.append(([], *self._take()))

    def end_turn(self, promises: Sequence[Promise]) -> None:
        outbox = self.peer.outbox
        own, limited = [one for one in promises if one.mark in outbox.marks], list(outbox.limited)
        if not own:
            return
        output, commands = self._take()
        if not limited:
            self._sealed.append((own, output, commands))
            return
        for kept, frames in self._limits.seal(own, output, limited):
            count = len(replies_in(frames))
            self._sealed.append((kept, frames, commands[:count]))
            commands = commands[count:]

    def send_out(self) -> None:
        """Send the replies that may leave to the client. If one waits in vain, the connection ends."""
        self._limits.expire(self._jobs.node.clock.now)
        in_vain = any(promise.is_broken for promises, _, _ in self._sealed for promise in promises)
        while self._sealed and are_kept(self._sealed[0][0]):
            self._handle_replies(*self._sealed.popleft()[1:])
        if in_vain and self._sealed:
            self.peer.disconnected()
            self.lose()
        elif not self._sealed:
            self._handle_replies(*self._take())

    def _handle_replies(self, output: list[bytes], commands: list[Asked]) -> None:
        for asked, reply in zip(commands, replies_in(output), strict=False):
            asked.replied(reply)


def replies_in(output: list[bytes]) -> list[Any]:
    """Return the replies in what a peer has said."""
    data, at, found = b"".join(output), 0, []
    while at < len(data):
        reply, at = read_reply(data, at)
        found.append(reply)
    return found


class _WatchedJobs(LentJobs):
    """Lent jobs that say what has come."""

    def __init__(self, broker: Broker, context: DisqueContext, watcher: JobNode) -> None:
        super().__init__(broker, watcher.cluster, watcher.node.flush, context)
        self._watcher = watcher

    def turn(self) -> None:
        unplaced = self.lending._unplaced
        super().turn()
        self._note_placed(unplaced)

    def _execute(self, rights: bytes, request: bytes, then: Callable[[bytes], None]) -> None:
        def answered(reply: bytes) -> None:
            self._watcher.executed(request, reply)
            then(reply)

        super()._execute(rights, request, answered)

    def _note_placed(self, unplaced: list[Loan]) -> None:
        """Note which of the jobs that no queue took before are in one now. `unplaced`: those."""
        for loan in unplaced:
            if not any(one is loan for one in self.lending._unplaced):
                self._watcher.placed(loan)

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        lending = self.lending
        before, unplaced = (lending.borrowed, lending.returned), lending._unplaced[:]
        super().receive(link, kind, content, now)
        self._note_placed(unplaced)
        if kind is FrameKind.LOAN:
            done = lending.borrowed - before[0], lending.returned - before[1]
            how = {(1, 0): "borrowed", (0, 1): "returned", (0, 0): "kept"}[done]
            loan = unpack_loan(content, b"")
            how = "not placed yet" if how == "kept" and loan in lending._unplaced else how
            self._watcher.came(link, loan, how)


class JobNode:
    """See above."""

    def __init__(self, node: ClusterNode, jobs: Jobs) -> None:
        """Take part in the cluster, as the front end of Disque's clients does."""
        self.node, self._jobs = node, jobs
        self.cluster, self.leaving = node.cluster, node.leaving
        self.context: DisqueContext = DisqueContext(Queues(node.broker.tubes), IDS, Members(self, 0), MOST_BYTES)
        self.lent = _WatchedJobs(node.broker, self.context, self)
        self.lending, self.owners = self.lent.lending, self.lent.owners
        self.connections: list[Connection] = []
        self.consumers: list[tuple[Connection, str]] = []  # clients that take all jobs of a queue
        self.kept: dict[int, bytes] = {}  # job ids of the acknowledgements that are kept, by ordinal
        # loans for clients whose replies are about to leave, by number of the publish
        self.arrived: dict[int, list[Delivery]] = {}
        self._attached: dict[Broker, int] = {}  # when each promoted log began to be attached, true ns
        self.keeping: list[Publish] = []  # jobs of others that are this node's when they are as durable as they promise

    def attach(self, broker: Broker) -> None:
        self._attached[broker] = self.node.machine.run.now
        self._jobs.books.attached(self, broker)

    def came(self, link: Link, loan: Loan, how: str) -> None:
        self._jobs.books.came(self, link, loan, how)

    def placed(self, loan: Loan) -> None:
        self._jobs.books.placed(self, loan)

    def executed(self, request: bytes, reply: bytes) -> None:
        """Note a job that another node has forwarded: from now on it is in this node's log, whatever the client learns."""
        message_id = IDS.decode(reply[1:].strip()) if reply.startswith(b"+D-") else None
        if message_id is not None and message_id >> 48 == self.node.number:  # this node has not forwarded it, too
            words = read_request(request, 0, len(request))[0]
            self._jobs.books.forwarded(number_of(words[2]), message_id, self)

    def connect(self) -> Connection:
        connection = Connection(self)
        self.connections.append(connection)
        return connection

    def begin_turn(self) -> None:
        for connection in self.connections:
            connection.work()
        self.connections = [one for one in self.connections if not one.is_gone]

    def note_begun(self) -> None:
        """Note what was begun to be delivered in a turn that a power cut ends."""
        for connection in self.connections:
            connection.take_last()
        self._note_loans()

    def _note_loans(self) -> list[Delivery]:
        output = self.lending.output
        loans = [(link, frame[KIND_AT + 1 :]) for link, frame in output if frame[KIND_AT] == FrameKind.LOAN]
        return [self._jobs.books.lent(self, link, unpack_loan(content, b"")) for link, content in loans]

    def end_turn(self, promises: Sequence[Promise]) -> None:
        """Run the reactor's work after the group of a turn is written."""
        from tests.simulation.cluster_node import Reply

        for connection in self.connections:
            connection.end_turn(promises)
        loans = self._note_loans()
        self._note_kept()
        replies = self.lent.replies()
        if replies is None:
            return
        if promises := of_all(promises):
            give_up = replies.give_up or replies.refuse
            refuse, broken = replies.refuse, [one.mark for one in promises]

            def end() -> None:
                for one in loans:
                    one.is_lost |= not one.job.retry
                (refuse if any(mark.broken for mark in broken) else give_up)()

            self.node.replies.append((list(promises), Reply((), replies.deliver, end)))
        else:
            replies.deliver()

    def send_out(self) -> None:
        log = self.node.log
        for one in list(self.keeping) if not log.store.is_transferred else ():
            writer = log.writer
            mark = writer.durable if one.mode is Durability.ALWAYS else writer.written
            if one not in self.node.unwritten and mark.position >= one.position:
                one.acked = True
                self.keeping.remove(one)
        for connection in list(self.connections):
            connection.send_out()

    def _note_kept(self) -> None:
        tube = self.node.broker.tubes.tube(KEPT)
        if tube is None or not (tube.jobs.count or self.kept):
            return
        found = {job.ordinal for job in tube.jobs}
        for ordinal in found - self.kept.keys():
            job = tube.jobs.get(ordinal)
            try:
                job_id = tube.body(job)
            except Reading:  # it was kept by an earlier run of the node
                continue
            if job_id is not None:
                self.kept[ordinal] = job_id
                self._jobs.books.kept(self, ordinal, job_id)
        for ordinal in self.kept.keys() - found:
            self._jobs.books.kept_no_more(self, ordinal, self.kept.pop(ordinal))

    @property
    def is_running(self) -> bool:
        return self.node.machine.node is self.node

    def is_out(self, message_id: int) -> bool:
        found = self.context.queues.find(message_id)
        return found is not None and found[1].state is JobState.RESERVED

    def find(self, message_id: int) -> bool:
        return self.context.queues.find(message_id) is not None

    def keeps(self, publish: Publish) -> None:
        """Note that a job of another node is this one's when the group of this turn is written."""
        self.node.unwritten.append(publish)
        self.keeping.append(publish)

    def tubes(self, queue: str) -> Sequence[Tube]:
        return self.context.queues.tubes.everywhere(queue)

    def place_of(self, publish: Publish) -> tuple[bytes, int]:
        """Return the log in which the node has a job, as far as that is known, and where the group of this turn ends."""
        for log_id in (publish.log_id, *publish.others, *publish.former):
            if log_id == self.node.log.identity.log_id:
                return log_id, self.node.group_end
            promoted = self.node.promoted.logs.get(log_id)
            if promoted is not None:
                return log_id, promoted.log.writer.written.position
        return publish.log_id, 1 << 63  # this node has lost the promoted log since, and its end there is not known

    def attached_at(self, message_id: int) -> int | None:
        """Return the time at which the promoted log with a job was attached; None for jobs of the own log."""
        found = self.context.queues.find(message_id)
        if found is None or found[0].key >= 0:
            return None
        return next(at for broker, at in self._attached.items() if broker.tubes.index is found[0].index)

    def mode_of(self, queue: str) -> Durability:
        """Return the durability that the node promises for the jobs of a queue."""
        return self.node.broker.topics[queue].config.durability or self.node.sizes.durability

    def copies_of(self, queue: str) -> int:
        return self.node.broker.topics[queue].config.replicate or 1

    def bodies(self, queues: Iterable[str]) -> list[bytes]:
        """Return the bodies of all jobs of some queues, wherever they are: everything is well, and nothing is damaged."""
        found = []
        for tube in [tube for queue in queues for tube in self.tubes(queue)]:
            for ordinal in [job.ordinal for job in tube.jobs]:
                body = None
                while (job := tube.jobs.get(ordinal)) is not None and body is None:
                    try:
                        body = tube.body(job)
                    except Reading:
                        while self.node.cache.step() or any(
                            one.cache.step() for one in self.node.promoted.logs.values()
                        ):
                            pass
                        self.node.turn()
                if body is not None:
                    found.append(body)
        return found

    def gone(self) -> None:
        for connection in self.connections:
            connection.take_last()
            connection.lose()
        self._note_loans()
