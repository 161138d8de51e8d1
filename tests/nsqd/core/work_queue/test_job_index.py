"""Where jobs are, by number, against a dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.work_queue.job_index import JobIndex

IDS = st.one_of(st.integers(0, 200), st.integers((7 << 48) - 70, (7 << 48) + 70))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("came"), st.lists(IDS, min_size=1, max_size=1)),
            st.tuples(st.just("together"), st.lists(IDS, min_size=1, max_size=5, unique=True)),
            st.tuples(st.just("run"), st.tuples(IDS, st.integers(1, 150)).map(lambda run: [*range(run[0], sum(run))])),
            st.tuples(st.just("went"), st.lists(IDS, min_size=1, max_size=9)),
        ),
        max_size=9,
    )
)
def test_the_index_is_a_dictionary(commands: list[tuple[str, list[int]]]) -> None:
    index: JobIndex[str] = JobIndex(has_whole_ids=True)
    index.holders.update({3: "three", 4: "four"})
    model: dict[int, tuple[str, int]] = {}
    first = 0
    for verb, ids in commands:
        fresh = sorted(job_id for job_id in ids if job_id not in model)
        number = 3 + len(ids) % 2
        if verb == "went":
            for job_id in ids:
                if model.pop(job_id, None) is not None:
                    index.remove_job(job_id)
        elif verb == "came":
            for job_id in fresh:
                index.add_job(job_id, number, first)
                model[job_id] = index.holders[number], first
        elif fresh:
            index.add_jobs(fresh, number, first)
            model.update((job_id, (index.holders[number], first + at)) for at, job_id in enumerate(fresh))
        first += len(ids)
        index.check()
        assert len(index) == len(model)
        for job_id in (*ids, 0, 201, 1 << 64, 10**30):
            assert index.find(job_id) == model.get(job_id)
    for job_id, found in model.items():
        assert index.find(job_id) == found


def test_a_job_is_named_by_its_sequence_whichever_number_its_node_had_or_by_its_whole_id() -> None:
    index: JobIndex[str] = JobIndex()
    index.holders[3] = "three"
    ids = [900 << 48 | 1, 900 << 48 | 2, 5 << 48 | 3, 900 << 48 | 4, 5 << 48 | 5, 5 << 48 | 6]
    index.add_jobs(ids, 3, 70)
    assert [index.client_id(job_id) for job_id in ids] == [1, 2, 3, 4, 5, 6]
    assert [index.find(number) for number in range(8)] == [None, *(("three", 69 + n) for n in range(1, 7)), None]
    assert index.find(ids[0]) is None
    index.remove_job(ids[3])
    assert index.find(4) is None
    index = JobIndex(has_whole_ids=True)
    index.holders[3] = "three"
    ids = [5 << 48 | 1, 9 << 48 | 1000, 5 << 48 | 3]
    index.add_jobs(ids, 3, 70)
    assert [index.client_id(job_id) for job_id in ids] == ids
    assert [index.find(job_id) for job_id in (*ids, 1)] == [("three", 70), ("three", 71), ("three", 72), None]
    assert index.sequence(ids[1]) == 1000
