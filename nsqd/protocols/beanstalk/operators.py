"""Handle the commands that show tubes and jobs, and those with which operators change them."""

from __future__ import annotations

from collections.abc import Callable
from heapq import merge
from itertools import chain, islice

from nsqd.core.batches.batches import BatchRefused
from nsqd.core.sequence.mark import Mark
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.actions import behind
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.tube import Tube
from nsqd.protocols.beanstalk import stats
from nsqd.protocols.beanstalk.borrower import KICKED, Borrower
from nsqd.protocols.beanstalk.client import (
    DRAINING,
    NOT_FOUND,
    OUT_OF_MEMORY,
    TUBES_OF_A_UNIT,
    UNAUTHORIZED,
    job_reply,
)
from nsqd.protocols.beanstalk.commands import BadFormat
from nsqd.protocols.beanstalk.states import STATES
from penstock.protocol.headers import split_headers
from shared.audit.event import Outcome
from shared.auth.verbs import Verb
from shared.values import SECOND

SLICE = 500  # jobs that a command handles in one turn: about 5 ms
MOST_LISTED = 1000  # job numbers in an answer
_CLEARED = (JobState.READY, JobState.DELAYED, JobState.BURIED)


class Operator(Borrower):
    """The commands that show tubes and jobs, and the operators' commands."""

    __slots__ = ()

    # looking

    def _peek(self, job_id: int) -> None:
        found = self.broker.tubes.find(job_id)
        if found is not None or self.context.others is None:
            self._answer_found("peek", found)
        else:
            self._count("peek")
            self._ask_owner(b"peek ", job_id)

    def _peek_first(self, command: str, state: JobState) -> None:
        self._answer_found(command, self.broker.tubes.first(self.worker.using, state))

    def _answer_found(self, command: str, found: tuple[Tube, Job] | None) -> None:
        body = found[0].body(found[1], self.worker.takes_headers) if found is not None else None
        self._count(command)
        if found is None or body is None:
            self.fail(NOT_FOUND)
        else:
            gate = found[0].offsets.gate
            if gate is not None:
                self.outbox.wait_for(gate.pass_through())
            self.reply(job_reply(b"FOUND", self.broker.tubes.client_id(found[1]), body))

    # operators

    def _kick(self, bound: int) -> None:
        self._count("kick")
        name, kicked, tubes = self.worker.using, 0, self.broker.tubes
        has_buried = any(tube.table.buried for tube in tubes.everywhere(name))
        state = JobState.BURIED if has_buried else JobState.DELAYED

        def step() -> bytes | None:
            nonlocal kicked
            for _ in range(SLICE):
                found = tubes.first(name, state) if kicked < bound else None
                if found is None:
                    self.promise(name)
                    self.record("kick", name, count=kicked)
                    return b"KICKED %d\r\n" % kicked
                found[0].kick(found[1])
                kicked += 1
            return None

        self._begin_recorded("kick", name, step)

    def _begin_recorded(self, action: str, name: str, step: Callable[[], bytes | None]) -> None:
        """Begin a command that may take several turns. If it does, its beginning is recorded: the client may hang up."""
        self.begin_long(step)
        if self._long is not None:
            self.record(action, name, Outcome.UNCERTAIN)

    def _kick_job(self, job_id: int) -> None:
        found = self.broker.tubes.find(job_id)
        if found is None:
            self._ask_owner(b"kick-job ", job_id)
            if not self._wait:
                self.record("kick-job", str(job_id), Outcome.FAILED)
            return
        target = f"{found[0].topic_name} {job_id}"
        if found[1].state not in (JobState.BURIED, JobState.DELAYED):
            self.record("kick-job", target, Outcome.FAILED)
            self.fail(NOT_FOUND)
            return
        found[0].kick(found[1])
        self.promise(found[0].topic_name)
        self.record("kick-job", target)
        self.reply(KICKED)

    def _clear_tube(self, name: str) -> None:
        """Delete the jobs of a tube, except for reserved ones, and answer CLEARED with their number."""
        tubes = self.broker.tubes
        if name not in tubes.listed.counters:
            self.fail(NOT_FOUND)
            return
        count = 0

        def step() -> bytes | None:
            nonlocal count
            for tube in tubes.everywhere(name):
                jobs = chain.from_iterable(tube.jobs.in_state(state) for state in _CLEARED)
                for job in list(islice(jobs, SLICE)):
                    tube.finish(job)
                    count += 1
                if any(tube.table.counts[state] for state in _CLEARED):
                    return None
            self.promise(name)
            tubes.leave_empty(name)
            self.record("clear-tube", name, count=count)
            return b"CLEARED %d\r\n" % count

        self._begin_recorded("clear-tube", name, step)

    def _move_job(self, job_id: int, name: str) -> None:
        """Put a job to another tube with its options, delete it here, and answer MOVED with its new id, or DRAINING."""
        tubes, found = self.broker.tubes, self.broker.tubes.find(job_id)
        if found is None or found[0].reserved.get(found[1].ordinal, self.worker) is not self.worker:
            self.fail(NOT_FOUND)
            return
        if self.broker.draining_since:
            self.fail(DRAINING)
            return
        tube, job = found
        content = tube.body(job, with_headers=True)
        if content is None:
            self.fail(NOT_FOUND)
            return
        due = job.due if job.state is JobState.DELAYED else 0
        # the rest of it, cut to whole seconds: the new job must not outlive the old one
        ttl = (job.created + job.ttl * SECOND - self.broker.wall) // SECOND if job.ttl else 0
        if job.ttl and not ttl:
            self.fail(NOT_FOUND)
            return
        options = JobOptions(job.priority, job.ttr, job.delay if due else 0, due, True, ttl, job.copies)
        self.make_tube(name)
        headers, body = split_headers(content)
        number = tubes.put_to(name, body, options, headers)
        self.promise(name)
        self.record("move-job", f"{tube.topic_name} {job_id} {name}")
        self._finish(job_id)
        self.reply(b"MOVED %d\r\n" % number)

    def _list_jobs(self, name: str, state: str, limit: int, after: int) -> None:
        """Handle list-jobs: answer up to `limit` numbers of jobs in a state, in order of their put, behind number `after`."""
        tubes = self.broker.tubes
        wanted = next((number for number, word in STATES.items() if word == state), None)
        if wanted is None or not 1 <= limit <= MOST_LISTED:
            raise BadFormat
        if name not in tubes.listed.counters:
            self.fail(NOT_FOUND)
            return
        pages = (islice(tube.jobs.in_state(wanted, behind(tube, after)), limit) for tube in tubes.everywhere(name))
        found = islice(merge(*pages, key=tubes.client_id), limit)
        self.reply(stats.listing(str(tubes.client_id(job)) for job in found))

    def _pause_tube(self, name: str, seconds: int) -> None:
        tubes = self.broker.tubes
        if name not in tubes.listed.counters:
            self.fail(NOT_FOUND)
            return
        self.make_tube(name)
        tubes.listed.counters[name]["pause-tube"] += 1
        tubes.made(name).pause_for(seconds * SECOND, self.now)
        self.record("pause-tube", name)
        self.reply(b"PAUSED\r\n")

    def _stats(self) -> None:
        self._spent += len(self.broker.tubes.listed.names) // TUBES_OF_A_UNIT
        self._count("stats")
        figures, draining = self.context.figures(), self.broker.draining_since > 0
        self.reply(stats.dictionary(stats.node_stats(self.broker.tubes, figures, draining)))

    def _stats_job(self, job_id: int) -> None:
        self._count("stats-job")
        found = self.broker.tubes.find(job_id)
        if found is None:
            self._ask_owner(b"stats-job ", job_id)
        else:
            self.reply(stats.dictionary(stats.job_stats(*found, self.now, self.broker.wall)))

    def _stats_tube(self, name: str) -> None:
        self._count("stats-tube")
        tubes = self.broker.tubes
        if name not in tubes.listed.counters:
            self.fail(NOT_FOUND)
        else:
            self.reply(stats.dictionary(stats.tube_stats(tubes, name, tubes.tube(name), self.now, tubes.wall)))

    def _stats_batch(self, name: str) -> None:
        batches = self.broker.context.batches
        parts = batches.parts(name)
        if not self._may_see(Verb.STATS, name):
            self.fail(UNAUTHORIZED)
        elif not parts:
            self.fail(NOT_FOUND)
        else:
            self.reply(stats.dictionary(stats.batch_stats(parts)))

    def _close_batch(self, name: str) -> None:
        batches = self.broker.context.batches
        if not self._may_see(Verb.PUBLISH, name):
            self.fail(UNAUTHORIZED)
            return
        try:
            marks = batches.close(name, self.broker.wall // SECOND)
        except BatchRefused:
            self.fail(OUT_OF_MEMORY)
        else:
            self.reply(b"CLOSED\r\n", tuple(marks))

    def _may_see(self, verb: Verb, batch: str) -> bool:
        """Return True if the client has the right to all topics with members of a batch, or to any if there are none."""
        identity = self.credential.identity if self.credential is not None else None
        return identity is None or identity.rights.may_each(verb, self.broker.context.batches.topics_of(batch))

    def _list_tubes(self) -> None:
        self._count("list-tubes")
        self.reply(stats.listing(self.broker.tubes.listed.names))

    def _list_tube_used(self) -> None:
        self._count("list-tube-used")
        self.reply(b"USING %s\r\n" % self.worker.using.encode())

    def _list_tubes_watched(self) -> None:
        self._count("list-tubes-watched")
        self.reply(stats.listing(self.worker.watching))

    def _finish(self, job_id: int) -> tuple[Mark, ...] | None:
        """Finish a job, and return the marks that the reply waits for; None: there is none that this worker may finish."""
        tubes = self.broker.tubes
        found = tubes.locate(job_id)
        if found is None or found[0].reserved.get(found[1], self.worker) is not self.worker:
            return None
        tube, ordinal, (whole_id, priority, _, _, _, _, _, state) = found
        name = tube.topic_name
        tube.finish_row(ordinal, whole_id, priority, state)
        tubes.listed.counters[name]["delete"] += 1
        marks = self.promised(name)
        tubes.leave_empty(name)
        return marks
