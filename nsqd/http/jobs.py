"""Look at the jobs of a tube, and act on single ones.

    GET /tube/jobs?tube=NAME&state=ready|reserved|delayed|buried[&limit=100][&after=NEXT][&preview=256]

    {"total": 3, "jobs": [{"id","disque_id","state","priority","age","ttr","reserves","timeouts","releases","buries","kicks",
                           "body_size", "body" or "body_base64" or "waiting_for_copies"}],
     "pause_left": 0, "tube": {...}, "next": "..."}

`pause_left` is how many s the tube stays paused, and `tube` is its row in /tubes; `id` is beanstalkd's, and `disque_id`
that of Disque's clients; `age`, `ttr`, `ttl_left` of jobs that have a time to live and, for jobs that are reserved or delayed,
`time_left` are in s. `ttr` 0: the job is delivered once at most. `total` counts all jobs in that state; `next` is present if
there are more: give it as `after`. Ready jobs come in the order in which they would be reserved, delayed and reserved ones in
that of their due times, buried ones in that in which they would be kicked; of more than 2,000 jobs the others come by age. A
body that does not fit into the answer is left out. A job that cannot be read has no body_size.

    POST /tube/jobs/delete?tube=NAME&id=1,2,3     delete jobs, in whatever state they are; ids of Disque are taken, too
    POST /tube/jobs/kick?...                      make buried and delayed jobs ready
    POST /tube/jobs/bury?...                      hold ready and delayed jobs until they are kicked
    POST /tube/jobs/release?...                   make reserved jobs ready at once

Instead of `id`, `state=S&count=N` takes the first N in that state, which must be a state that the action applies to. The answer
is {"deleted": N} (kicked, buried, released): how many jobs changed, once that is as durable as the topic promises. A worker
that has such a job reserved loses it: it gets NOT_FOUND.
"""

import re
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.channel.listing import Steps
from nsqd.core.topic import Topic
from nsqd.core.work_queue.actions import BURY, DELETE, KICK, RELEASE, Action, act, named
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.listing import list_jobs
from nsqd.core.work_queue.tube import Tube
from nsqd.http.arguments import TUBE
from nsqd.http.inspection import PAGE, Bodies, FrameLookup
from nsqd.http.node import Node
from nsqd.http.parts import page_of, parts_of_tube
from nsqd.http.tubes import tube_figures
from nsqd.protocols.beanstalk.states import STATES
from shared.auth.verbs import Verb
from shared.http.api import json_response
from shared.http.argument import MOST_DIGITS, bounded, choice, listed
from shared.http.errors import HttpError
from shared.http.route import Need, Route
from shared.values import SECOND

MOST = 1000  # jobs in a request
# ids as clients of beanstalkd have them, and ids of Disque
_JOB_ID = re.compile(rf"[0-9]{{1,{MOST_DIGITS}}}|D-[0-9a-f]{{8}}-[A-Za-z0-9+/]{{24}}-[0-9a-f]{{4}}")
_BY_WORD = {word: state for state, word in STATES.items()}
_TIMED = (JobState.RESERVED, JobState.DELAYED)


class Jobs:
    """The five routes for the jobs of a tube."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /tube/jobs", self.jobs, Need(Verb.BROWSE, "tube", preview="preview"),
                  (TUBE, choice("state", _BY_WORD), *PAGE), "List jobs, without touching them"),
            self._acting(
                "delete", DELETE, Verb.DELETE, "Delete the jobs with an `id`, or the first `count` in a state"
            ),
            self._acting("kick", KICK, Verb.ACT, "Make buried and delayed jobs ready"),
            self._acting("bury", BURY, Verb.ACT, "Bury ready and delayed jobs"),
            self._acting("release", RELEASE, Verb.ACT, "Make reserved jobs ready"),
        ]  # fmt: skip

    async def jobs(
        self, request: Request, tube: str, state: JobState, limit: int, after: str, preview: int
    ) -> Response:
        """Answer a page of the tube's jobs in one state."""
        lookup, jobs_page, broker = FrameLookup(self._node, attributes=False), JobsPage(), self._node.broker

        def list_in(part: Tube, place: str) -> Steps[tuple[list[Job], str]]:
            yield from ()  # all in one step
            return list_jobs(part.table, state, place, max(1, limit))

        def choose() -> Steps[tuple[Topic | None, list[int]]]:
            parts = parts_of_tube(broker, tube)
            jobs_page.now, jobs_page.wall = broker.now, broker.wall
            jobs_page.figures = tube_figures(broker.tubes, tube, jobs_page.now)
            if not parts:
                if after:
                    raise HttpError(400, "INVALID_ARG_AFTER")
                return None, []
            try:
                topic, jobs_page.jobs, jobs_page.following = yield from page_of(parts, after, list_in)
            except ValueError:
                raise HttpError(400, "INVALID_ARG_AFTER") from None
            encode = self._node.job_ids.of_job
            jobs_page.ids = [(broker.tubes.client_id(job), encode(job).decode()) for job in jobs_page.jobs]
            jobs_page.total = sum(part.table.counts[state] for _, part in parts)
            return topic, [job.ordinal for job in jobs_page.jobs]

        await lookup.fetch(choose)
        answer: dict[str, Any] = {"total": jobs_page.total, "jobs": jobs_page.describe(lookup, Bodies(preview))}
        answer |= {"pause_left": jobs_page.figures["pause_left"], "tube": jobs_page.figures}
        if jobs_page.following:
            answer["next"] = jobs_page.following
        return json_response(answer)

    def _acting(self, word: str, action: Action, verb: Verb, does: str) -> Route:
        """Declare the route that does something to jobs."""
        states = {word: state for word, state in _BY_WORD.items() if state in action.states}

        async def handler(request: Request, tube: str, id_: list[str], state: JobState | None, count: int) -> Response:
            broker = self._node.broker
            choose, most = self._choice(id_, state, count)

            def work() -> int:
                changed = 0
                for _, part in parts_of_tube(broker, tube):
                    changed += act(part, action, choose(part)[: most - changed])
                if changed:
                    broker.tubes.leave_empty(tube)
                return changed

            return json_response({action.done: await self._node.bridge.call(work)})

        choice_of_jobs = (listed("id", _read_id, MOST, "ids"), choice("state", states, None), bounded("count", MOST, 0))
        return Route(f"POST /tube/jobs/{word}", handler, Need(verb, "tube"), (TUBE, *choice_of_jobs), does)

    def _choice(self, ids: list[str], state: JobState | None, count: int) -> tuple[Callable[[Tube], list[Job]], int]:
        """Return a function that chooses jobs of a tube, and how many at most. Raises HttpError 400."""
        if ids:
            return (lambda tube: named(tube, dict.fromkeys(self._number_of(tube, one) for one in ids))), MOST
        if state is None:
            raise HttpError(400, "MISSING_ARG_ID")
        if not count:
            raise HttpError(400, "MISSING_ARG_COUNT")
        return (lambda tube: list_jobs(tube.table, state, "", count)[0]), count

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


def _read_id(text: str) -> str:
    if not _JOB_ID.fullmatch(text):
        raise ValueError("not a job's id")
    return text
