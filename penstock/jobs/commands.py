"""The commands of both clients, each declared once: a method of Jobs returns the result, of AsyncJobs an awaitable of it."""

import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from time import monotonic
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from penstock.jobs import calls
from penstock.jobs.calls import Call, FoundJob
from penstock.jobs.session import DEFAULT_TUBE, JobsSession, Steps
from penstock.jobs.settings import JobsSettings
from penstock.protocol.beanstalk import Stats
from penstock.protocol.headers import Headers, headers_of
from penstock.sansio.address import check_address
from penstock.telemetry import JOBS, Operation, telemetry

DEFAULT_ADDRESS = "127.0.0.1:11300"  # of the adapters to frameworks
DEFAULT_PRIORITY = 65536  # as other clients of beanstalkd have it
DEFAULT_TTR_S = 60

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Owner = TypeVar("Owner")
J = TypeVar("J")


class Blocking(Protocol):
    """A client whose `perform` blocks until the call has its result."""

    def perform(self, work: Call[T]) -> T: ...


class Async(Protocol):
    """A client whose `perform` is awaited for the result of the call."""

    async def perform(self, work: Call[T]) -> T: ...


class Command(Protocol[P, T_co]):
    """A method that performs a call, or the steps of several."""

    @overload
    def __get__(self, owner: Blocking, kind: object) -> Callable[P, T_co]: ...
    @overload
    def __get__(self, owner: Async, kind: object) -> Callable[P, Coroutine[Any, Any, T_co]]: ...
    @overload
    def __get__(self, owner: None, kind: object) -> Callable[..., Any]: ...


def command(plan: Callable[Concatenate[Owner, P], Call[T] | Steps[T]]) -> Command[P, T]:
    """Return a method that performs the call, or the steps, that `plan` returns."""

    @wraps(plan)
    def perform(owner: Any, *arguments: P.args, **options: P.kwargs) -> Any:
        return owner.perform(plan(owner, *arguments, **options))

    return cast("Command[P, T]", perform)


def _spanned(steps: Steps[T], operation: Operation) -> Steps[T]:
    """Perform the steps, and end the operation with them."""
    try:
        result = yield from steps
    except BaseException as error:
        operation.end(error)
        raise
    operation.end()
    return result


