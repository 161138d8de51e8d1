"""Which routes of nsqd leave a record, and what is in it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from nsqd.http.audited import audited, is_recorded
from shared.audit.event import UNKNOWN, Event, Outcome
from shared.auth.auth_file import Identity
from shared.auth.rules import NOTHING
from shared.http.api import json_response
from shared.http.errors import HttpError
from tests.cases import each
from tests.declared_routes import NSQD

ANN = Identity("ann", "token", (), NOTHING)


def asked(
    route: str,
    query: str = "",
    handler: Callable[[Request], Awaitable[Response]] | None = None,
    path: str = "",
    answer: Response | None = None,
) -> list[Event]:
    """Return the records of a request in the audit."""
    events: list[Event] = []

    async def usual(request: Request) -> Response:
        request.state.identity, request.state.user = ANN, "bob"
        return answer or Response()

    scope = {
        "type": "http", "method": NSQD[route].method, "path": path or NSQD[route].path, "query_string": query.encode(),
        "headers": [], "scheme": "https", "client": ("192.0.2.1", 5), "server": ("127.0.0.1", 4151), "state": {},
    }  # fmt: skip
    (recorded,) = audited([replace(NSQD[route], handler=handler or usual)], events.append)
    try:
        asyncio.run(recorded.handler(Request(scope)))
    except (HttpError, ZeroDivisionError):
        pass
    return events


def test_a_record_says_who_did_what() -> None:
    assert asked("POST /channel/delete", "topic=orders&channel=api") == [
        Event("https", "channel/delete", "orders api", Outcome.DONE, "ann", "token", "bob", "192.0.2.1")
    ]


def test_which_routes_are_recorded() -> None:
    recorded = {key for key, route in NSQD.items() if is_recorded(route)}
    gets = {route for route in recorded if route.startswith("GET ") and not route.startswith("GET /debug")}
    assert gets == {"GET /backup", "GET /config/{option}"}
    others = {route for route in NSQD if not route.startswith("GET ")} - recorded
    consuming = {f"POST /channel/{verb}" for verb in ("receive", "finish", "requeue", "touch")}
    assert others == consuming | {
        "POST /pub",
        "POST /mpub",
        "POST /batch/close",
        "POST /topic/cursor",
    }  # a cursor is what a reader acknowledges
    assert {bool(asked(route)) for route in recorded} == {True}
    assert {bool(asked(route)) for route in set(NSQD) - recorded} == {False}


@each("route, query, target, path", [
    ("PUT /config/{option}", "", "log_level", "/config/log_level"),
    ("POST /channel/messages/move", "topic=a&channel=b&to=c&state=ready&count=5", "a b c", ""),
    ("POST /tube/jobs/kick", "tube=mail&id=1,2", "mail 1,2", ""), ("POST /cluster/forget", "node=3", "3", ""),
    ("POST /topic/delete", "topic=%zz", "", ""), ("POST /node/drain", "topic=%zz&secret=x", "", ""),
    ("POST /topic/delete", "topic=a%0Ab", "a\nb", ""),
])  # fmt: skip
def test_what_a_request_is_about(route: str, query: str, target: str, path: str) -> None:
    assert [event.target for event in asked(route, query, path=path)] == [target]


@each("route, answer, count", [
    ("POST /tube/jobs/kick", json_response({"kicked": 3}), 3),
    ("POST /channel/messages/finish", json_response({"finished": 0}), 0),
    ("POST /channel/messages/finish", json_response({"finished": 1, "other": 2}), UNKNOWN),
    ("POST /channel/messages/finish", json_response({"finished": True}), UNKNOWN),
    ("POST /channel/messages/finish", json_response({"finished": "3"}), UNKNOWN),
    ("POST /topic/empty", Response(), UNKNOWN),
    ("POST /cluster/forget", json_response({"forgotten": 3}), UNKNOWN),
    ("GET /backup", StreamingResponse(iter(())), UNKNOWN),
])  # fmt: skip
def test_how_many(route: str, answer: Response, count: int) -> None:
    assert [event.count for event in asked(route, answer=answer)] == [count]


@each("route", ["POST /pub", "GET /stats", "POST /topic/delete", "GET /metrics"])
@each("status, outcome", [(401, Outcome.REFUSED), (403, Outcome.REFUSED), (429, Outcome.THROTTLED)])
def test_each_refusal_is_recorded(route: str, status: int, outcome: Outcome) -> None:
    async def refuse(request: Request) -> Response:
        raise HttpError(status, "NO")

    ((one),) = asked(route, "topic=t", refuse)
    assert (one.outcome, one.who) == (outcome, "")


def test_what_fails_is_recorded_where_it_would_be() -> None:
    async def fail(request: Request) -> Response:
        raise HttpError(404, "TOPIC_NOT_FOUND")

    async def break_down(request: Request) -> Response:
        raise ZeroDivisionError

    for handler, outcome in ((fail, Outcome.FAILED), (break_down, Outcome.UNCERTAIN)):
        assert [event.outcome for event in asked("POST /topic/delete", "topic=t", handler)] == [outcome]
        assert asked("POST /pub", "topic=t", handler) == []
