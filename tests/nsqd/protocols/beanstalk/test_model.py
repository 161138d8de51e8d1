"""Three clients of some tubes against a model that is too simple to be wrong: hypothesis says what they do."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.effort import tries
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire, facts, put

CLIENTS = st.integers(0, 2)
TUBES = st.sampled_from(["default", "a", "b"])
PRIORITIES = st.sampled_from([0, 3, 2000])
COUNTS = ("reserves", "timeouts", "releases", "buries", "kicks")
LATE = 60  # ms by which what has a time may be late


@dataclass
class Job:
    """A job in the model."""

    id: int
    tube: str
    priority: int
    ttr: int  # s
    state: str = "ready"
    due: float = 0.0  # ms
    holder: int = -1
    buried: int = 0  # its place among the buried
    counts: Counter[str] = field(default_factory=Counter)


class Machine(RuleBasedStateMachine):
    """Hypothesis gives commands of three clients to the peers and to the model."""

    @initialize()
    def begin(self) -> None:
        self.node = Node()
        self.clients = [Wire(self.node) for _ in range(3)]
        self.using = ["default"] * 3
        self.watching: list[list[str]] = [["default"] for _ in range(3)]
        self.jobs: dict[int, Job] = {}
        self.now = 0.0
        self.last = self.burials = 0

    def ask(self, client: int, line: bytes) -> bytes:
        return self.clients[client].ask(line)

    def own(self, client: int, number: int) -> Job | None:
        job = self.jobs.get(number)
        return job if job is not None and job.state == "reserved" and job.holder == client else None

    def pick(self, client: int, number: int) -> int:
        """Mostly a job that the client has reserved, for with others little happens."""
        held = [job.id for job in self.jobs.values() if job.state == "reserved" and job.holder == client]
        return held[number % len(held)] if held and number % 4 else number

    # rules

    @rule(client=CLIENTS, tube=TUBES)
    def use(self, client: int, tube: str) -> None:
        assert self.ask(client, b"use %s\r\n" % tube.encode()) == b"USING %s\r\n" % tube.encode()
        self.using[client] = tube

    @rule(client=CLIENTS, tube=TUBES)
    def watch(self, client: int, tube: str) -> None:
        if tube not in self.watching[client]:
            self.watching[client].append(tube)
        assert self.ask(client, b"watch %s\r\n" % tube.encode()) == b"WATCHING %d\r\n" % len(self.watching[client])

    @rule(client=CLIENTS, tube=TUBES)
    def ignore(self, client: int, tube: str) -> None:
        watching = self.watching[client]
        answer = self.ask(client, b"ignore %s\r\n" % tube.encode())
        if watching == [tube]:
            assert answer == b"NOT_IGNORED\r\n"
            return
        if tube in watching:
            watching.remove(tube)
        assert answer == b"WATCHING %d\r\n" % len(watching)

    @rule(client=CLIENTS, priority=PRIORITIES, delay=st.sampled_from([0, 0, 2]), ttr=st.sampled_from([2, 100]))
    def put(self, client: int, priority: int, delay: int, ttr: int) -> None:
        self.last += 1
        assert self.ask(client, put(b"%d" % self.last, priority, delay, ttr)) == b"INSERTED %d\r\n" % self.last
        job = self.jobs[self.last] = Job(self.last, self.using[client], priority, ttr)
        if delay:
            job.state, job.due = "delayed", self.now + delay * 1000

    @rule(client=CLIENTS)
    def reserve(self, client: int) -> None:
        answer = self.ask(client, b"reserve-with-timeout 0\r\n")
        ready = [job for job in self.jobs.values() if job.state == "ready" and job.tube in self.watching[client]]
        held = [job.due for job in self.jobs.values() if job.holder == client and job.state == "reserved"]
        if not ready:
            soon = bool(held) and min(held) - 1000 <= self.now
            assert answer == (b"DEADLINE_SOON\r\n" if soon else b"TIMED_OUT\r\n")
            return
        job = min(ready, key=lambda job: (job.priority, job.id))
        body = b"%d" % job.id
        assert answer == b"RESERVED %d %d\r\n%s\r\n" % (job.id, len(body), body)
        job.state, job.holder, job.due = "reserved", client, self.now + job.ttr * 1000
        job.counts["reserves"] += 1

    @rule(client=CLIENTS, number=st.integers(1, 12))
    def delete(self, client: int, number: int) -> None:
        job = self.jobs.get(number)
        answer = self.ask(client, b"delete %d\r\n" % number)
        if job is None or (job.state == "reserved" and job.holder != client):
            assert answer == b"NOT_FOUND\r\n"
        else:
            assert answer == b"DELETED\r\n"
            del self.jobs[number]

    @rule(client=CLIENTS, number=st.integers(1, 12), priority=PRIORITIES, delay=st.sampled_from([0, 2]))
    def release(self, client: int, number: int, priority: int, delay: int) -> None:
        number = self.pick(client, number)
        job = self.own(client, number)
        answer = self.ask(client, b"release %d %d %d\r\n" % (number, priority, delay))
        assert answer == (b"RELEASED\r\n" if job is not None else b"NOT_FOUND\r\n")
        if job is not None:
            job.priority, job.state, job.due = priority, "delayed" if delay else "ready", self.now + delay * 1000
            job.counts["releases"] += 1

    @rule(client=CLIENTS, number=st.integers(1, 12), priority=PRIORITIES)
    def bury(self, client: int, number: int, priority: int) -> None:
        number = self.pick(client, number)
        job = self.own(client, number)
        answer = self.ask(client, b"bury %d %d\r\n" % (number, priority))
        assert answer == (b"BURIED\r\n" if job is not None else b"NOT_FOUND\r\n")
        if job is not None:
            self.burials += 1
            job.priority, job.state, job.buried = priority, "buried", self.burials
            job.counts["buries"] += 1

    @rule(client=CLIENTS, number=st.integers(1, 12))
    def touch(self, client: int, number: int) -> None:
        number = self.pick(client, number)
        job = self.own(client, number)
        assert self.ask(client, b"touch %d\r\n" % number) == (b"TOUCHED\r\n" if job is not None else b"NOT_FOUND\r\n")
        if job is not None:
            job.due = self.now + job.ttr * 1000

    @rule(client=CLIENTS, bound=st.integers(0, 3))
    def kick(self, client: int, bound: int) -> None:
        here = [job for job in self.jobs.values() if job.tube == self.using[client]]
        buried = sorted((job for job in here if job.state == "buried"), key=lambda job: job.buried)
        delayed = sorted((job for job in here if job.state == "delayed"), key=lambda job: (job.due, job.id))
        kicked = (buried or delayed)[:bound]
        assert self.ask(client, b"kick %d\r\n" % bound) == b"KICKED %d\r\n" % len(kicked)
        for job in kicked:
            job.state = "ready"
            job.counts["kicks"] += 1

    @rule(client=CLIENTS, number=st.integers(1, 12))
    def kick_job(self, client: int, number: int) -> None:
        job = self.jobs.get(number)
        is_kicked = job is not None and job.state in ("buried", "delayed")
        assert self.ask(client, b"kick-job %d\r\n" % number) == (b"KICKED\r\n" if is_kicked else b"NOT_FOUND\r\n")
        if job is not None and is_kicked:
            job.state = "ready"
            job.counts["kicks"] += 1

    @rule(client=CLIENTS)
    def leave_and_come_back(self, client: int) -> None:
        self.clients[client].leave()
        for job in self.jobs.values():
            if job.state == "reserved" and job.holder == client:
                job.state = "ready"
        self.clients[client] = Wire(self.node)
        self.using[client], self.watching[client] = "default", ["default"]

    @rule(ms=st.sampled_from([300, 1500]))
    def pass_time(self, ms: int) -> None:
        """Advance until nothing is due within the tolerance."""
        times = [job.due for job in self.jobs.values() if job.state in ("delayed", "reserved")]
        marks = [*times, *(due - 1000 for due in times)]
        while any(abs(self.now + ms - mark) <= LATE for mark in marks):
            ms += LATE
        self.clients[0].advance(ms)
        self.now += ms
        for job in self.jobs.values():
            if job.state in ("delayed", "reserved") and job.due <= self.now:
                job.counts["timeouts"] += job.state == "reserved"
                job.state = "ready"

    # what must always be so

    @invariant()
    def states_agree(self) -> None:
        for job in self.jobs.values():
            stats = facts(self.ask(0, b"stats-job %d\r\n" % job.id))
            assert (stats["state"], stats["pri"], stats["tube"]) == (job.state, str(job.priority), f'"{job.tube}"')
            assert [int(stats[name]) for name in COUNTS] == [job.counts[name] for name in COUNTS]
        tubes = {"default", *self.using, *(job.tube for job in self.jobs.values())}.union(*self.watching)
        assert set(self.node.broker.tubes.listed.names) == tubes

    @invariant()
    def the_core_is_sound(self) -> None:
        self.node.broker.check()
        self.node.broker.tubes.check()


TestModel = Machine.TestCase
TestModel.settings = settings(max_examples=tries(30, in_short=10), stateful_step_count=60, deadline=None)