class Commands(Generic[J]):
    """The state of Jobs and AsyncJobs, and the methods that both have. `J`: the class of the jobs that they reserve."""

    _new_job: Callable[..., J]

    def __init__(
        self,
        address: str,
        settings: JobsSettings | None = None,
        use: str = DEFAULT_TUBE,
        watch: Iterable[str] = (DEFAULT_TUBE,),
    ) -> None:
        self.address = check_address(address)
        self._settings = settings or JobsSettings()
        self._telemetry = telemetry() if self._settings.telemetry else None
        self._has_headers = self._settings.headers or self._telemetry is not None
        self._session = JobsSession(self._settings, monotonic, random.random, use, watch, self._has_headers)

    @property
    def using(self) -> str:
        """The tube of puts, kicks and peeks that name none.

        >>> Jobs(address, use="pictures").using
        'pictures'
        """
        return self._session.using

    @property
    def epoch(self) -> int:
        """The number of connections so far. A reservation lasts as long as the connection with its `Job.epoch`.

        >>> Jobs(address).epoch
        0
        """
        return self._session.epoch

    @property
    def watching(self) -> tuple[str, ...]:
        """The tubes of reserves.

        >>> Jobs(address, watch=["pictures", "films"]).watching
        ('pictures', 'films')
        """
        return tuple(self._session.watching)

    # producers

    @command
    def put(
        self,
        body: bytes,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0,
        ttr: float = DEFAULT_TTR_S,
        tube: str = "",
        batch: str = "",
        headers: Mapping[str, str] | None = None,
        group: str = "",
    ) -> Call[int] | Steps[int]:
        """Put a job into the tube (the used one by default) and return its id.

        For an nsqd of Penstock, `batch`: the batch of which it is a member; `group`: its group, which holds in the channels of
        the topic, not in the tube; `headers`, if JobsSettings.headers is True: values by name that workers find in
        `Job.headers`. Raises BatchDone, Unsupported; ValueError for a batch together with a group, except as a header.

        A lower `priority` comes first; `delay` and `ttr`, the time to run, are in seconds, rounded up to whole ones. Raises
        TooBig, Draining and OutOfMemory; AnswerLost if it is unknown whether the job was put; TypeError for a body that is
        not bytes, and ValueError for a time that is not finite or a number out of range.

        >>> job_id = jobs.put(b"resize picture 7", delay=60)
        >>> jobs.stats_job(job_id)["state"]
        'delayed'
        """
        tube = tube or self.using
        if batch and group:
            raise ValueError("a put names a batch or a group: give the group as the header group")
        if batch:
            return self._publish(tube, calls.put_batch(tube, batch, body, priority, delay, ttr), headers)
        if group:
            return self._publish(tube, calls.put_grouped(tube, group, body, priority, delay, ttr), headers)
        return self._publish(tube, calls.put(tube, body, priority, delay, ttr), headers)

    @command
    def put_unique(
        self,
        key: str,
        body: bytes,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0,
        ttr: float = DEFAULT_TTR_S,
        tube: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Call[int | None] | Steps[int | None]:
        """Put a job once, however often it is tried; return its id, or None if the tube has had a job with that key before.

        The put is repeated over new connections until it is answered. Raises as `put`, and Unsupported: it is an extension.

        >>> job_id = jobs.put_unique("order-17", b"send invoice")
        >>> jobs.put_unique("order-17", b"send invoice") is None
        True
        """
        tube = tube or self.using
        return self._publish(tube, calls.put_unique(tube, key, body, priority, delay, ttr), headers)

    @command
    def put_unless_pending(
        self,
        key: str,
        body: bytes,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0,
        ttr: float = DEFAULT_TTR_S,
        tube: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Call[int | None] | Steps[int | None]:
        """Put a job unless the tube has one that was put so with that key; return its id, or None if it was not put.

        A job is pending until it is deleted. Raises as `put_unique`.

        >>> job_id = jobs.put_unless_pending("customer-17", b"write report")
        >>> jobs.put_unless_pending("customer-17", b"write report") is None
        True
        """
        tube = tube or self.using
        call = calls.put_unique(tube, key, body, priority, delay, ttr, while_pending=True)
        return self._publish(tube, call, headers)

    @command
    def close_batch(self, batch: str) -> Call[None]:
        """Let a batch be done when none of its members is pending. Raises Unsupported: it is an extension.

        >>> job_id = jobs.put(b"resize picture 7", batch="album-7")
        >>> jobs.close_batch("album-7")
        """
        return calls.close_batch(batch)

    @command
    def stats_batch(self, batch: str) -> Call[Stats]:
        """Return the state of a batch, which is open, closed or done, and counts of its members. Raises NotFound.

        >>> job_id = jobs.put(b"page 1", batch="report-1")
        >>> jobs.stats_batch("report-1")["members"]
        1
        """
        return calls.stats_batch(batch)

    @command
    def wait_for_batch(self, batch: str, timeout_s: float | None = None) -> Steps[bool]:
        """Return True once a batch is done, or False after `timeout_s` seconds (None: wait without end). Raises NotFound.

        >>> jobs.close_batch("empty")
        >>> jobs.wait_for_batch("empty", timeout_s=5)
        True
        """
        return self._session.wait_for_batch(batch, timeout_s)

    def _publish(self, tube: str, call: Call[T], headers: Mapping[str, str] | None) -> Call[T] | Steps[T]:
        """Return the call of a put with headers, within a span if spans are on. Raises ValueError for bad headers."""
        own = headers_of(headers)
        if own and not self._has_headers:
            raise ValueError("headers need JobsSettings(headers=True)")
        call = call._replace(headers=own, needs_headers=bool(own))
        if self._telemetry is None:
            return call
        operation = self._telemetry.send(JOBS, tube)
        return _spanned(self._session.perform(call._replace(headers=operation.join(own))), operation)

    @command
    def use(self, tube: str) -> Call[None]:
        """Use the tube for every put, kick and peek that names none, also after a reconnect.

        >>> jobs.use("pictures")
        >>> jobs.using
        'pictures'
        """
        return self._session.use(tube)

    # workers

    @command
    def reserve(self, timeout_s: float | None = None) -> Steps[J | None]:
        """Return the next job of the watched tubes, or None after `timeout_s` seconds (None: wait without end).

        A lost connection is replaced. Raises DeadlineSoon; ConnectionLost if no server was there for the settings' retry_s.

        >>> jobs.reserve(timeout_s=0) is None
        True
        """
        return self._hold(self._session.reserve(timeout_s))

    @command
    def reserve_job(self, job_id: int) -> Steps[J | None]:
        """Reserve the job with this id, whatever tube it is in; None if it does not exist or is reserved.

        >>> job_id = jobs.put(b"work")
        >>> jobs.reserve_job(job_id).body
        b'work'
        """
        return self._hold(self._session.perform(calls.reserve_job(job_id)))

    @command
    def reserve_batch(self, count: int, timeout_s: int = 0) -> Steps[list[J]]:
        """Return up to `count` (at most 100) ready jobs, or wait for one; [] after `timeout_s` seconds.

        An extension: raises Unsupported.

        >>> ids = [jobs.put(b"a"), jobs.put(b"b")]
        >>> [job.body for job in jobs.reserve_batch(100)]
        [b'a', b'b']
        """
        return self._hold_all(self._session.perform(calls.reserve_batch(count, timeout_s)))

    def _hold(self, steps: Steps[FoundJob | None]) -> Steps[J | None]:
        found = yield from steps
        return None if found is None else self._began(*found)

    def _hold_all(self, steps: Steps[list[FoundJob]]) -> Steps[list[J]]:
        return [self._began(*found) for found in (yield from steps)]

    def _began(self, job_id: int, body: bytes, headers: Headers) -> J:
        """Return a job that was just reserved, and begin the span in which it is processed."""
        operation = None
        if self._telemetry is not None:
            tube = self.watching[0] if len(self.watching) == 1 else ""  # no reply names it
            operation = self._telemetry.process(JOBS, tube, str(job_id), dict(headers))
        return self._new_job(job_id, body, self.epoch, self, operation, headers)

    @command
    def watch(self, tube: str) -> Call[int]:
        """Reserve from this tube, too, also after a reconnect; return how many tubes are watched.

        >>> jobs.watch("pictures")
        2
        """
        return self._session.watch(tube)

    @command
    def ignore(self, tube: str) -> Call[int]:
        """Reserve from this tube no longer; return how many are watched. Raises NotIgnored for the last one.

        >>> jobs.watch("pictures")
        2
        >>> jobs.ignore("pictures")
        1
        """
        return self._session.ignore(tube)

    @command
    def delete(self, job_id: int) -> Call[None]:
        """Delete a job that this client has reserved, or no client. Raises NotFound; TypeError for an id that is no int.

        >>> jobs.delete(jobs.put(b"work"))
        """
        return calls.delete(job_id)

    @command
    def delete_batch(self, job_ids: Sequence[int]) -> Call[int]:
        """Delete the jobs as `delete` does and return how many existed. An extension: raises Unsupported.

        Raises ValueError for ids that do not fit on a line of 224 bytes; ten always do.

        >>> jobs.delete_batch([jobs.put(b"a"), jobs.put(b"b")])
        2
        """
        return calls.delete_batch(job_ids)

    # operators

    @command
    def kick(self, count: int, tube: str = "") -> Call[int]:
        """Make up to `count` buried jobs of the tube ready, or, if there are none, delayed ones; return how many.

        >>> job_id = jobs.put(b"work", delay=60)
        >>> jobs.kick(10)
        1
        """
        return calls.kick(tube or self.using, count)

    @command
    def kick_job(self, job_id: int) -> Call[None]:
        """Make one buried or delayed job ready. Raises NotFound.

        >>> jobs.kick_job(jobs.put(b"work", delay=60))
        """
        return calls.kick_job(job_id)

    @command
    def peek(self, job_id: int) -> Call[FoundJob | None]:
        """Return the job without reserving it, or None.

        >>> jobs.peek(jobs.put(b"work")).body
        b'work'
        """
        return calls.peek(job_id)

    @command
    def peek_ready(self, tube: str = "") -> Call[FoundJob | None]:
        """Return the next ready job of the tube without reserving it, or None.

        >>> job_id = jobs.put(b"work")
        >>> jobs.peek_ready().body
        b'work'
        """
        return calls.peek_first(tube or self.using, "ready")

    @command
    def peek_delayed(self, tube: str = "") -> Call[FoundJob | None]:
        """Return the delayed job of the tube whose delay ends first, or None.

        >>> job_id = jobs.put(b"work", delay=60)
        >>> jobs.peek_delayed().body
        b'work'
        """
        return calls.peek_first(tube or self.using, "delayed")

    @command
    def peek_buried(self, tube: str = "") -> Call[FoundJob | None]:
        """Return the buried job of the tube that would be kicked first, or None.

        >>> jobs.peek_buried() is None
        True
        """
        return calls.peek_first(tube or self.using, "buried")

    @command
    def stats(self) -> Call[Stats]:
        """Return the server's statistics, as beanstalkd names them.

        >>> jobs.stats()["current-connections"] > 0
        True
        """
        return calls.STATS

    @command
    def stats_job(self, job_id: int) -> Call[Stats]:
        """Return the statistics of a job. Raises NotFound.

        >>> jobs.stats_job(jobs.put(b"work", ttr=90))["ttr"]
        90
        """
        return calls.stats_job(job_id)

    @command
    def stats_tube(self, tube: str = "") -> Call[Stats]:
        """Return the statistics of a tube. Raises NotFound.

        >>> job_id = jobs.put(b"work")
        >>> jobs.stats_tube()["current-jobs-ready"]
        1
        """
        return calls.stats_tube(tube or self.using)

    @command
    def list_tubes(self) -> Call[list[str]]:
        """Return the names of the server's tubes.

        >>> jobs.using in jobs.list_tubes()
        True
        """
        return calls.LIST_TUBES

    @command
    def list_jobs(self, state: str = "ready", limit: int = 1000, after: int = 0, tube: str = "") -> Call[list[int]]:
        """Return the ids of at most `limit` jobs of the tube in `state`, of those that were put after the job `after`.

        `state` is ready, reserved, delayed or buried. Raises NotFound for a tube that does not exist. An extension: raises
        Unsupported.

        >>> job_id = jobs.put(b"work")
        >>> jobs.list_jobs() == [job_id]
        True
        """
        return calls.list_jobs(tube or self.using, state, limit, after)

    @command
    def pause_tube(self, tube: str, seconds: float) -> Call[None]:
        """Deliver no job of the tube for `seconds`, rounded up; 0 ends a pause. Raises NotFound, and ValueError for `inf`.

        >>> jobs.pause_tube(jobs.using, 0)
        """
        return calls.pause_tube(tube, seconds)

    @command
    def clear_tube(self, tube: str) -> Call[int]:
        """Delete the ready, delayed and buried jobs of the tube; return how many. An extension: raises Unsupported.

        >>> job_id = jobs.put(b"work")
        >>> jobs.clear_tube(jobs.using)
        1
        """
        return calls.clear_tube(tube)

    @command
    def move_job(self, job_id: int, tube: str) -> Call[int]:
        """Move a job to another tube and return its new id. An extension: raises Unsupported. Raises NotFound.

        >>> job_id = jobs.move_job(jobs.put(b"work"), "elsewhere")
        >>> jobs.delete(job_id)
        """
        return calls.move_job(job_id, tube)
