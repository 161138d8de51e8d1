"""Look at the jobs of a tube, and act on single ones.

    GET /tube/jobs?tube=NAME&state=ready|reserved|delayed|buried[&limit=100][&after=NEXT][&preview=256]

    {"total": 3, "jobs": [{"id","disque_id","state","priority","age","ttr","reserves","timeouts","releases","buries","kicks",
                           "body_size", "body" or "body_base64" or "waiting_for_copies"}],
     "pause_left": 0, "tube": {...}, "next": "..."}

`pause_left` is how many s the tube stays paused, and `tube` has what /tubes tells of it; `id` is beanstalkd's, and `disque_id`
that of Disque's clients; `age`, `ttr`, `ttl_left` of jobs that have a time to live and, for jobs that are reserved or delayed,
`time_left` are in s. `ttr` 0: the job is delivered once at most. `total` counts all jobs in that state; `next` is present if
there are more: give it as `after`. The order of the jobs is described in nsqd/core/work_queue/listing.py, and their bodies in
nsqd/http/inspection.py. A job that cannot be read has no body_size.

    POST /tube/jobs/delete?tube=NAME&id=1,2,3     delete jobs, in whatever state they are; ids of Disque are taken, too
    POST /tube/jobs/kick?...                      make buried and delayed jobs ready
    POST /tube/jobs/bury?...                      hold ready and delayed jobs until they are kicked
    POST /tube/jobs/release?...                   make reserved jobs ready at once

Instead of `id`, `state=S&count=N` takes the first N in that state, which must be a state that the action applies to. The answer
is {"deleted": N} (kicked, buried, released): how many jobs changed, once that is as durable as the topic promises. A worker
that has such a job reserved loses it: it will be told NOT_FOUND.
"""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.topic import Topic
from nsqd.core.work_queue.actions import BURY, DELETE, KICK, RELEASE, Action, act, named
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.listing import list_jobs
from nsqd.core.work_queue.tube import Tube
from nsqd.http.arguments import bounded, job_ids, tube_name
from nsqd.http.inspection import Bodies, FrameLookup, read_page
from nsqd.http.node import Node
from nsqd.http.parts import page_of, parts_of_tube
from nsqd.http.tubes import tube_figures
from nsqd.protocols.beanstalk.states import STATES
from shared.auth.verbs import Verb
from shared.http.api import Handler, json_response, query
from shared.http.errors import HttpError
from shared.http.route import Need, Route
from shared.values import SECOND

MOST = 1000  # jobs in a request
_BY_WORD = {word: state for state, word in STATES.items()}
_TIMED = (JobState.RESERVED, JobState.DELAYED)


class Jobs:
    """The five routes for the jobs of a tube."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET /tube/jobs",
                self.jobs,
                Need(Verb.BROWSE, "tube", preview="preview"),
                "tube, state, ?limit, ?after, ?preview",
                "List jobs, without touching them",
            ),
            Route(
                "POST /tube/jobs/delete",
                self._handler(DELETE),
                Need(Verb.DELETE, "tube"),
                "tube, id or state and count",
                "Delete jobs",
            ),
            Route(
                "POST /tube/jobs/kick",
                self._handler(KICK),
                Need(Verb.ACT, "tube"),
                "tube, id or state and count",
                "Make buried and delayed jobs ready",
            ),
            Route(
                "POST /tube/jobs/bury",
                self._handler(BURY),
                Need(Verb.ACT, "tube"),
                "tube, id or state and count",
                "Bury ready and delayed jobs",
            ),
            Route(
                "POST /tube/jobs/release",
                self._handler(RELEASE),
                Need(Verb.ACT, "tube"),
                "tube, id or state and count",
                "Make reserved jobs ready",
            ),
        ]

    async def jobs(self, request: Request) -> Response:
        """Answer a page of the tube's jobs in one state."""
        arguments = query(request)
        name, state, page = tube_name(arguments), _read_state(arguments), read_page(arguments)
        lookup, jobs_page, broker = FrameLookup(self._node, attributes=False), JobsPage(), self._node.broker

        def choose() -> tuple[Topic | None, list[int]]:
            parts = parts_of_tube(broker, name)
            jobs_page.now, jobs_page.wall = broker.now, broker.wall
            jobs_page.figures = tube_figures(broker.tubes, name, jobs_page.now)
            if not parts:
                if page.after:
                    raise HttpError(400, "INVALID_ARG_AFTER")
                return None, []
            try:
                topic, jobs_page.jobs, jobs_page.following = page_of(
                    parts, page.after, lambda tube, place: list_jobs(tube.table, state, place, page.limit)
                )
            except ValueError:
                raise HttpError(400, "INVALID_ARG_AFTER") from None
            encode = self._node.job_ids.of_job
            jobs_page.ids = [(broker.tubes.client_id(job), encode(job).decode()) for job in jobs_page.jobs]
            jobs_page.total = sum(tube.table.counts[state] for _, tube in parts)
            return topic, [job.ordinal for job in jobs_page.jobs]

        await lookup.fetch(choose)
        answer: dict[str, Any] = {"total": jobs_page.total, "jobs": jobs_page.describe(lookup, Bodies(page.preview))}
        answer |= {"pause_left": jobs_page.figures["pause_left"], "tube": jobs_page.figures}
        if jobs_page.following:
            answer["next"] = jobs_page.following
        return json_response(answer)

    def _handler(self, action: Action) -> Handler:
        async def handler(request: Request) -> Response:
            arguments = query(request)
            name, broker = tube_name(arguments), self._node.broker
            choose, most = _choice(arguments, action, self._number_of)

            def work() -> int:
                count = 0
                for _, tube in parts_of_tube(broker, name):
                    count += act(tube, action, choose(tube)[: most - count])
                if count:
                    broker.tubes.leave_empty(name)
                return count

            return json_response({action.done: await self._node.bridge.call(work)})

        return handler

    def _number_of(self, tube: Tube, job_id: str) -> int:
        """Return the number by which clients of beanstalkd name a job; -1: that of Disque which is given is not one of ours."""
        if job_id.isdigit():
            return int(job_id)
        message_id = self._node.job_ids.decode(job_id.encode())
        return tube.index.client_id(message_id) if message_id is not None else -1


