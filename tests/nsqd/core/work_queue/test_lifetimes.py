"""When jobs go, against a dictionary of times."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import JobState
from nsqd.core.work_queue.job_pages import PAGE, JobPages
from nsqd.core.work_queue.lifetimes import Lifetimes
from shared.values import SECOND
from tests.effort import tries

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 100), st.integers(0, 9)),
        st.tuples(st.just("remove"), st.integers(0, 300), st.integers(1, 90)),
        st.tuples(st.just("over"), st.integers(0, 3), st.integers(1, 90)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=tries(40), deadline=None)
@given(moves=MOVES)
def test_jobs_go_when_their_time_is_over(moves: list[tuple[str, int, int]]) -> None:
    jobs, model, end, now = JobPages(), dict[int, int](), 0, 1
    lifetimes = Lifetimes(jobs)
    for verb, number, more in moves:
        if verb == "put":
            options = JobOptions(ttl=more)
            jobs.put_new(end, list(range(end + 1, end + 1 + number)), options, now * SECOND, JobState.READY)
            if more:
                lifetimes.record(end, number, now + more)
                model.update(dict.fromkeys(range(end, end + number), now + more))
            end += number
        elif verb == "remove":
            jobs.discard(number, number + more)
            for ordinal in range(number, number + more):
                model.pop(ordinal, None)
        elif verb == "over":
            now += number
            wanted = {ordinal for ordinal, at in model.items() if at <= now}
            over = lifetimes.over(now, more)
            assert len(set(over)) == len(over) == min(more, len(wanted))
            assert set(over) <= wanted
            for ordinal in over:
                jobs.remove(ordinal)
                del model[ordinal]
        else:
            lifetimes = Lifetimes(jobs)
            lifetimes.restart()
        lifetimes.check()
        first = lifetimes.next()
        assert not model or (first is not None and first <= min(model.values()))


def test_pages_that_are_gone_are_forgotten() -> None:
    jobs = JobPages()
    lifetimes = Lifetimes(jobs)
    for page in range(300):
        first = page * PAGE
        jobs.put_new(first, list(range(1 + first, 1 + first + PAGE)), JobOptions(ttl=5), page * SECOND, JobState.READY)
        lifetimes.record(first, PAGE, page + 5)
        jobs.discard(first, first + PAGE)
    lifetimes.check()
    assert len(lifetimes._heap) < 100
    assert lifetimes.over(1 << 40, 9) == []
    assert lifetimes.next() is None
