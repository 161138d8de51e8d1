"""Which job is in which state, and what comes next, against a list of jobs that is too simple to be wrong."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import Job, JobState, unpack
from nsqd.core.work_queue.job_pages import PAGE
from nsqd.core.work_queue.job_table import SEARCHED_PAGES, URGENT, JobTable
from tests.cases import each
from tests.effort import tries

READY, RESERVED, BURIED, DELAYED = JobState
PRIORITIES = st.sampled_from([0, URGENT - 1, URGENT, 4_000_000_000])
DUES = st.integers(1, 9)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from([READY, DELAYED]), PRIORITIES, DUES),
        st.tuples(st.just("add_together"), st.sampled_from([READY, DELAYED]), PRIORITIES, DUES),
        st.tuples(st.integers(0, 20), st.sampled_from([READY, RESERVED, DELAYED]), PRIORITIES, DUES),
        st.tuples(st.integers(0, 20), st.just(BURIED), PRIORITIES, DUES),
        st.tuples(st.just("reserve"), st.just(RESERVED), PRIORITIES, DUES),
        st.tuples(st.integers(0, 20), st.none(), PRIORITIES, DUES),
    ),
    max_size=40,
)


class Model:
    """A table, and with it each job's state, priority, due time and number of burial."""

    def __init__(self) -> None:
        self.table = JobTable()
        self.jobs: dict[int, tuple[JobState, int, int]] = {}
        self.created: dict[int, int] = {}  # by ordinal
        self.next = self.burials = 0

    def do(self, what: str | int, state: JobState | None, priority: int, due: int) -> None:
        if what == "reserve":
            self.reserve(due)
            return
        if isinstance(what, str):
            self.add(what, state, priority, due if state is DELAYED else 0)
            return
        ordinal = sorted(self.jobs)[what % len(self.jobs)] if self.jobs else -1
        job = self.table.jobs.get(ordinal) if self.jobs else None
        if job is None:
            return
        if state is None:
            self.table.remove(job.ordinal, job.state, job.priority)
            del self.jobs[ordinal]
        elif state is BURIED:
            self.burials += 1
            row = self.table.bury(job, priority)
            self.jobs[ordinal] = BURIED, priority, self.burials
            assert unpack(ordinal, row) == job
        else:
            due = 0 if state is READY else due
            row = self.table.move(job, state, priority, due)
            self.jobs[ordinal] = state, priority, due
            assert unpack(ordinal, row) == job

    def reserve(self, due: int) -> None:
        """Reserve the first ready job if it is plain to see; a stale entry may be before it."""
        head, order = self.table.plain_head(), self.in_order(READY)
        assert self.table.first_priority <= (self.jobs[order[0]][1] if order else URGENT << 40)
        if head is None:
            return
        ordinal, (job_id, priority, ttr, created, reserves, ttl, failures, state) = head
        job = self.table.jobs.get(ordinal)
        assert ordinal == order[0]
        assert (job_id, priority, ttr, created) == (job.id, job.priority, job.ttr, job.created)
        assert (reserves, ttl, failures, state) == (job.reserves, job.ttl, job.failures, READY)
        row = self.table.reserve(ordinal, priority, reserves + 1, due)
        job.state, job.due, job.reserves = RESERVED, due, reserves + 1
        assert unpack(ordinal, row) == self.table.jobs.get(ordinal) == job
        self.jobs[ordinal] = RESERVED, priority, due

    def add(self, how: str, state: JobState, priority: int, due: int) -> None:
        count, created = 1 if how == "add" else 3, 7 + self.next
        if how == "add":
            job = Job(self.next, 100 + self.next, priority, 0, 60, created, due, state=state)
            assert unpack(self.next, self.table.add(job)) == job
        else:
            ids = [100 + self.next + index for index in range(3)]
            self.table.add_together(self.next, ids, JobOptions(priority, 60, 0, due, True), created, state)
        self.jobs.update(dict.fromkeys(range(self.next, self.next + count), (state, priority, due)))
        self.created.update(dict.fromkeys(range(self.next, self.next + count), created))
        self.next += count

    def in_order(self, state: JobState) -> list[int]:
        of = {ordinal: job for ordinal, job in self.jobs.items() if job[0] is state}
        return sorted(of, key=lambda ordinal: (of[ordinal][1] if state is READY else of[ordinal][2], ordinal))

    def check(self, table: JobTable) -> None:
        table.check()
        for state in JobState:
            order = self.in_order(state)
            assert table.counts[state] == len(order)
            if state is BURIED:
                assert list(table.buried) == order
                assert [job.ordinal for job in table.first_buried(2)] == order[:2]
                continue
            head = table.head(state)
            assert (head.ordinal if head is not None else None) == (order[0] if order else None)
            held = [table.found(state, entry) for entry in dict.fromkeys(table.order(state).ascending())]
            assert [job.ordinal for job in held if job is not None] == order
        ready = [priority for state, priority, _ in self.jobs.values() if state is READY]
        assert table.urgent == sum(priority < URGENT for priority in ready)
        oldest = [min((self.created[one] for one in jobs), default=0) for jobs in (self.in_order(READY), self.jobs)]
        assert table.oldest() == tuple(oldest)
        waiting = [due for state, _, due in self.jobs.values() if state in (DELAYED, RESERVED)]
        assert table.next_due() == min(waiting, default=None)
        for state in JobState:
            job, order = table.first(state), self.in_order(state)
            assert (job.ordinal if job is not None else None) == (order[0] if order else None)
        for ordinal, known in self.jobs.items():
            job = table.jobs.get(ordinal)
            assert (job.state, job.priority, job.due) == known


