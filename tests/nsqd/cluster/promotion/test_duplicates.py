"""A node counts the messages that may be delivered twice because a log has changed its leader."""

from collections import Counter

from nsqd.cluster.promotion.duplicates import REASONS, FailoverFigures, delivered_before, of_return
from nsqd.core.channel.state import ChannelState
from nsqd.core.reader_state import ReaderState
from nsqd.core.sequence.finished import Finished
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.deferred import pack
from nsqd.core.timing.deferred_pages import DeferredPages, page_of
from nsqd.core.topic_state import TopicState
from nsqd.core.work_queue.job import JobState
from nsqd.core.work_queue.job_pages import JobPages
from nsqd.core.work_queue.state import TubeState
from nsqd.storage.log.parent import Parent
from nsqd.storage.log.succession import Succession

NONE = dict.fromkeys(REASONS, 0)


def channel(*waiting: tuple[int, int, int]) -> ChannelState:
    """A channel that was given messages up to 9; `waiting` are (ordinal, attempts, due) of a checkpoint."""
    pages = DeferredPages([page_of(b"".join(pack(ordinal, due, attempts) for ordinal, attempts, due in waiting))])
    return ChannelState(2, "c", 0, 10, Finished(0, [(0, 5)]), pages=pages)


def test_what_was_delivered_and_is_ready_is_counted_and_what_waits_for_a_time_is_not() -> None:
    state = channel((0, 1, 0), (1, 3, 0), (2, 2, 7), (3, 0, 0), (4, 0, 9))
    state.returned |= {20: (1, 0), 21: (0, 5), 22: (4, 5)}
    assert state.delivered() == 3
    state.conclude(10, {}, lambda first, end: [(first, end, False)])  # 5 to 9 were delivered and not finished
    assert state.delivered() == 3 + 5


def test_jobs_that_workers_had_are_counted() -> None:
    jobs = JobPages()
    for at, state in enumerate(
        (JobState.READY, JobState.RESERVED, JobState.RESERVED, JobState.BURIED, JobState.DELAYED)
    ):
        jobs.put_new(at, [at + 1], JobOptions(0, 60, 0, 0, True), 0, state)
    tube = TubeState(3, "t", 0, 5, Finished(0), jobs, {})
    readers: dict[int, ReaderState] = {2: channel((0, 1, 0)), 3: tube}
    assert delivered_before([TopicState(1, "t", readers=readers)]) == 3


def test_a_clean_failover_counts_what_was_delivered_and_an_unclean_one_everything_once() -> None:
    figures = FailoverFigures()
    assert figures.figures() == {"last_seconds": None, "possible_duplicates": NONE}
    figures.failed_over(1.5, 4, 100, is_clean=True)
    assert figures.figures() == {"last_seconds": 1.5, "possible_duplicates": NONE | {"ready_again": 4}}
    figures.failed_over(0.5, 1, 10, is_clean=False)
    assert figures.figures() == {"last_seconds": 0.5, "possible_duplicates": NONE | {"ready_again": 5, "unclean": 9}}


def test_what_was_delivered_before_it_was_salvaged_is_counted() -> None:
    figures = FailoverFigures()
    figures.salvaged(3)
    assert figures.figures()["possible_duplicates"] == NONE | {"salvaged": 3}


def test_a_return_counts_finishes_that_the_leader_lacks_and_what_moved() -> None:
    dropped = Counter(FINISH=3, REQUEUE=9)
    made = Succession(bytes(16), Parent(bytes(16), 0, {}), 0, 1, 7, dropped, is_exact=True)
    assert of_return(made, True) == Counter(untold=3, moved=7)
    assert of_return(made, False) == Counter(untold=3, moved_all=7)
