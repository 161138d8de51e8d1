"""States of topics in a normal form: the fields on which two states must agree, and nothing else."""

from dataclasses import dataclass

from nsqd.core.channel.buried import DeadLetter
from nsqd.core.channel.state import ChannelState
from nsqd.core.reader_state import ReaderState
from nsqd.core.retention.cursors import Cursor
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.pause import Pause
from nsqd.core.topic_state import TopicState
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.state import TubeState
from nsqd.storage.sequence import Sequence
from shared.topic_config import TopicConfig


@dataclass(frozen=True)
class NormalChannel:
    name: str
    paused: Pause | None
    start: int
    ready: list[int]  # ordinals that the cursor will come by
    waiting: dict[int, tuple[int, int]]  # ordinal -> deliveries it had, due; 0: now
    buried: list[tuple[bytes, DeadLetter]]  # the first buried first


@dataclass(frozen=True)
class NormalTube:
    start: int
    paused: Pause | None
    jobs: dict[int, Job]
    coming: dict[int, JobOptions]  # messages that are no jobs yet


@dataclass(frozen=True)
class NormalTopic:
    name: str
    paused: Pause | None
    end: int
    distributed: int
    config: TopicConfig
    cursors: dict[str, Cursor]
    delayed: dict[int, int]  # ordinal -> due, of those at or past the edge
    queued: dict[int, int]  # ordinal -> due, of those before the edge that a channel waits for
    readers: dict[int, NormalChannel | NormalTube]
    keys: dict[str, int]
    producers: dict[str, int]
    pending: dict[str, tuple[int, int]]
    owed: dict[int, int]  # number of readers, of unfinished messages


def normal(state: TopicState, sequence: Sequence, now: int, ephemeral: bool) -> NormalTopic:
    """Return a settled state at `now` by its clock. `ephemeral`: readers that are not logged have unfinished messages."""
    return NormalTopic(
        name=state.name, paused=state.paused, end=state.end, distributed=state.distributed, config=state.config,
        cursors=state.cursors, delayed={ordinal: due if due > now else 0 for ordinal, due in state.delayed.items()},
        queued={} if ephemeral else {
            ordinal: due for ordinal, due, _ in sorted(state.waiting.entries()) if due > now and ordinal >= _start(state)
        },
        readers={number: _reader(reader, state.distributed, sequence, now) for number, reader in state.readers.items()},
        keys=dict(state.publishers.keys), producers=dict(state.publishers.producers),
        pending={} if ephemeral else {
            key: one for key, one in state.publishers.pending.items() if sequence.is_pending(one[0])
        },
        owed={} if ephemeral or not state.readers else _owed(sequence, state.distributed),
    )  # fmt: skip


def _start(state: TopicState) -> int:
    """Return the ordinal before which only tubes begin. Whether their jobs are in the queue depends on ephemeral channels."""
    return min([one.start for one in state.readers.values() if not one.has_own_times], default=state.distributed)


def _reader(reader: ReaderState, distributed: int, sequence: Sequence, now: int) -> NormalChannel | NormalTube:
    if isinstance(reader, ChannelState):
        return _channel(reader, distributed, sequence, now)
    assert isinstance(reader, TubeState)
    return _tube(reader, distributed, sequence, now)


def _channel(state: ChannelState, distributed: int, sequence: Sequence, now: int) -> NormalChannel:
    plain = {ordinal for first, end in sequence.plain(state.cursor, distributed) for ordinal in range(first, end)}
    passed = {ordinal for first, end in state.passed.spans(state.cursor) for ordinal in range(first, end)}
    waiting = {ordinal: (attempts, due) for ordinal, due, attempts in state.pages.entries()} | state.returned
    return NormalChannel(
        name=state.name, paused=state.paused, start=state.start, ready=sorted(plain - passed),
        waiting={one: (attempts, due if due > now else 0) for one, (attempts, due) in sorted(waiting.items())},
        buried=list(state.buried.values()),
    )  # fmt: skip


def _tube(state: TubeState, distributed: int, sequence: Sequence, now: int) -> NormalTube:
    owed = [
        ordinal
        for first, end in state.finished.missing(distributed)
        for start, stop, _ in sequence.kinds(first, end)
        for ordinal in range(start, stop)
    ]
    jobs = {job.ordinal: _job(job, now) for job in state.jobs}
    coming = {ordinal: _terms(state.options.get(ordinal, JobOptions()), now) for ordinal in owed if ordinal not in jobs}
    ahead = {ordinal: _terms(one, now) for ordinal, one in state.options.items() if ordinal >= distributed}
    coming |= {ordinal: one for ordinal, one in ahead.items() if one != JobOptions()}
    return NormalTube(state.start, state.paused, jobs, coming)


def _terms(options: JobOptions, now: int) -> JobOptions:
    return options._replace(due=options.due if options.due > now else 0, was_put=False)


def _job(job: Job, now: int) -> Job:
    if job.state is JobState.DELAYED and job.due <= now:
        job.state, job.due = JobState.READY, 0
    return job


def _owed(sequence: Sequence, distributed: int) -> dict[int, int]:
    found = {}
    for held in sequence.live():
        for index, count in enumerate(held.large_refcounts if held.large_refcounts is not None else held.refcounts):
            if count and held.first + index < distributed:
                found[held.first + index] = count
    return found
