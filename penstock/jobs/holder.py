"""A thread that holds jobs for other threads: it reserves, touches, deletes, releases and buries them over one connection.

Invariants:
* A job is deleted only after `acknowledge`, and buried only after `bury` or if `read` refuses its body. All others are released
  by `stop`, or by the server when the connection ends.
* While a job is held, its time to run does not end, whatever the other threads do.
* After a lost connection, held jobs that no other worker has got meanwhile are reserved again and not delivered twice.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from math import inf
from time import monotonic, sleep
from typing import Generic, Protocol, TypeVar

from penstock.jobs.calls import MAX_U32
from penstock.jobs.client import Jobs
from penstock.jobs.errors import (
    AnswerLost,
    ConnectionLost,
    DeadlineSoon,
    JobsError,
    NotFound,
    Refused,
    ReservationLost,
)
from penstock.jobs.job import Job
from penstock.jobs.retries import TOUCH_SHARE

logger = logging.getLogger("penstock.jobs")
MAX_HELD = 1000  # jobs, for a holder without a limit
RESERVE_S = 1  # s of waiting on the server, during which acknowledgements wait, too
PAUSE_S = 0.5  # s before an answer is sent again that a lost connection may have kept from the server
STOP_S = 15.0  # s to delete and release all jobs at the end


class Content(Protocol):
    """The content of a job, as its application reads it."""

    @property
    def ttr_s(self) -> float: ...  # the time to run of its job
    @property
    def priority(self) -> int: ...  # that of its job


C = TypeVar("C", bound=Content)


class HeldJob(Generic[C]):
    """A job that is held: its content, and when it is touched next (s, monotonic)."""

    __slots__ = ("content", "is_reserved", "job", "touch_at")

    def __init__(self, job: Job, content: C, now: float) -> None:
        self.content = content
        self.renew(job, now)

    def renew(self, job: Job, now: float) -> None:
        """Note a reservation of the job, and plan its first touch."""
        self.job = job
        self.is_reserved = True  # False: the reservation was lost, and another worker may have the job
        self.plan_touch(now)

    def plan_touch(self, now: float) -> None:
        """Plan the next touch, a part of the job's time to run after `now` (s, monotonic)."""
        ttr_s = min(max(1.0, self.content.ttr_s), MAX_U32)  # whatever the body says, a thread can wait for it
        self.touch_at = now + ttr_s / TOUCH_SHARE


