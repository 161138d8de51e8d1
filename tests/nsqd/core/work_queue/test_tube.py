"""A tube alone: jobs made of messages, records in the log, and actions on jobs."""

from random import Random

import pytest

from nsqd.core.limits import Limits
from nsqd.core.message.frame import encode_one
from nsqd.core.message.ids import IdSource
from nsqd.core.reader import DistributedBatch, Parts, ReaderSettings
from nsqd.core.sequence.mark import Mark
from nsqd.core.sequence.offsets import TopicOffsets
from nsqd.core.sequence.put_batch import JobOptions, PutBatch
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.deferred import Message
from nsqd.core.work_queue.job import Job, JobState, unpack
from nsqd.core.work_queue.job_index import JobIndex
from nsqd.core.work_queue.job_pages import JobPages
from nsqd.core.work_queue.job_table import URGENT
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.tube_list import TubeList
from nsqd.core.work_queue.waiters import Reading, Waiters
from nsqd.core.work_queue.worker import Worker
from shared.values import SECOND
from tests.cases import each
from tests.nsqd.core.work_queue.test_arrivals import Extents
from tests.nsqd.core.work_queue.test_waiters import Hand

READY, RESERVED, BURIED, DELAYED = JobState
NOW = 1000 * SECOND


class Journal:
    """Remembers the records. Implements what a tube uses of ReaderJournal."""

    def __init__(self) -> None:
        self.rows: dict[int, Job] = {}  # the last of each job
        self.finished: list[int] = []
        self.emptied = 0  # the end of what was emptied
        self.released: list[int] = []
        self.dropped = False
        self.mark = Mark("durable")

    def job(self, ordinal: int, row: bytes) -> None:
        self.rows[ordinal] = unpack(ordinal, row)

    def promise(self) -> tuple[Mark, ...]:
        return (self.mark,)

    def finish(self, first: int, count: int) -> None:
        self.finished += range(first, first + count)

    def finish_all(self, end: int) -> None:
        self.emptied = end

    def release(self, first: int, end: int) -> None:
        self.released += range(first, end)

    def drop(self) -> None:
        self.dropped = True


class Bench:
    """A topic's part, and a tube on it. Messages are put or published, all on the spot."""

    def __init__(self, max_attempts: int = 0) -> None:
        self.offsets, self.extents, self.journal = TopicOffsets(1), Extents([]), Journal()
        self.agenda, self.ids = Agenda(), IdSource(0, 1, lambda ceiling: True)
        self.agenda.now = NOW
        self.index: JobIndex[Tube] = JobIndex()
        self.waiters: Waiters[Tube] = Waiters()
        self.listed = TubeList()
        parts = Parts(
            "t",
            9,
            self.offsets,
            self.extents,
            self.journal,
            self.agenda,
            Limits(),
            ReaderSettings(max_attempts),
            Random(1).randrange,
        )  # type: ignore[arg-type]
        self.tube = Tube(parts, self.index, self.waiters, self.listed)
        self.index.holders[9] = self.waiters.queues["t"] = self.tube

    def _append(self, frames: list[bytes]) -> int:
        first = self.offsets.end
        self.extents.frames += frames
        self.offsets.end = self.offsets.distributed = first + len(frames)
        return first

    def publish(self, count: int = 1) -> None:
        """Publish messages as a client of NSQ does."""
        frames = [encode_one(b"%d" % number, self.ids.issue_id(), 77) for number in range(count)]
        first = self._append(frames)
        self.tube.extend(DistributedBatch(first, self.offsets.end, count, 0, None))

    def put(self, *bodies: bytes, priority: int = 5, delay: int = 0, ttr: int = 60, ttl: int = 0) -> list[Job]:
        """Put a job as a client does that has options."""
        due = NOW + delay * SECOND if delay else 0
        put_batch = PutBatch(JobOptions(priority, ttr, delay, due, True, ttl), 77)
        put_batch.add(list(bodies), self.ids)
        first = put_batch.first = self._append(put_batch.encode()[0])
        self.tube.extend(DistributedBatch(first, self.offsets.end, len(bodies), 0, put_batch))
        return [self.job(ordinal) for ordinal in range(first, self.offsets.end)]

    def job(self, ordinal: int) -> Job:
        return self.tube.jobs.get(ordinal)

    def worker(self) -> tuple[Worker, Hand]:
        hand = Hand()
        worker = Worker(hand)
        worker.watching.add("t")
        return worker, hand

    def resume(self, jobs: list[Job], position: int, holes: list[tuple[int, int]], offset: int = 0) -> None:
        pages = JobPages()
        for job in jobs:
            pages.put_row(job.ordinal, job.pack())
        self.tube.resume(0, position, holes, pages, offset)

    def check(self) -> None:
        self.tube.check()
        self.index.check()
        self.waiters.check()
        self.listed.check()
        assert len(self.index) == self.tube.jobs.count
        due = self.tube.next_due()
        assert due is None or (self.tube.scan_entry is not None and self.tube.scan_entry[0] <= due)