@settings(max_examples=tries(30), deadline=None)
@given(moves=MOVES)
def test_a_table_is_a_list_of_jobs(moves: list[tuple[str | int, JobState | None, int, int]]) -> None:
    model = Model()
    for move in moves:
        model.do(*move)
        model.check(model.table)


def test_the_search_for_the_oldest_ready_job_is_bounded() -> None:
    table, count = JobTable(), SEARCHED_PAGES * PAGE
    table.add_together(0, list(range(count)), JobOptions(9, 60, 5, 5, True), 1, DELAYED)
    for created, priority in ((2, 9), (3, 8)):
        table.add(Job(count + created, count + created, priority, 0, 60, created))
    assert table.oldest() == (3, 1)  # the one that is next
    table.remove(0, DELAYED, 9)
    for ordinal in range(1, PAGE):
        table.remove(ordinal, DELAYED, 9)
    assert table.oldest() == (2, 1)


@settings(max_examples=tries(20), deadline=None)
@given(moves=MOVES, offset=st.integers(0, 3), now=st.integers(0, 9))
def test_after_a_restart(moves: list[tuple[str | int, JobState | None, int, int]], offset: int, now: int) -> None:
    model = Model()
    for move in moves:
        model.do(*move)
    for ordinal, (state, priority, due) in list(model.jobs.items()):
        if state is RESERVED or (state is DELAYED and due - offset <= now):
            model.jobs[ordinal] = READY, priority, 0
        elif state is DELAYED:
            model.jobs[ordinal] = DELAYED, priority, due - offset
    table = JobTable(model.table.jobs)
    runs = list(table.restart(offset, now))
    found = {first + index: job_id for ids, first in runs for index, job_id in enumerate(ids)}
    assert found == {ordinal: 100 + ordinal for ordinal in model.jobs}
    assert sum(len(ids) for ids, _ in runs) == len(found)
    model.table = table
    model.check(table)
    for ordinal in list(model.jobs)[:3]:  # jobs buried from now on come after those buried before
        job = table.jobs.get(ordinal)
        table.bury(job, 1)
        assert list(table.buried)[-1] == ordinal
        assert job.due == max(other.due for other in table.jobs if other.state is BURIED)


@each("without", [None, 3, 63, 64, 130])
def test_after_a_restart_with_full_pages_of_ready_jobs(without: int | None) -> None:
    table = JobTable()
    ordinals = [ordinal for ordinal in range(150) if ordinal != without]
    for ordinal in ordinals:
        table.add(Job(ordinal, 1000 + ordinal, 5000 - ordinal if ordinal > 64 else ordinal % 7 * 500, 0, 60, 77))
    again = JobTable(table.jobs)
    found = {first + index: job_id for ids, first in again.restart(5, 9) for index, job_id in enumerate(ids)}
    assert found == {ordinal: 1000 + ordinal for ordinal in ordinals}
    assert (again.counts, again.urgent) == (table.counts, table.urgent)
    assert 0 < again.urgent < len(ordinals)
    again.check()
    order = []
    while (job := again.head()) is not None:
        order.append((job.priority, job.ordinal))
        again.remove(job.ordinal, job.state, job.priority)
    assert order == sorted(order)
    assert len(order) == len(ordinals)


@each("moves", range(60, 75))
def test_few_entries_are_stale_when_jobs_leave_a_run(moves: int) -> None:
    model = Model()
    model.do("add_together", READY, 0, 0)
    model.do("add", READY, URGENT, 0)
    for more in range(1, moves):
        model.do(3, READY, URGENT + more, 0)  # each leaves a stale entry, which is not the first
    for due in range(1, 5):
        model.do("reserve", RESERVED, 0, due)
        model.check(model.table)


def test_jobs_that_leave_their_state_in_another_order_leave_nothing_behind() -> None:
    table = JobTable()
    for ordinal in range(300):
        table.add(Job(ordinal, 1 + ordinal, URGENT, 0, 60, 7))
    for ordinal in reversed(range(300)):
        table.remove(ordinal, READY, URGENT)
    table.check()
    assert len(table.order(READY)) < 100
