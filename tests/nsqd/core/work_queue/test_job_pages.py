"""Rows in packed pages against a dictionary of jobs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import ROW, Job, JobState, delayed_by, row_without_id, rows_from, unpack
from nsqd.core.work_queue.job_pages import PAGE, JobPages
from tests.effort import tries

LAST = 3 * PAGE
ORDINALS = st.integers(0, LAST - 1)
STATES = st.sampled_from(list(JobState))


def job_of(ordinal: int, state: JobState = JobState.READY, due: int = 0) -> Job:
    """A job whose id has its ordinal. The log had three node numbers."""
    return Job(ordinal, ordinal % 3 << 48 | 1000 + ordinal, 5, 1, 60, 77, due, 1, 2, 3, 4, 5, 0, 0, 6, state)


def rows_of(jobs: list[Job]) -> list[bytes]:
    return [job.pack() for job in jobs]


COMMANDS = st.lists(
    st.one_of(
        st.tuples(st.just("put_row"), ORDINALS, STATES),
        st.tuples(st.just("put_rows"), ORDINALS, st.integers(1, 150)),
        st.tuples(st.just("put_new"), ORDINALS, st.tuples(st.integers(1, 150), st.booleans())),
        st.tuples(st.just("put_one_by_one"), ORDINALS, st.integers(1, 20)),
        st.tuples(st.just("remove"), ORDINALS, st.none()),
        st.tuples(st.just("discard"), ORDINALS, st.integers(0, 150)),
        st.tuples(st.just("put_page"), st.integers(0, 2), st.lists(st.integers(0, PAGE - 1))),
    ),
    max_size=12,
)


def put_new(pages: JobPages, model: dict[int, Job], first: int, ids: list[int]) -> None:
    options = JobOptions(9, 60, 3, 88, True, 70, 2)
    pages.put_new(first, ids, options, 77, JobState.DELAYED)
    for ordinal, job_id in enumerate(ids, first):
        model[ordinal] = Job(ordinal, job_id, 9, 3, 60, 77, 88, ttl=70, copies=2, state=JobState.DELAYED)


def apply(pages: JobPages, model: dict[int, Job], command: tuple[str, int, object]) -> None:
    """Apply the same change to the pages and to the dictionary."""
    match command:
        case "put_row", ordinal, JobState() as state:
            model[ordinal] = job_of(ordinal, state)
            pages.put_row(ordinal, model[ordinal].pack())
        case "put_rows", first, int() as count:
            new = [job_of(ordinal) for ordinal in range(first, first + count)]
            model.update((job.ordinal, job) for job in new)
            pages.put_rows(first, rows_of(new))
        case "put_new", first, (int() as count, bool() as are_consecutive):
            nodes = [0 if are_consecutive else ordinal // 7 << 48 for ordinal in range(first, first + count)]
            put_new(pages, model, first, [node | 1000 + ordinal for ordinal, node in enumerate(nodes, first)])
        case "put_one_by_one", first, int() as count:
            for ordinal in range(first, first + count):
                put_new(pages, model, ordinal, [1000 + ordinal])
        case "remove", ordinal, None:
            if model.pop(ordinal, None) is not None:
                pages.remove(ordinal)
        case "discard", first, int() as count:
            for ordinal in range(first, first + count):
                model.pop(ordinal, None)
            pages.discard(first, first + count)
        case "put_page", number, list() as places:
            other = JobPages()
            for ordinal in range(number * PAGE, (number + 1) * PAGE):
                model.pop(ordinal, None)
            for place in places:
                job = model[number * PAGE + place] = job_of(number * PAGE + place, JobState.BURIED)
                other.put_row(job.ordinal, job.pack())
            pages.put_page(number, other.page(number) or bytes(PAGE * ROW.size))


@settings(max_examples=tries(30, in_short=20), deadline=None)
@given(commands=COMMANDS, first=ORDINALS, count=st.integers(0, 150), after=st.integers(990, 1000 + LAST))
def test_pages_are_a_dictionary(commands: list[tuple[str, int, object]], first: int, count: int, after: int) -> None:
    pages, copy, model = JobPages(), JobPages(), dict[int, Job]()
    for command in commands:
        apply(pages, model, command)
        pages.check()
        assert pages.count == len(model)
    ordinals = sorted(model)
    assert pages.ordinals() == ordinals
    assert list(pages) == [model[ordinal] for ordinal in ordinals]
    assert pages.end == (ordinals[-1] + 1 if ordinals else 0)
    assert pages.pages() == sorted({ordinal // PAGE for ordinal in ordinals})
    assert list(pages.absent(first, first + count)) == [one for one in range(first, first + count) if one not in model]
    for state in JobState:
        assert pages.states()[state] == sum(job.state is state for job in model.values())
        wanted = [one.ordinal for one in pages if one.state is state and one.ordinal >= first]
        assert [job.ordinal for job in pages.in_state(state, first)] == wanted
    assert [one for one in ordinals if one >= pages.behind(after)] == [one for one in ordinals if 1000 + one > after]
    for ordinal in (first, first + count):
        assert pages.get(ordinal) == model.get(ordinal)
        assert (ordinal in pages) == (ordinal in model)
    for number in pages.pages():
        copy.put_page(number, pages.page(number))
    copy.check()
    assert list(copy) == list(pages)
    assert pages.page(99) == b""


def test_a_row_is_what_was_packed_or_delayed() -> None:
    job = job_of(3, JobState.DELAYED, 99)
    assert len(job.pack()) == ROW.size == 67
    assert unpack(3, b"xx" + job.pack(), 2) == job
    for state, due, by, then in (
        (JobState.RESERVED, 99, 1, 100), (JobState.DELAYED, 99, 1 << 60, 99 + (1 << 60)),
        (JobState.BURIED, 99, 1, 99), (JobState.READY, 0, 1, 0),  # a burial's number is no time, and 0 is none
    ):  # fmt: skip
        assert delayed_by(job_of(0, state, due).pack(), by) == job_of(0, state, then).pack()
    rows = rows_from([4, 6], row_without_id(JobOptions(9, 60, 3, 88, True, 70, 2), 77, JobState.DELAYED))
    assert [unpack(0, row) for row in rows] == [
        Job(0, number, 9, 3, 60, 77, 88, ttl=70, copies=2, state=JobState.DELAYED) for number in (4, 6)
    ]
