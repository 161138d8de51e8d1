"""Clients of Disque at the nodes of a simulated cluster, in some of the runs.

They add jobs, wait for them, acknowledge them at any node, and close their connections whenever they like. What must hold while
anything happens is in job_books.py. When all is well:

* no client waits at a node while a job that no other client gets is ready at a connected one;
* no acknowledgement is kept, and no loan waits to be confirmed;
* a job that the lender counts as out was given to a client;
* each job that was acknowledged to its producer only is delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from nsqd.core.work_queue.job import JobState
from shared.topic_config import Durability, TopicConfig
from tests.nsqd.core.node import SECOND
from tests.simulation.books import number_of
from tests.simulation.job_books import Delivery, Job, JobBooks
from tests.simulation.job_node import IDS, Connection, JobNode

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun
    from tests.simulation.cluster_node import ClusterNode, Reply
    from tests.simulation.machine import Machine

PART = 0.35  # of the runs
QUEUES = {
    "queue": TopicConfig(),
    "queue-of-two": TopicConfig(replicate=2),
    "durable-queue": TopicConfig(Durability.ALWAYS),
}
MOST_CLIENTS = 8  # of one node
LONG = 300
RETRIES = (0, 0, 1, 3, 10, LONG)  # s
TTL, SHORT = 864_000, 20  # s: longer than clocks are set, and what ends in a run
STRANDED_AFTER = 8 * SECOND
QUIET = 15 * SECOND  # without a delivery: all that comes has come
WAITS: tuple[list[str | int], ...] = ([], [], ["NOHANG"], ["TIMEOUT", 2000], ["TIMEOUT", 20_000])  # ms
MOST_HELD = 200  # jobs that clients remember


class Other:
    """A command whose reply is not checked."""

    def said(self, reply: Any) -> None: ...
    def replied(self, reply: Any) -> None: ...
    def lost(self) -> None: ...


class Add(Other):
    def __init__(self, jobs: Jobs, node: ClusterNode, job: Job) -> None:
        self._jobs, self._node, self._job = jobs, node, job

    def said(self, reply: Any) -> None:
        if isinstance(reply, str) and reply.startswith("D-"):
            message_id = IDS.decode(reply.encode())
            self._jobs.books.named(self._job.publish.number, message_id)

    def replied(self, reply: Any) -> None:
        run, publish = self._jobs.run, self._job.publish
        if isinstance(reply, str) and reply.startswith("D-"):
            message_id = IDS.decode(reply.encode())
            where = next((one for one in run.machines if one.number == message_id >> 48), self._node.machine)
            taker = self._node if where is self._node.machine else where.node  # another one if this node leaves
            # a borrower may have taken the job over already, or the process that added it may be gone
            if taker is None or taker.began > publish.at or any(one.how == "kept" for one in self._job.deliveries):
                run.answered(publish)
            elif taker is self._node:
                run.acknowledge(where, taker, publish)
            else:
                run.acknowledge_there(where, taker, publish)
        else:
            self._jobs.books.count(f"ADDJOB: {str(reply).split()[0]}")
            run.answered(publish)

    def lost(self) -> None:
        self._jobs.run.answered(self._job.publish)


class Get(Other):
    def __init__(self, jobs: Jobs, part: JobNode) -> None:
        self._jobs, self._part = jobs, part
        self._found: list[tuple[bytes, Delivery]] = []

    def said(self, reply: Any) -> None:
        books = self._jobs.books
        for _, job_id, body in reply if isinstance(reply, list) else ():  # a node that leaves refuses to wait
            number, message_id = number_of(body), IDS.decode(job_id)
            job = books.jobs[number]
            arrived = self._part.arrived.get(number)
            delivery = arrived.pop() if arrived else books.begun(job, self._part)
            books.named(number, message_id)
            self._found.append((job_id, delivery))

    def replied(self, reply: Any) -> None:
        for job_id, delivery in self._found:
            self._jobs.books.sent(delivery)
            self._jobs.got(self._part, job_id, delivery.job)

    def lost(self) -> None:
        for _, delivery in self._found:
            delivery.is_lost = True


class Acknowledge(Other):
    def __init__(self, jobs: Jobs, found: list[Job]) -> None:
        self._jobs = jobs
        self._found = [(job, jobs.books.owners_of(job)) for job in found]
        self._sent = jobs.run.now
        for job in found:
            job.publish.finished = True

    def replied(self, reply: Any) -> None:
        if reply == len(self._found):
            for job, owners in self._found:
                self._jobs.books.acknowledged(job, self._sent, owners)
        else:
            self._jobs.books.count("acknowledgements answered with less")


class Jobs:
    def __init__(self, run: ClusterRun, random: Random, is_on: bool | None) -> None:
        """`is_on`: whether there are any; None: `random` chooses."""
        self.run, self._random = run, random
        chosen = random.random() < PART
        self.is_on = chosen if is_on is None else is_on
        self.topics = QUEUES if self.is_on else {}
        self.books = JobBooks(run)
        self._held: list[tuple[bytes, Job, int]] = []  # id, and the machine of the client that has got it
        self._stranded: dict[str, tuple[int, int]] = {}  # by queue: since when, and deliveries until then
        self._delivered: dict[str, int] = dict.fromkeys(QUEUES, 0)
        self._seen: set[int] = set()  # numbers of jobs that were delivered since all is well

    def join(self, node: ClusterNode) -> None:
        if self.is_on:
            node.jobs_part = JobNode(node, self)

    def prepare(self, node: ClusterNode) -> None:
        for queue in self.topics:
            node.broker.tubes.made(queue)

    def got(self, part: JobNode, job_id: bytes, job: Job) -> None:
        self._held.append((job_id, job, part.node.machine.name))
        del self._held[:-MOST_HELD]
        self._delivered[job.publish.topic] += 1
        self._seen.add(job.publish.number)

    def act(self, machine: Machine, node: ClusterNode) -> Reply | None:
        part, random = node.jobs_part, self._random
        if part is None:
            return None
        deed = random.random()
        idle = [one for one in part.connections if one.is_idle]
        if deed < 0.06 and part.connections:
            random.choice(part.connections).leave()
            self.books.count("connections closed")
            return None
        if not idle and len(part.connections) >= MOST_CLIENTS:
            return None
        client = random.choice(idle) if idle and random.random() < 0.8 else part.connect()
        if deed < 0.4:
            self.add(machine, node, client)
        elif deed < 0.7:
            self.get(part, client)
        elif deed < 0.9:
            self.acknowledge(machine, client)
        else:
            self._do_more(client)
        return None

    def add(self, machine: Machine, node: ClusterNode, client: Connection, queue: str = "", retry: int = -1) -> None:
        random, run = self._random, self.run
        queue = queue or random.choice(list(QUEUES))
        retry = random.choice(RETRIES) if retry < 0 else retry
        n = 1 if not retry else random.choice((1, 1, 2, 2, 3))
        is_short, delay = random.random() < 0.1, random.choice((0, 0, 0, 2))
        config = QUEUES[queue]
        mode = config.durability or run.sizes.durability
        publish = run.books.publish(machine.name, machine.log_id, queue, mode, max(n, config.replicate or 1), run.now)
        job = self.books.jobs[publish.number] = Job(publish, retry, is_short)
        publish.finished = is_short
        publish.position = node.log.writer.written.position
        node.unwritten.append(publish)
        words: list[str | int] = ["REPLICATE", n, "RETRY", retry, "TTL", SHORT if is_short else TTL]
        if delay:
            words += ["DELAY", delay]
        self.books.count("added")
        run.expect(machine, node, publish)
        client.send(Add(self, node, job), "ADDJOB", queue, publish.body, 2000, *words)

    def get(self, part: JobNode, client: Connection, *queues: str) -> None:
        random = self._random
        names = list(queues) or random.sample(list(QUEUES), random.choice((1, 1, 2, 3)))
        words: list[str | int] = ["COUNT", random.choice((1, 1, 5))]
        if not queues:
            words += random.choice(WAITS)
        client.send(Get(self, part), "GETJOB", *words, "FROM", *names)

    def acknowledge(self, machine: Machine, client: Connection, most: int = 3) -> None:
        """Acknowledge jobs, most often at the node that has given them."""
        random = self._random
        own = [one for one in self._held if one[2] == machine.name]
        held = own if own and random.random() < 0.5 else self._held
        if not held:
            return
        chosen = random.sample(held, min(len(held), random.choice((1, 1, 1, most))))
        self._held = [one for one in self._held if one not in chosen]
        found = Acknowledge(self, [job for _, job, _ in chosen])
        client.send(found, random.choice(("ACKJOB", "ACKJOB", "FASTACK")), *[job_id for job_id, _, _ in chosen])

    def _do_more(self, client: Connection) -> None:
        random = self._random
        if self._held:
            job_id, job, _ = random.choice(self._held)
            word = random.choice(("NACK", "NACK", "WORKING", "ENQUEUE", "DEQUEUE", "SHOW"))
            self.books.count(word)
            job.is_dequeued |= word == "DEQUEUE"
            client.send(Other(), word, job_id)

    def parts(self) -> Iterator[tuple[Machine, JobNode]]:
        for machine in self.run.members:
            if machine.node is not None and machine.node.jobs_part is not None:
                yield machine, machine.node.jobs_part

    def settle(self) -> set[int]:
        """Let clients take the jobs, now that all is well. Returns the numbers of those that are there or were delivered."""
        if not self.is_on:
            return set()
        run = self.run
        run.is_healing = True
        self._seen.clear()
        self._stranded.clear()
        for machine, part in self.parts():
            self._in_turn(part, partial(self._stir, machine, part))
        self._wait(STRANDED_AFTER + 4 * SECOND, lambda: False)
        self._judge_ended()
        places = list(self.parts())
        if self._random.random() < 0.5:
            places = [self._random.choice(places)]
        self._consume(places, self._random.choice((0.5, 1.0)))
        present = {number_of(body) for _, part in self.parts() for body in part.bodies(self.topics)}
        # a turn in which a body was read may have lent another job
        present |= {one.job.publish.number for one in self.books.under_way()}
        self._judge_delivered()
        self.books.judge_lost(present | self._seen)
        self.send_clients_away(is_all=True)
        run.is_healing = False
        return self._seen | present

    def _in_turn(self, part: JobNode, deed: Callable[[], object]) -> None:
        def command() -> None:
            deed()

        part.node.turn(command)

    def _stir(self, machine: Machine, part: JobNode) -> None:
        """Make what is buried ready, and add a job to each queue."""
        for queue in QUEUES:
            for tube in part.tubes(queue):
                for job in tube.table.first_buried(1 << 20):
                    tube.kick(job)
            self.add(machine, part.node, part.connect(), queue, 10)

    def _wait(self, ns: int, is_over: Callable[[], bool]) -> None:
        """Let time pass until no job was delivered for so long, or something is so."""
        run, until, before = self.run, self.run.now + ns, len(self._seen)
        while run.now < until and not is_over():
            run.step(250_000_000)
            self._judge_stranded()
            if len(self._seen) > before:
                before, until = len(self._seen), run.now + ns

    def _judge_stranded(self) -> None:
        """Assert that no client waits indefinitely while a job is ready at a connected node."""
        for queue in QUEUES:
            parts = [part for _, part in self.parts()]
            is_awaited = any(one.waits_for(queue) for part in parts for one in part.connections)
            is_ready = any(tube.table.counts[JobState.READY] for part in parts for tube in part.tubes(queue))
            if not (is_awaited and is_ready):
                self._stranded.pop(queue, None)
                continue
            since, delivered = self._stranded.get(queue, (0, -1))
            if delivered != self._delivered[queue]:
                self._stranded[queue] = self.run.now, self._delivered[queue]
            else:
                assert self.run.now - since < STRANDED_AFTER, f"jobs of {queue} are ready, and clients wait"

    def _judge_ended(self) -> None:
        """No acknowledgement is kept, and no loan waits to be confirmed."""
        for machine, part in self.parts():
            members = {one.number for one in self.run.members}
            guests = part.lending._guests.items()
            unconfirmed = {number: one.unconfirmed for number, one in guests if one.unconfirmed and number in members}
            assert not unconfirmed, f"{machine.name} waits for words about loans: {unconfirmed}"
            may_have_job = any(one.cluster.has_unserved_log for _, one in self.parts())
            assert not part.kept or may_have_job, f"{machine.name} keeps acknowledgements: {list(part.kept.values())}"

    def _missing(self) -> list[Job]:
        """Return the jobs that must be delivered, and were not since all is well, except for those that are out for long."""
        owed = [self.books.jobs[one.number] for one in self.run.books.owed() if one.number in self.books.jobs]
        missing = [one for one in owed if one.publish.number not in self._seen]
        return [one for one in missing if one.retry != LONG or not one.deliveries]

    def _judge_delivered(self) -> None:
        """Each job that must be delivered was; one that is out for long was given to a client, or its owner has died since."""
        missing = [one for one in self._missing() if not self.run.is_kept_diverged(one.publish)]
        assert not missing, f"lost, or not delivered: {missing[0].publish}"
        for job in self.books.jobs.values():
            last = job.deliveries[-1] if job.deliveries else None
            if (
                job.retry != LONG
                or job.is_dequeued
                or last is None
                or last.at > self.run.now - STRANDED_AFTER
                or not last.owner.is_running
            ):
                continue
            is_out = any(one.is_out(job.message_id) for _, one in self.parts())
            is_given = last.has_left or last.is_lost or not is_out
            assert is_given, f"counts as out, and no client was given it: {last}, {last.how}"

    def _consume(self, places: list[tuple[Machine, JobNode]], part_done: float) -> None:
        """Let clients at some nodes take all jobs."""
        self.books.count("settled at one node" if len(places) == 1 else "settled at all nodes")
        for _, part in places:
            clients = [part.connect() for _ in range(6)]
            part.consumers = [(one, queue) for one, queue in zip(clients * 3, [*QUEUES] * 6, strict=True)][:6]
            for one, queue in part.consumers:
                self._in_turn(part, partial(self.get, part, one, queue))

        def is_over() -> bool:
            for machine, part in places:
                if machine.node is part.node:
                    self._in_turn(part, partial(self._work, machine, part, part_done))
            is_kept = not any(part.keeping for _, part in self.parts())
            return not self._missing() and is_kept and not self.books.under_way()

        self._wait(QUIET, is_over)

    def _work(self, machine: Machine, part: JobNode, part_done: float) -> None:
        part.consumers = [(part.connect() if one.is_gone else one, queue) for one, queue in part.consumers]
        for client, queue in part.consumers:
            if client.is_idle:
                self.get(part, client, queue)
        while self._held and self._random.random() < 0.9:
            job_id, job, _ = self._held.pop()
            if self._random.random() < part_done:
                others = [one for _, one in self.parts()]
                where = self._random.choice((part, part, self._random.choice(others)))
                client = next((one for one in where.connections if one.is_idle), None) or where.connect()
                found = Acknowledge(self, [job])
                if where is part:
                    client.send(found, "ACKJOB", job_id)
                else:
                    self._in_turn(where, partial(client.send, found, "ACKJOB", job_id))

    def send_clients_away(self, is_all: bool = False) -> None:
        """Let clients leave: those that do not wait, or all."""
        for _, part in self.parts():

            def leave(part: JobNode = part) -> None:
                for one in part.connections:
                    if is_all or not one.peer.worker.waiting:
                        one.leave()

            self._in_turn(part, leave)