def test_messages_become_jobs_and_only_published_ones_are_recorded() -> None:
    bench = Bench()
    put = bench.put(b"a", b"b", priority=URGENT - 1)
    assert not bench.journal.rows  # the record of the publish says that they are jobs
    bench.publish()
    assert [(job.id, job.priority, job.ttr, job.state) for job in bench.tube.jobs] == [
        (1, URGENT - 1, 60, READY), (2, URGENT - 1, 60, READY), (3, 65_536, 60, READY),
    ]  # fmt: skip
    assert bench.journal.rows == {2: bench.job(2)}
    assert bench.tube.table.urgent == 2
    assert bench.tube.total == 3
    assert bench.tube.body(put[1]) == b"b"
    assert list(bench.listed.names) == ["t"]
    bench.check()


def test_terms_of_what_was_held_back_count_when_it_comes_and_a_delay_at_the_topic_is_none() -> None:
    bench = Bench()
    bench.tube.expect(0, 1, JobOptions(7, 30, 0, 0, True))
    bench.tube.expect(1, 1, JobOptions(8, 30, 9, NOW + 9 * SECOND, True))
    bench.tube.expect(2, 1, JobOptions(9, 30, 9, NOW, True))  # its delay is over
    bench.publish(4)
    assert [(job.priority, job.ttr, job.state, job.due) for job in bench.tube.jobs] == [
        (7, 30, READY, 0), (8, 30, DELAYED, NOW + 9 * SECOND), (9, 30, READY, 0), (65_536, 60, READY, 0),
    ]  # fmt: skip
    assert not bench.tube.arrivals.options
    bench.check()
    bench = Bench()
    bench._append([encode_one(b"a", bench.ids.issue_id(), 77)] * 2)
    bench.tube.extend(DistributedBatch(0, 2, 0, 2, None))
    assert bench.tube.delayed == 2
    bench.tube.release(Message(0, 0))
    bench.tube.own(NOW, Message(1, 0), NOW)
    assert bench.tube.delayed == 0
    assert [job.state for job in bench.tube.jobs] == [READY, READY]


def test_a_reservation_is_the_workers_until_its_time_is_over() -> None:
    bench = Bench()
    (job,) = bench.put(b"a")
    worker, _ = bench.worker()
    bench.tube.reserve(job, worker, NOW)
    assert bench.tube.reserved == {0: worker}
    assert worker.holds == {(9, 0): NOW + 60 * SECOND}
    assert bench.journal.rows[0] == bench.job(0)
    assert (job.state, job.reserves, job.due) == (RESERVED, 1, NOW + 60 * SECOND)
    bench.tube.touch(job, worker, NOW + 30 * SECOND)
    assert (job.reserves, job.due) == (1, NOW + 90 * SECOND)
    assert worker.holds == {(9, 0): NOW + 90 * SECOND}
    bench.check()
    assert bench.tube.scan(NOW + 60 * SECOND, 10) == 0
    assert bench.tube.scan(NOW + 90 * SECOND, 10) == 1
    found = bench.job(0)
    assert (found.state, found.timeouts, found.due) == (READY, 1, 0)
    assert (bench.tube.reserved, worker.holds, bench.listed.timeouts) == ({}, {}, 1)
    bench.check()


