"""/schedule and /schedules: messages that a node publishes again and again, or once at a time (nsqd/core/scheduling).

    POST /schedule?topic=t&name=n&cron=30+6+*+*+MON[&timezone=Europe/Berlin]   the body is the message's
    POST /schedule?topic=t&name=n&every=10m                                    counted from this request
    POST /schedule?topic=t&name=n&at=2027-01-01T00:00:00Z                      once; then the schedule is gone
    GET  /schedule?topic=t&name=n[&body=true]
    POST /schedule/delete?topic=t&name=n                                       and /schedule/pause, /schedule/unpause
    GET  /schedules[?topic=t][&limit=100][&after=PLACE]

The first three add a schedule, or replace the topic's one of that name. They take `missed=skip|once|all`, and the headers
X-Nsq-Header-NAME as /pub does. A change is as safe as a message of the topic before the answer, which is empty. To add a
schedule needs the right to publish, too.

    {"topic": "t", "name": "n", "cron": "30 6 * * MON", "timezone": "Europe/Berlin", "missed": "once", "paused": false,
     "next": S, "last": S, "body_size": 12}

`next` is the next tick, in s since the epoch; 0: the schedule is paused. `last` is the last one that was published or skipped
since the schedule was added or unpaused; 0: none was. With `body`, "body" has it in base64, and "headers" the headers. `every`
and `at` are shown as they are given. The list is sorted by topic and name; its `after` is the place of the next page, "" on the
last one.

400 INVALID_BATCH for the headers `batch` and `after`, INVALID_UNIQUE for `unique`, INVALID_DELIVER_AT for `deliver-at`;
INVALID_ARG_CRON also for an expression that matches no day of the next 50 years, INVALID_ARG_AT for a time that is over. 404
SCHEDULE_NOT_FOUND. 503 TOO_MANY_SCHEDULES beyond -max-schedules, or 64 MiB of all bodies and headers together.
"""

import base64
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.message.deliver_at import LONGEST, read_time
from nsqd.core.scheduling.recurrence import At, Every, Recurrence, find_zone, read_cron
from nsqd.core.scheduling.schedules import Schedules
from nsqd.core.scheduling.table import Key, Missed, Schedule
from nsqd.http.arguments import ANY_TOPIC, TOPIC, page_after, topic_to_publish_to
from nsqd.http.node import Node
from nsqd.http.publish import read_headers
from penstock.protocol.headers import AFTER, BATCH, DELIVER_AT, UNIQUE
from shared.auth.verbs import Verb
from shared.http.api import empty_response, json_response, read_body
from shared.http.argument import Argument, any_text, bounded, choice, duration, flag, legal_name
from shared.http.errors import HttpError
from shared.http.route import Need, Route, on_topic
from shared.values import SECOND, format_duration

LIMIT, MOST = 100, 1000  # schedules in an answer: without `limit`, and at most
MOST_BYTES = 64 << 20  # of the bodies and headers of all schedules, which are in memory and in each checkpoint
NAME = legal_name("name")
# a tick has a time and a key of its own, and belongs to no batch
REFUSED = {BATCH: "INVALID_BATCH", AFTER: "INVALID_BATCH", UNIQUE: "INVALID_UNIQUE", DELIVER_AT: "INVALID_DELIVER_AT"}


def _read_at(text: str) -> int:
    """Return the time in s since the epoch, rounded up. Raises ValueError."""
    return ceil(read_time(text))


WHEN = (
    any_text("cron", None),
    any_text("timezone", None),
    duration("every", None, SECOND, LONGEST * SECOND),
    Argument("at", _read_at, None, "a time as in RFC 3339"),
)
MISSED = choice("missed", {one.value: one for one in Missed}, Missed.ONCE)


