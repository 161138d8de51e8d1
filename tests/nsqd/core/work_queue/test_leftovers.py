"""What a deleted tube leaves is released step by step, every message once."""

from nsqd.core.work_queue import leftovers
from tests.nsqd.core.work_queue.test_tube import Bench


def test_jobs_and_messages_that_are_no_jobs_yet_are_released_once_each() -> None:
    bench = Bench(published=3000)
    tube = bench.tube
    jobs = tube.jobs.count  # no more become jobs in one turn
    assert 0 < jobs < 3000
    steps = list(
        leftovers.release_jobs(tube.table, tube.arrivals.give_up(), bench.index, tube.number, bench.journal)  # type: ignore[arg-type]
    )
    assert len(steps) > 2
    assert sorted(bench.journal.released) == list(range(3000))
    assert len(bench.index) == 0