def test_what_may_become_of_a_reserved_job() -> None:
    bench = Bench()
    jobs = bench.put(b"a", b"b", b"c", b"d", b"e")
    worker, _ = bench.worker()
    for job in jobs:
        bench.tube.reserve(job, worker, NOW)
    unreserved, released, delayed, buried, finished = jobs
    bench.tube.unreserve(unreserved)
    bench.tube.hand_back(released, 3, 0, NOW)
    bench.tube.hand_back(delayed, 4, 2, NOW)
    bench.tube.bury(buried, 6)
    bench.tube.finish(finished)
    assert [(job.state, job.priority, job.due, job.delay, job.releases, job.buries) for job in bench.tube.jobs] == [
        (READY, 5, 0, 0, 0, 0), (READY, 3, 0, 0, 1, 0), (DELAYED, 4, NOW + 2 * SECOND, 2, 1, 0), (BURIED, 6, 1, 0, 0, 1),
    ]  # fmt: skip
    assert bench.journal.finished == [4]
    assert list(bench.tube.jobs) == [bench.journal.rows[ordinal] for ordinal in range(4)]
    assert not worker.holds
    assert bench.index.find(finished.id) is None
    for ordinal in (2, 3):
        bench.tube.kick(bench.job(ordinal))
        assert (bench.job(ordinal).state, bench.job(ordinal).kicks, bench.job(ordinal).due) == (READY, 1, 0)
    bench.check()


@each("how", ["released", "timed out"])
def test_a_job_that_was_reserved_too_often_is_buried(how: str) -> None:
    bench = Bench(max_attempts=2)
    (job,) = bench.put(b"a")
    worker, _ = bench.worker()
    for expected in (READY, BURIED):
        bench.tube.reserve(job, worker, NOW)
        if how == "released":
            bench.tube.hand_back(job, 3, 1 if expected is BURIED else 0, NOW)
        else:
            assert bench.tube.scan(NOW + 60 * SECOND, 10) == 1
        job = bench.job(0)
        assert job.state is expected
    assert (job.releases, job.timeouts) == ((2, 0) if how == "released" else (0, 2))
    assert (job.buries, job.delay) == (1, 0)
    bench.check()


def test_a_job_from_elsewhere_keeps_what_happened_to_it_there() -> None:
    bench = Bench()
    bench.put(b"a", b"b")
    bench.put(b"c", delay=4)
    bench.tube.amend(0, (1, 2, 3, 4, 5), True)
    bench.tube.amend(1, (6, 7, 8, 9, 10), False)
    bench.tube.amend(2, (0, 0, 1, 0, 0), False)
    counts = [(job.reserves, job.timeouts, job.releases, job.buries, job.kicks) for job in bench.tube.jobs]
    assert counts == [(1, 2, 3, 4, 5), (6, 7, 8, 9, 10), (0, 0, 1, 0, 0)]
    assert [(job.state, job.due) for job in bench.tube.jobs] == [(BURIED, 1), (READY, 0), (DELAYED, NOW + 4 * SECOND)]
    bench.tube.bury(bench.job(1), 0)
    assert list(bench.tube.table.buried) == [0, 1]
    assert list(bench.tube.jobs) == [bench.journal.rows[ordinal] for ordinal in range(3)]
    bench.check()


def test_messages_that_are_not_for_the_tube_never_become_jobs() -> None:
    bench = Bench()
    bench.put(b"a", b"b")
    first = bench._append([encode_one(b"only for a channel", bench.ids.issue_id(), 77)] * 2)
    bench.tube.skip(first, first + 2, 2)
    bench.put(b"c")
    assert [job.ordinal for job in bench.tube.jobs] == [0, 1, 4]
    assert bench.tube.arrivals.position == 5
    bench.tube.skip(0, 3, 0)  # an operator has finished them: those that are jobs are gone, and the log knows
    assert [job.ordinal for job in bench.tube.jobs] == [4]
    assert not bench.journal.finished
    bench.check()