class ScheduleRoutes:
    """The routes that change and show schedules."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def _schedules(self) -> Schedules:
        return self._node.broker.context.schedules

    def routes(self) -> list[Route]:
        change, show = on_topic(Verb.CONFIGURE), Need(Verb.STATS, "topic", reading=("body",))
        return [
            Route("POST /schedule", self.put, Need(Verb.CONFIGURE, "topic", target="topic"), (TOPIC, NAME, *WHEN, MISSED),
                  "Publish the body by `cron`, `every` so often, or `at` a time"),
            Route("GET /schedule", self.show, show, (ANY_TOPIC, NAME, flag("body", ("true", "1"))), "Return a schedule"),
            Route("POST /schedule/delete", self.delete, change, (ANY_TOPIC, NAME), "Delete a schedule"),
            Route("POST /schedule/pause", self._pausing(True), change, (ANY_TOPIC, NAME), "Publish nothing by a schedule"),
            Route("POST /schedule/unpause", self._pausing(False), change, (ANY_TOPIC, NAME),
                  "Publish by a schedule again, from its next tick on"),
            Route("GET /schedules", self.list, on_topic(Verb.STATS),
                  (any_text("topic", ""), bounded("limit", MOST, LIMIT, 1), any_text("after", "")),
                  "List the schedules of a topic, or of all"),
        ]  # fmt: skip

    async def put(self, request: Request, topic: str, name: str, missed: Missed, **when: Any) -> Response:
        """Add a schedule, or replace the topic's one of that name; answer when that is durable."""
        body = await read_body(request, self._node.options.max_msg_size, "MSG_TOO_BIG")
        if not body:
            raise HttpError(400, "MSG_EMPTY")
        headers, schedules = read_headers(request), self._schedules
        refused = next((REFUSED[name] for name, _ in headers if name in REFUSED), None)
        if refused is not None:
            raise HttpError(400, refused)
        now = await self._node.bridge.observe(self._now)
        recurrence = _recurrence(now, **when)
        schedule = Schedule(topic, name, recurrence, missed, body, headers, now)

        def act() -> bool:
            before = schedules.known.get(schedule.key)
            size = schedules.size + schedule.size - (before.size if before is not None else 0)
            if size > MOST_BYTES or (before is None and len(schedules.known) >= self._node.options.max_schedules):
                raise HttpError(503, "TOO_MANY_SCHEDULES")
            to = topic_to_publish_to(self._node, request, topic)
            schedules.put(schedule)
            self._promise(topic)
            return to.starting

        await self._node.until_started()
        if await self._node.bridge.call(act):
            await self._node.registered(topic)
        return empty_response()

    async def delete(self, request: Request, topic: str, name: str) -> Response:
        """Delete a schedule, and answer when that is durable."""

        def act() -> None:
            self._schedules.remove(self._existing(topic, name).key)
            self._promise(topic)

        await self._node.bridge.call(act)
        return empty_response()

    def _pausing(self, paused: bool) -> Callable[..., Awaitable[Response]]:
        async def handler(request: Request, topic: str, name: str) -> Response:
            def act() -> None:
                schedule = self._existing(topic, name)
                if schedule.paused != paused:
                    self._schedules.put(replace(schedule, paused=paused, since=self._now()))
                    self._promise(topic)

            await self._node.bridge.call(act)
            return empty_response()

        return handler

    async def show(self, request: Request, topic: str, name: str, body: bool) -> Response:
        """Answer one schedule as a JSON object, with its body and headers if they are asked for."""
        found = await self._node.bridge.observe(lambda: (self._existing(topic, name), *self._ticks((topic, name))))
        return json_response(_describe(*found, with_body=body))

    async def list(self, request: Request, topic: str, limit: int, after: str) -> Response:
        """Answer a page of the schedules of one topic, or of all topics."""
        schedules, bridge = self._schedules, self._node.bridge
        keys = [key for key in await bridge.observe(lambda: list(schedules.known)) if not topic or key[0] == topic]
        after_topic, _, after_name = after.partition("/")
        page, last = page_after(keys, (after_topic, after_name), limit)

        def find() -> list[tuple[Schedule, int, int]]:
            return [(schedules.known[key], *self._ticks(key)) for key in page if key in schedules.known]

        found = [_describe(*one) for one in await bridge.observe(find)]
        return json_response({"schedules": found, "count": len(keys), "after": "/".join(last or ())})

    def _promise(self, topic: str) -> None:
        """Have the answer wait until the change has as many copies as a message of the topic."""
        if (to := self._node.broker.topics.get(topic)) is not None:
            to.journal.promise()

    def _ticks(self, key: Key) -> tuple[int, int]:
        return self._schedules.next_tick(key), self._schedules.last_tick(key)

    def _now(self) -> int:
        return self._node.broker.wall // SECOND

    def _existing(self, topic: str, name: str) -> Schedule:
        schedule = self._schedules.known.get((topic, name))
        if schedule is None:
            raise HttpError(404, "SCHEDULE_NOT_FOUND")
        return schedule


def _recurrence(now: int, cron: str | None, timezone: str | None, every: int | None, at: int | None) -> Recurrence:
    """Return the recurrence that a request at `now` asks for. Raises HttpError 400."""
    given = [one for one in (cron, every, at) if one is not None]
    if len(given) != 1:
        raise HttpError(400, "CRON_EVERY_OR_AT" if given else "MISSING_ARG_CRON")
    if timezone is not None and cron is None:
        raise HttpError(400, "INVALID_ARG_TIMEZONE")
    if at is not None:
        return _due(At(at), now, "INVALID_ARG_AT")
    if every is not None:
        if every % SECOND:
            raise HttpError(400, "INVALID_ARG_EVERY")
        return Every(every // SECOND, now)
    assert cron is not None
    zone = timezone if timezone is not None else "UTC"
    try:
        find_zone(zone)
    except ValueError:
        raise HttpError(400, "INVALID_ARG_TIMEZONE") from None
    try:
        return _due(read_cron(cron, zone), now, "INVALID_ARG_CRON")
    except ValueError:
        raise HttpError(400, "INVALID_ARG_CRON") from None


def _due(recurrence: Recurrence, now: int, error: str) -> Recurrence:
    """Return the recurrence. Raises HttpError 400 if it is never due."""
    if recurrence.next_after(now) is None:
        raise HttpError(400, error)
    return recurrence


def _describe(schedule: Schedule, following: int, last: int, with_body: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topic": schedule.topic,
        "name": schedule.name,
        **_describe_recurrence(schedule.recurrence),
        "missed": schedule.missed.value,
        "paused": schedule.paused,
        "next": following,
        "last": last,
        "body_size": len(schedule.body),
    }
    if with_body:
        found |= {"headers": dict(schedule.headers), "body": base64.b64encode(schedule.body).decode()}
    return found


def _describe_recurrence(recurrence: Recurrence) -> dict[str, str]:
    if isinstance(recurrence, At):
        return {"at": datetime.fromtimestamp(recurrence.time, UTC).isoformat().replace("+00:00", "Z")}
    if isinstance(recurrence, Every):
        return {"every": format_duration(recurrence.period * SECOND)}
    return {"cron": recurrence.expression, "timezone": recurrence.timezone}