class JobsPage:
    """The jobs of a page, and the state of their tube."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.ids: list[tuple[int, str]] = []  # those by which clients of beanstalkd, and of Disque, name the jobs
        self.following = ""
        self.total = 0
        self.figures: dict[str, Any] = {}  # of the tube, as /tubes has them
        self.now = self.wall = 0  # when the tube was looked at, by both clocks, ns

    def describe(self, lookup: FrameLookup, bodies: Bodies) -> list[dict[str, Any]]:
        """Return the jobs as dicts for JSON."""
        named = zip(self.ids, self.jobs, strict=True)
        return [self._describe_job(ids, job, lookup, bodies) for ids, job in named]

    def _describe_job(self, ids: tuple[int, str], job: Job, lookup: FrameLookup, bodies: Bodies) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "id": ids[0],
            "disque_id": ids[1],
            "state": STATES[job.state],
            "priority": job.priority,
            "age": max(0, self.wall - job.created) // SECOND,
            "ttr": job.ttr,
            "reserves": job.reserves,
            "timeouts": job.timeouts,
            "releases": job.releases,
            "buries": job.buries,
            "kicks": job.kicks,
            "failures": job.failures,
        }
        if job.ttl:
            entry["ttl_left"] = max(0, job.expires - self.wall // SECOND)
        if job.state in _TIMED:
            entry["time_left"] = max(0, job.due - self.now) // SECOND
        frame = lookup.frames[job.ordinal]
        return entry | bodies.describe(frame, lookup.is_held(job.ordinal)) if frame else entry


def _read_state(arguments: dict[str, str]) -> JobState:
    """Return the state that the argument `state` names. Raises HttpError 400."""
    try:
        return _BY_WORD[arguments.get("state", "")]
    except KeyError:
        raise HttpError(400, "INVALID_ARG_STATE") from None


def _choice(
    arguments: dict[str, str], action: Action, number_of: Callable[[Tube, str], int]
) -> tuple[Callable[[Tube], list[Job]], int]:
    """Return a function that chooses jobs of a tube by the arguments, and how many at most. Raises HttpError 400.

    `number_of` returns the number of the job in a tube that has an id.
    """
    if "id" in arguments:
        ids = job_ids(arguments, "id", MOST)
        return (lambda tube: named(tube, dict.fromkeys(number_of(tube, one) for one in ids))), MOST
    if "state" not in arguments:
        raise HttpError(400, "MISSING_ARG_ID")
    state, count = _read_state(arguments), bounded(arguments, "count", 0, MOST)
    if state not in action.states:
        raise HttpError(400, "INVALID_ARG_STATE")
    if not count:
        raise HttpError(400, "MISSING_ARG_COUNT")
    return (lambda tube: list_jobs(tube.table, state, "", count)[0]), count
