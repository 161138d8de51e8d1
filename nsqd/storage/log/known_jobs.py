"""Jobs as replay knows them: the rows of a tube, and what becomes of them when everything was read."""

from __future__ import annotations

from collections.abc import Callable

from nsqd.core.message.frame import numbers_of
from nsqd.core.recovery import RecoveredTube
from nsqd.core.sequence.puts import Terms
from nsqd.core.sequence.spans import united
from nsqd.core.work_queue.jobs import JobState, rows_on_terms
from nsqd.core.work_queue.jobs import unpack as unpack_row
from nsqd.storage.log.known import KnownChannel, KnownTopic
from nsqd.storage.log.recovered import RecoveredStore
from nsqd.storage.sequence import Sequence


def rows_of_publish(
    content: bytes, at: int, count: int, largest: int, terms: tuple[int, int, int], created: int, due: int
) -> list[bytes]:
    """Of messages that were put together, as they were then; their frames are in `content`, from `at` on."""
    state = JobState.DELAYED if due else JobState.READY
    return rows_on_terms(numbers_of(content, at, count, largest), *terms, created, due, state)


def owe_all(tube: KnownChannel, sequence: Sequence, end: int, holes: list[tuple[int, int]]) -> KnownChannel:
    """It owes all there is until its JOBS records are read: `settle` is done with the rest."""
    tube.edge, tube.floor = tube.cursor, tube.start
    for first, stop in holes:
        tube.finish(first, stop - first)
    for first, stop in tube.owed(end):
        for held, begin, upto in sequence.present_spans(first, stop):
            held.owe_one_more(begin, upto)
    return tube


def settle(store: RecoveredStore, topic: KnownTopic, tube: KnownChannel) -> int:
    """What the checkpoint's JOBS records had no row for is done with. Returns the tube's edge."""
    gone = []
    edge = topic.distributed
    for first, end in tube.owed(topic.distributed):
        for start, stop in store.present(topic.number, first, end):
            for ordinal in tube.jobs.absent(start, stop):
                if ordinal < tube.edge:
                    gone.append(ordinal)
                else:
                    edge = min(edge, ordinal)
    for ordinal in gone:
        tube.finish(ordinal, 1)
        store.finish(topic.number, 0, ordinal, 1)
    return edge


def recovered_tube(tube: KnownChannel, edge: int, offset: int) -> RecoveredTube:
    """The result. `edge`: as `settle` found it; `offset`: the log's clock's."""
    holes = united((max(first, edge), end) for first, end in sorted(tube.done.items()) if end > edge)
    return RecoveredTube(tube.number, tube.start, edge, holes, tube.jobs, tube.unsaid, offset)


def recovered_terms(topic: KnownTopic, monotonic: Callable[[int], int]) -> dict[int, Terms]:
    """Of all that was put and is no job yet."""
    found = {ordinal: terms._replace(due=monotonic(terms.due)) for ordinal, terms in topic.terms.items()}
    for ordinal, row in topic.rows.items():
        job = unpack_row(ordinal, row)
        found[ordinal] = Terms(job.priority, job.ttr, job.delay, monotonic(job.due), True)
    return found