def test_what_is_on_disk_becomes_a_job_when_it_was_read() -> None:
    bench = Bench()
    bench.extents.on_disk = {0}
    bench.publish(4)
    assert bench.tube.reading
    bench.put(b"x")
    assert [job.ordinal for job in bench.tube.jobs] == [4]
    assert bench.tube.arrivals.position == 0
    bench.extents.on_disk.clear()
    bench.tube.read_completed()
    assert [job.ordinal for job in bench.tube.jobs] == [0, 1, 2, 3, 4]
    assert not bench.tube.reading
    assert bench.tube.arrivals.is_complete
    assert bench.tube.total == 5
    bench.check()


def test_a_body_is_read_or_waited_for_or_corrupt() -> None:
    bench = Bench()
    job, corrupt = bench.put(b"a", b"b")
    worker, hand = bench.worker()
    bench.extents.on_disk = {0}
    with pytest.raises(Reading) as reading:
        bench.tube.body(job)
    assert reading.value.queue is bench.tube
    bench.waiters.block(worker, bench.tube)
    bench.extents.on_disk.clear()
    bench.tube.read_completed()
    assert hand.asked_again == 1
    assert bench.tube.body(job) == b"a"
    bench.extents.frames[1] = None
    assert bench.tube.body(corrupt) is None
    assert [one.ordinal for one in bench.tube.jobs] == [0]
    bench.extents.frames[0] = None
    assert bench.tube.body(job) is None
    bench.check()


def test_a_pause_ends_in_time_and_waiting_workers_are_served() -> None:
    bench = Bench()
    worker, hand = bench.worker()
    bench.tube.pause_for(5 * SECOND, NOW)
    bench.put(b"1")
    bench.waiters.wait(worker)
    bench.tube.serve(NOW)
    assert not hand.got
    assert (bench.tube.next_due(), bench.tube.pause_asked) == (NOW + 5 * SECOND, 5 * SECOND)
    bench.check()
    assert bench.tube.scan(NOW + 5 * SECOND - 1, 10) == 0
    bench.agenda.awake.clear()
    assert bench.tube.scan(NOW + 5 * SECOND, 10) == 1
    assert (bench.tube.pause_until, bench.tube.pause_asked) == (0, 0)
    assert bench.tube in bench.agenda.awake
    bench.tube.serve(NOW + 5 * SECOND)
    assert hand.got == [1]
    for seconds, due in ((90, 65), (3, 3)):  # the earlier of a job and a pause
        bench.tube.pause_for(seconds * SECOND, NOW)
        assert bench.tube.next_due() == NOW + due * SECOND
    bench.tube.pause_for(0, NOW)
    assert bench.tube.pause_until == 0
    bench.check()


def test_deleted_everything_is_released_also_what_is_no_job_yet_and_nothing_is_left_behind() -> None:
    bench = Bench()
    (worker, hand), (blocked, notified) = bench.worker(), bench.worker()
    bench.put(b"a", b"b", b"c", b"d")
    bench.tube.reserve(bench.job(0), worker, NOW)
    bench.tube.bury(bench.job(1), 0)
    bench.extents.on_disk = {1}
    bench.publish(4)
    bench.tube.skip(6, 7, 0)
    bench.put(b"e")
    assert [job.ordinal for job in bench.tube.jobs] == [0, 1, 2, 3, 8]
    bench.tube.delayed = 1  # in the topic's delay queue; it is not released to readers that begin after it
    bench.waiters.block(blocked, bench.tube)
    bench.tube.delete()
    assert (bench.tube.delayed, bench.tube.deleted, bench.journal.dropped, bench.journal.emptied) == (0, True, True, 9)
    assert not worker.holds
    assert not bench.index.holders
    assert not bench.waiters.queues
    assert not len(bench.listed.names)
    assert (hand.asked_again, notified.asked_again) == (0, 1)
    bench.agenda.reclaimer.finish()
    assert sorted(bench.journal.released) == [0, 1, 2, 3, 4, 5, 7, 8]
    assert (bench.tube.jobs.count, bench.tube.start, bench.tube.arrivals.position) == (0, 9, 9)
    assert not len(bench.index)
    bench.index.check()