class JobHolder(Generic[C]):
    """The jobs of one application.

    `read` returns the content of a job's body, or raises ValueError: then the job is buried. `deliver` is called in the thread
    with each job; `fail` with an error that ends the thread.
    """

    def __init__(
        self,
        jobs: Jobs,
        read: Callable[[bytes], C],
        deliver: Callable[[HeldJob[C]], None],
        fail: Callable[[Exception], None],
        limit: int = 0,
    ) -> None:
        self.limit = limit  # jobs to hold at most; 0: MAX_HELD
        self._jobs = jobs
        self._read = read
        self._deliver = deliver
        self._fail = fail
        self.tubes: tuple[str, ...] = ()  # tubes to reserve from
        self._held: dict[int, HeldJob[C]] = {}
        # to be sent: deletes, releases and burials
        self._answers: deque[tuple[int, Callable[[HeldJob[C]], None], HeldJob[C]]] = deque()
        self._fetches: deque[tuple[str, Future[HeldJob[C] | None]]] = deque()
        self._lock = threading.Lock()  # guards _held and _answers
        self._wake = threading.Event()
        self._stopping = False
        self._epoch = 0  # the connection over which the held jobs are reserved
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="penstock jobs", daemon=True)
        self._thread.start()

    # calls of other threads

    def consume(self, tubes: tuple[str, ...]) -> None:
        """Reserve from these tubes from now on."""
        self._require_own()
        self.tubes = tubes
        self._wake.set()

    def acknowledge(self, job_id: int) -> None:
        """Delete the job. An unknown id does nothing. Raises ReservationLost after a fork."""
        self._answer(job_id, self._delete)

    def release(self, job_id: int, delay_s: float = 0) -> None:
        """Make the job ready again, after a delay. An unknown id does nothing. Raises ReservationLost after a fork."""
        if delay_s:
            self._answer(job_id, partial(self._settle, lambda held: held.job.release(held.content.priority, delay_s)))
        else:
            self._answer(job_id, self._release)

    def bury(self, job_id: int) -> None:
        """Keep the job from all workers until it is kicked. An unknown id does nothing. Raises ReservationLost after a fork."""
        self._answer(job_id, partial(self._settle, lambda held: held.job.bury(held.content.priority)))

    def fetch(self, tube: str, seconds: float) -> HeldJob[C] | None:
        """Return the next ready job of the tube, or None. Raises JobsError, TimeoutError."""
        self._require_own()
        result: Future[HeldJob[C] | None] = Future()
        self._fetches.append((tube, result))
        self._wake.set()
        return result.result(seconds)

    def stop(self) -> None:
        """Send the answers, release all other jobs, and end the thread. After a fork it does nothing."""
        if self.is_inherited:
            return
        self._stopping = True
        self._wake.set()
        self._thread.join(STOP_S)

    @property
    def is_inherited(self) -> bool:
        """Return True in a process that was forked since: it has no such thread, and the jobs belong to the parent."""
        return self._pid != os.getpid()

    def _require_own(self) -> None:
        if self.is_inherited:
            raise ReservationLost("the jobs are reserved by the process that forked this one: only it can answer them")

    def _answer(self, job_id: int, send: Callable[[HeldJob[C]], None]) -> None:
        self._require_own()
        with self._lock:
            held = self._held.pop(job_id, None)
            if held is not None:
                self._answers.append((job_id, send, held))
        self._wake.set()

    # the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
            self._finish()
        except Exception as error:  # also a bug: a worker that gets no jobs must not look healthy
            self._fail(error)
        finally:
            self._jobs.close()
            for _, result in self._fetches:
                result.cancel()

    def _turn(self) -> None:
        self._wake.clear()
        self._send_answers()
        self._reclaim()
        self._touch_held(monotonic())
        self._serve_fetches()
        tubes, limit = self.tubes, self.limit or MAX_HELD
        if self._answers or self._fetches or self._stopping:
            return
        if not tubes or len(self._held) >= limit:
            self._wake.wait(self._seconds_to_touch())
            return
        self._watch(tubes)
        try:
            job = self._jobs.reserve(RESERVE_S)
        except DeadlineSoon:
            self._touch_held(inf)
            return
        except ConnectionLost:
            self._jobs.peek(0)  # waits for the node as long as the settings say, then raises
            return
        if job is not None and (held := self._hold(job)) is not None:
            self._deliver(held)

    def _finish(self) -> None:
        """Send the answers, and give back what is still held."""
        self._send_answers()
        with self._lock:
            left = list(self._held.values())
            self._held.clear()
        for held in left:
            self._release(held)

    def _hold(self, job: Job) -> HeldJob[C] | None:
        """Hold the job; None if it was held before, or if `read` refuses its body: then it is buried."""
        with self._lock:
            known = self._held.get(job.id)
            if known is not None:
                known.renew(job, monotonic())
                return None
        for job_id, _, answered in self._answers:
            if job_id == job.id:  # answered while the connection was lost
                answered.job = job
                self._epoch = 0
                return None
        try:
            held = HeldJob(job, self._read(job.body), monotonic())
        except ValueError as error:
            logger.error("job %d is buried: %s", job.id, error)
            job.bury()
            return None
        with self._lock:
            self._held[job.id] = held
        if self._epoch == 0 or len(self._held) == 1:
            self._epoch = self._jobs.epoch
        return held

    def _send_answers(self) -> None:
        """Send deletes and releases in their order. One that the connection lost stays the first."""
        while self._answers:
            _, send, held = self._answers[0]
            try:
                send(held)
            except AnswerLost:
                sleep(PAUSE_S)
                continue  # over a new connection: a delete of a deleted job is NotFound
            with self._lock:
                self._answers.popleft()

    def _delete(self, held: HeldJob[C]) -> None:
        try:
            self._jobs.delete(held.job.id)
        except NotFound:
            logger.warning("job %d was done, but its reservation had ended: it may be done twice", held.job.id)

    def _release(self, held: HeldJob[C]) -> None:
        try:
            held.job.release(held.content.priority)
        except ConnectionLost:
            raise
        except JobsError as error:  # the server has released it already
            logger.info("job %d needed no release: %s", held.job.id, error)

    def _settle(self, answer: Callable[[HeldJob[C]], object], held: HeldJob[C]) -> None:
        """Send the answer; if the job's connection was lost, reserve it again before, unless another worker has it."""
        try:
            answer(held)
        except ReservationLost:
            if self._reserve_again(held):
                answer(held)
        except NotFound:
            logger.warning("job %d is no longer reserved: it may be done twice", held.job.id)

    def _reclaim(self) -> None:
        """After a new connection, reserve the held jobs again, before other workers do."""
        if not self._held or self._jobs.epoch == self._epoch:
            return
        epoch = self._jobs.epoch
        for held in list(self._held.values()):
            if held.job.epoch != epoch:
                self._reserve_again(held)
        self._epoch = epoch

    def _reserve_again(self, held: HeldJob[C]) -> bool:
        """Reserve a job of a lost connection over the present one. Returns False if another worker may have it."""
        job = self._jobs.reserve_job(held.job.id)
        if job is None:
            held.is_reserved = False
            logger.warning("job %d was lost with its connection: another worker may do it, too", held.job.id)
            return False
        held.renew(job, monotonic())
        return True

    def _touch_held(self, until: float) -> None:
        """Touch the jobs whose next touch is planned until this time (s, monotonic)."""
        for held in list(self._held.values()):
            if held.is_reserved and held.touch_at <= until:
                self._touch(held)

    def _touch(self, held: HeldJob[C]) -> None:
        try:
            held.job.touch()
            held.plan_touch(monotonic())
        except (ConnectionLost, ReservationLost):
            self._jobs.peek(held.job.id)  # connects again, or raises: then `_reclaim` reserves the job
        except Refused as error:
            held.is_reserved = False
            logger.warning("job %d is no longer reserved: %s", held.job.id, error)

    def _seconds_to_touch(self) -> float:
        """Return the s for which the thread may sleep."""
        touches = [held.touch_at for held in list(self._held.values()) if held.is_reserved]
        nearest = min(touches, default=monotonic() + 60)
        return max(0.0, nearest - monotonic())

    def _watch(self, tubes: tuple[str, ...]) -> None:
        """Watch `tubes` and ignore all others."""
        for tube in tubes:
            if tube not in self._jobs.watching:
                self._jobs.watch(tube)
        for tube in self._jobs.watching:
            if tube not in tubes:
                self._jobs.ignore(tube)

    def _serve_fetches(self) -> None:
        while self._fetches:
            tube, result = self._fetches.popleft()
            try:
                self._watch((tube,))
                job = self._jobs.reserve(0)
                result.set_result(None if job is None else self._hold(job))
            except DeadlineSoon:
                self._touch_held(inf)
                self._fetches.appendleft((tube, result))
            except JobsError as error:
                result.set_exception(error)
                raise
