"""Jobs as replay knows them: the rows of a tube, and what becomes of them when everything was read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nsqd.core.frame import STAMP, message_id
from nsqd.core.jobs import Job, JobState, due_of, with_due
from nsqd.core.jobs import unpack as unpack_row
from nsqd.core.recovery import RecoveredTube
from nsqd.core.spans import united
from nsqd.core.tube import Terms
from nsqd.storage.log.known import KnownChannel, KnownTopic
from nsqd.storage.memory import MemoryStore
from nsqd.storage.sequence import Sequence


def row_of_put(ordinal: int, frame: bytes, terms: tuple[int, int, int], due: int) -> bytes:
    """Of a message that was put, as it was then; `frame` is followed by others."""
    priority, ttr, delay = terms
    created = int.from_bytes(frame[STAMP], "big")
    job = Job(ordinal, int(message_id(frame)[4:], 16), priority, delay, ttr, created, due)
    job.state = JobState.DELAYED if due else JobState.READY
    return job.pack()


def owe_all(tube: KnownChannel, sequence: Sequence, end: int, holes: list[tuple[int, int]]) -> KnownChannel:
    """It owes all there is until its JOBS records are read: `settle` is done with the rest."""
    tube.edge, tube.floor = tube.cursor, tube.start
    for first, stop in holes:
        tube.finish(first, stop - first)
    for first, stop in tube.owed(end):
        for held, begin, upto in sequence.present_spans(first, stop):
            held.owe_one_more(begin, upto)
    return tube


def settle(store: MemoryStore, topic: KnownTopic, tube: KnownChannel) -> int:
    """What the checkpoint's JOBS records had no row for is done with. Returns the tube's edge."""
    gone = []
    edge = topic.distributed
    for first, end in tube.owed(topic.distributed):
        for start, stop in store.present(topic.number, first, end):
            for ordinal in range(start, stop):
                if ordinal in tube.rows:
                    continue
                if ordinal < tube.edge:
                    gone.append(ordinal)
                else:
                    edge = min(edge, ordinal)
    for ordinal in gone:
        tube.finish(ordinal, 1)
        store.finish(topic.number, 0, ordinal, 1)
    return edge


def recovered_tube(tube: KnownChannel, edge: int, monotonic: Callable[[int], int]) -> RecoveredTube:
    """The result. `edge`: as `settle` found it; `monotonic`: a due of the log's, as the core counts."""
    holes = united((max(first, edge), end) for first, end in sorted(tube.done.items()) if end > edge)
    dues = ((ordinal, row, due_of(row)) for ordinal, row in tube.rows.items())
    rows = {ordinal: with_due(row, monotonic(due)) if due else row for ordinal, row, due in dues}
    buried = [ordinal for ordinal, row in tube.rows.items() if row[-1] == JobState.BURIED]
    buried.sort(key=lambda ordinal: due_of(tube.rows[ordinal]))
    return RecoveredTube(tube.number, tube.start, edge, holes, rows, buried)


def recovered_terms(topic: KnownTopic, monotonic: Callable[[int], int]) -> dict[int, Terms]:
    """Of all that was put and is no job yet."""
    found = {ordinal: replace(terms, due=monotonic(terms.due)) for ordinal, terms in topic.terms.items()}
    for ordinal, row in topic.rows.items():
        job = unpack_row(ordinal, row)
        found[ordinal] = Terms(job.priority, job.ttr, job.delay, monotonic(job.due), True)
    return found