def test_after_a_restart_jobs_are_as_they_were_but_not_reserved() -> None:
    bench = Bench()
    bench._append([encode_one(b"%d" % number, bench.ids.issue_id(), 77) for number in range(10)])
    jobs = [
        Job(0, 1, 5, 0, 60, 77),
        Job(2, 3, 5, 0, 60, 77, due=NOW + 100, reserves=1, state=RESERVED),
        Job(3, 4, 5, 0, 60, 77, due=NOW + 150, state=DELAYED),
        Job(4, 5, 5, 0, 60, 77, due=NOW + 50, state=DELAYED),
        Job(7, 8, 5, 0, 60, 77, due=12, state=BURIED),
        Job(6, 7, 5, 0, 60, 77, due=13, state=BURIED),  # it is past the position
        Job(9, 10, 5, 0, 60, 77),
    ]
    bench.resume(jobs, 5, [(5, 6)], 50)
    bench.tube.finish(bench.job(9))  # it is finished before the position reaches it, and is not recreated
    bench.tube.wake()
    assert [(job.ordinal, job.state, job.due) for job in bench.tube.jobs] == [
        (0, READY, 0), (2, READY, 0), (3, DELAYED, NOW + 100), (4, READY, 0), (6, BURIED, 13), (7, BURIED, 12),
        (8, READY, 0),
    ]  # fmt: skip
    assert list(bench.tube.table.buried) == [7, 6]
    assert set(bench.journal.rows) == {8}  # messages that were no jobs yet
    assert list(bench.listed.names) == ["t"]
    bench.check()


def test_after_a_restart_with_a_lower_limit_what_failed_so_often_is_buried_instead_of_reserved() -> None:
    bench = Bench(max_attempts=3)
    bench._append([encode_one(b"a", bench.ids.issue_id(), 77)] * 2)
    jobs = [
        Job(ordinal, 1 + ordinal, 5, 0, 60, 77, NOW + 9, 9, failures=3 - ordinal, state=RESERVED) for ordinal in (0, 1)
    ]
    bench.resume(jobs, 2, [])
    assert [job.state for job in bench.tube.jobs] == [READY, READY]  # the stop is no failure
    assert bench.journal.rows == {}
    found = bench.tube.next_ready()
    assert found.ordinal == 1
    assert [job.state for job in bench.tube.jobs] == [BURIED, READY]
    assert bench.journal.rows == {0: bench.job(0)}
    assert bench.job(0).buries == 1
    bench.check()


def test_a_job_that_is_delivered_once_at_most_is_finished_before_it_leaves() -> None:
    bench = Bench()
    once, again = bench.put(b"once", ttr=0)[0], bench.put(b"again")[0]
    worker, hand = bench.worker()
    for job in (once, again):
        bench.tube.reserve(job, worker, NOW)
    assert hand.marks == [bench.journal.mark]  # the delivery leaves when this has reached the record of the finish
    assert bench.journal.finished == [once.ordinal]
    assert worker.holds.keys() == {(9, again.ordinal)}
    assert bench.index.find(bench.index.client_id(once.id)) is None
    bench.check()


def test_a_job_goes_when_its_life_is_over_whatever_its_state_is() -> None:
    bench = Bench()
    bench.agenda.wall = 77
    jobs = bench.put(b"ready", b"reserved", b"buried", ttl=10) + bench.put(b"delayed", delay=50, ttl=10)
    (stays,) = bench.put(b"stays")
    (later,) = bench.put(b"later", ttl=30)
    worker, _ = bench.worker()
    bench.tube.reserve(jobs[1], worker, NOW)
    bench.tube.bury(jobs[2], 5)
    due = bench.tube.next_due()
    assert due == NOW + 11 * SECOND - 77  # the second in which it was put counts as a whole
    bench.agenda.now, bench.agenda.wall = NOW + 10 * SECOND, 77 + 10 * SECOND
    assert bench.tube.scan(bench.agenda.now, 100) == 0
    bench.agenda.now, bench.agenda.wall = due, 11 * SECOND
    assert bench.tube.scan(due, 3) == 3
    assert bench.tube.scan(due, 3) == 1
    assert bench.journal.finished == [job.ordinal for job in jobs]
    assert (bench.listed.expired, worker.holds) == (4, {})
    assert [job.ordinal for job in bench.tube.jobs] == [stays.ordinal, later.ordinal]
    assert bench.tube.next_due() == due + 20 * SECOND
    bench.check()
