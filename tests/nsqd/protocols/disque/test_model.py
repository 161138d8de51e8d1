"""Three clients of some queues against a model that is too simple to be wrong: hypothesis says what they do."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nsqd.core.limits import Limits
from tests.effort import tries
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.disque.wire import Reply, Wire, request

CLIENTS = st.integers(0, 2)
JOBS = st.integers(0, 15)
QUEUES = st.sampled_from([["a"], ["b"], ["a", "b"], ["b", "a"]])
LATE = 60  # ms by which what has a time may be late
EXPIRY = 1_100  # ms by which a job may outlive its time to live
SHORTEST = 5_000  # ms: of the delays and retry times here
NO_JOB = "-NOJOB Job not known in the context of this node."
UNKNOWN = "D-aaaaaaaa-" + "b" * 24 + "-05a1"


@dataclass
class Job:
    """A job in the model."""

    id: str
    number: int  # in the order of adding
    queue: str
    retry: int  # s
    ttl: int  # s
    added: float  # ms
    state: str  # queued; out, delayed: until due; dead: taken out indefinitely, because it is delivered once at most
    due: float = 0.0  # ms
    nacks: int = 0
    more: int = 0  # additional deliveries

    @property
    def end(self) -> float:
        return self.added + self.ttl * 1000

    def as_fetched(self) -> Reply:
        row = self.queue.encode(), self.id.encode(), b"%d" % self.number
        return [*row, b"nacks", self.nacks, b"additional-deliveries", self.more]


class Machine(RuleBasedStateMachine):
    """Hypothesis gives commands of three clients to the peers and to the model."""

    @initialize()
    def begin(self) -> None:
        self.node = Node(Limits(whole_job_ids=True))
        self.observer = Wire(self.node)
        self.clients = [self.observer.another() for _ in range(3)]
        self.waiting: dict[int, list[str]] = {}  # queues by client, the longest wait first
        self.jobs: dict[str, Job] = {}
        self.gone: list[str] = []
        self.now = 0.0
        self.added = 0
        self.fetched = {"a": 0, "b": 0}

    # what happens to jobs

    def queued(self, queue: str) -> list[Job]:
        found = [job for job in self.jobs.values() if job.queue == queue and job.state == "queued"]
        return sorted(found, key=lambda job: job.number)

    def remove(self, job: Job) -> None:
        del self.jobs[job.id]
        self.gone.append(job.id)

    def take(self, job: Job) -> None:
        """A client has fetched it."""
        self.fetched[job.queue] += 1
        if job.retry:
            job.state, job.due = "out", self.now + job.retry * 1000
        else:
            self.remove(job)

    def served(self, *fresh: Job) -> None:
        """Those who wait have got what was queued: `fresh`, if just one, goes to who has waited longest."""
        before = [client for client, queues in self.waiting.items() if fresh and fresh[0].queue in queues]
        for client in list(self.waiting):
            replies = self.clients[client].replies()
            if not replies:
                continue
            (((queue, job_id, body),),) = replies
            job = self.jobs[job_id.decode()]
            assert (job.queue, b"%d" % job.number) == (queue.decode(), body)
            assert queue.decode() in self.waiting.pop(client)
            assert job.state == "queued"
            if len(fresh) == 1:
                assert (job, client) == (fresh[0], before[0])
            self.take(job)
        for job in [job for job in self.jobs.values() if job.end <= self.now]:
            self.remove(job)  # in the turn in which its time was over it may still have been delivered
        assert not any(self.queued(queue) for queues in self.waiting.values() for queue in queues)

    def do(self, client: int, *words: bytes | str | int) -> Reply:
        """Let a client that does not wait send a command."""
        return (self.observer if client in self.waiting else self.clients[client]).do(*words)

    def pick(self, number: int) -> Job | None:
        jobs = sorted(self.jobs.values(), key=lambda job: job.number)
        return jobs[number % len(jobs)] if jobs and number != 15 else None

    # rules

    @rule(
        client=CLIENTS, queue=st.sampled_from("ab"), delay=st.sampled_from([0, 0, 0, 5]),
        retry=st.sampled_from([0, 5, 100]), ttl=st.sampled_from([10, 86_400]),
    )  # fmt: skip
    def add(self, client: int, queue: str, delay: int, retry: int, ttl: int) -> None:
        self.added += 1
        body = b"%d" % self.added
        job_id = self.do(client, "ADDJOB", queue, body, 0, "DELAY", delay, "RETRY", retry, "TTL", ttl)
        job = Job(job_id, self.added, queue, retry, ttl, self.now, "delayed" if delay else "queued")
        job.due = self.now + delay * 1000
        assert job_id not in self.jobs
        self.jobs[job_id] = job
        self.served(*[job] * (not delay))

    @rule(client=CLIENTS, queues=QUEUES, count=st.integers(1, 4))
    def get(self, client: int, queues: list[str], count: int) -> None:
        found = self.do(client, "GETJOB", "NOHANG", "WITHCOUNTERS", "COUNT", count, "FROM", *queues)
        columns = [self.queued(queue) for queue in queues]
        depth = max(map(len, columns))
        expected = [column[row] for row in range(depth) for column in columns if row < len(column)][:count]
        assert (found or []) == [job.as_fetched() for job in expected]
        for job in expected:
            self.take(job)

    @rule(client=CLIENTS, queues=QUEUES)
    def wait(self, client: int, queues: list[str]) -> None:
        if client in self.waiting or any(map(self.queued, queues)):
            return
        assert self.clients[client].replies(request("GETJOB", "COUNT", 3, "FROM", *queues)) == []
        self.waiting[client] = queues

    @rule(client=CLIENTS)
    def leave_and_come_back(self, client: int) -> None:
        self.clients[client].leave()
        self.waiting.pop(client, None)
        self.clients[client] = self.observer.another()

    @rule(client=CLIENTS, numbers=st.lists(JOBS, min_size=1, max_size=3), word=st.sampled_from(["ACKJOB", "FASTACK"]))
    def acknowledge(self, client: int, numbers: list[int], word: str) -> None:
        found = [self.pick(number) for number in numbers]
        ids = [job.id if job is not None else UNKNOWN for job in found]
        jobs = {job.id: job for job in found if job is not None}
        assert self.do(client, word, *ids) == len(jobs)
        for job in jobs.values():
            self.remove(job)

    @rule(client=CLIENTS, number=JOBS)
    def nack(self, client: int, number: int) -> None:
        job = self.pick(number)
        assert self.do(client, "NACK", job.id if job else UNKNOWN) == (job is not None and job.state != "queued")
        if job is not None and job.state != "queued":
            job.state, job.nacks = "queued", job.nacks + 1
            self.served(job)

    @rule(client=CLIENTS, number=JOBS)
    def enqueue(self, client: int, number: int) -> None:
        job = self.pick(number)
        assert self.do(client, "ENQUEUE", job.id if job else UNKNOWN) == (job is not None and job.state != "queued")
        if job is not None and job.state != "queued":
            job.more += job.state != "delayed"
            job.state = "queued"
            self.served(job)

    @rule(client=CLIENTS, number=JOBS)
    def dequeue(self, client: int, number: int) -> None:
        job = self.pick(number)
        assert self.do(client, "DEQUEUE", job.id if job else UNKNOWN) == (job is not None and job.state == "queued")
        if job is not None and job.state == "queued":
            job.state, job.due = "out" if job.retry else "dead", self.now + job.retry * 1000

    @rule(client=CLIENTS, number=JOBS)
    def work_on(self, client: int, number: int) -> None:
        job = self.pick(number)
        answer = self.do(client, "WORKING", job.id if job else UNKNOWN)
        if job is None:
            assert answer == NO_JOB
        elif 2 * (self.now - job.added) > job.ttl * 1000:
            assert answer.startswith("-TOOLATE ")
        else:
            assert answer == job.retry
            if job.retry:
                job.state, job.due = "out", self.now + job.retry * 1000

    @rule(ms=st.sampled_from([300, 1500, 3000]))
    def pass_time(self, ms: int) -> None:
        """Advance until nothing is due within the tolerance. No job can be due twice meanwhile."""
        dues = [(job.due, job.due + LATE) for job in self.jobs.values() if job.state in ("delayed", "out")]
        ends = [(job.end - LATE, job.end + EXPIRY) for job in self.jobs.values()]
        while any(first - LATE <= self.now + ms <= last for first, last in dues + ends):
            ms += LATE
        if ms >= SHORTEST:
            return
        self.observer.advance(ms)
        self.now += ms
        for job in self.jobs.values():
            if job.state in ("delayed", "out") and job.due <= self.now:
                job.more += job.state == "out"
                job.state = "queued"
        self.served()

    # what must always be so

    @invariant()
    def states_agree(self) -> None:
        for job in self.jobs.values():
            shown = self.observer.show(job.id)
            assert shown is not None
            state = b"queued" if job.state == "queued" else b"active"
            assert (shown["state"], shown["nacks"], shown["additional-deliveries"]) == (state, job.nacks, job.more)
            assert (shown["queue"], shown["body"]) == (job.queue.encode(), b"%d" % job.number)
        for queue in "ab":
            jobs = self.queued(queue)
            assert self.observer.do("QLEN", queue) == len(jobs)
            assert [one[1].decode() for one in self.observer.do("QPEEK", queue, 99)] == [job.id for job in jobs]
        assert set(self.observer.do("JSCAN", "BUSYLOOP")[1]) == set(self.jobs)
        assert all(self.observer.do("SHOW", one) is None for one in self.gone[-3:])

    @invariant()
    def the_core_is_sound(self) -> None:
        self.node.broker.check()
        self.node.broker.tubes.check()


TestModel = Machine.TestCase
TestModel.settings = settings(max_examples=tries(30, in_short=8), stateful_step_count=50, deadline=None)
