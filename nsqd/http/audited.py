"""Record in the audit what is changed over HTTP, and what is refused.

A route is recorded if it changes something, or needs the right ADMIN: backups, options, debug. Publishing and consuming are
not. A refusal of any route is recorded, whatever the route does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from shared.audit.event import UNKNOWN, Event, Note, Outcome
from shared.auth.verbs import Verb
from shared.http.api import Handler, query
from shared.http.errors import HttpError
from shared.http.route import Need, Route

_CHANGES = (Verb.ACT, Verb.CREATE, Verb.CONFIGURE, Verb.DELETE)
_COUNTED = (Verb.ACT, Verb.DELETE)
_REFUSALS = {401: Outcome.REFUSED, 403: Outcome.REFUSED, 429: Outcome.THROTTLED}
_NAMES = ("name", "to", "id", "offset", "node", "log", "client")  # other arguments that say what a request is about
MOST_COUNT = 100  # bytes of an answer such as {"deleted": 3}


def audited(routes: Iterable[Route], note: Note) -> list[Route]:
    """Return the routes with handlers that note the requests and refusals in the audit trail."""
    return [replace(route, handler=_audited(route, note)) for route in routes]


def is_recorded(route: Route) -> bool:
    """Return whether what a route does is recorded, not only its refusals."""
    verb = route.need.verb
    return verb is Verb.ADMIN or (route.method != "GET" and verb in _CHANGES)


def _audited(route: Route, note: Note) -> Handler:
    place, _, parameter = route.path.removeprefix("/").partition("/{")
    action = place if route.method == "POST" else f"{route.method} {place}"
    need, handler, does_record = route.need, route.handler, is_recorded(route)

    def record(request: Request, outcome: Outcome, count: int = UNKNOWN) -> None:
        identity = getattr(request.state, "identity", None)
        note(
            Event(
                request.url.scheme,
                action,
                _target(request, need, bool(parameter)),
                outcome,
                who=identity.name if identity is not None else "",
                by=identity.kind if identity is not None else "",
                user=getattr(request.state, "user", ""),
                address=request.client.host if request.client is not None else "",
                count=count,
            )
        )

    async def recorded(request: Request) -> Response:
        try:
            response = await handler(request)
        except HttpError as error:
            outcome = _REFUSALS.get(error.status, Outcome.FAILED)
            if does_record or outcome is not Outcome.FAILED:
                record(request, outcome)
            raise
        except BaseException:  # the client is gone, the daemon stops, or a bug: it may have been done in part
            if does_record:
                record(request, Outcome.UNCERTAIN)
            raise
        if does_record:
            record(request, Outcome.DONE, _count_of(response) if need.verb in _COUNTED else UNKNOWN)
        return response

    return recorded


def _target(request: Request, need: Need, has_option: bool) -> str:
    """Return the names in a request: of an option, which the path ends with, of topic and channel, jobs, node."""
    try:
        arguments = query(request)
    except HttpError:
        return ""  # it was answered with that error
    names = [name for name in (need.topic, need.channel, *_NAMES) if name]
    option = [request.scope["path"].rpartition("/")[2]] if has_option else []
    return " ".join(filter(None, [*option, *(arguments.get(name, "") for name in names)]))


def _count_of(response: Response) -> int:
    """Return the number in an answer that has nothing but a number, such as {"deleted": 3}."""
    body = getattr(response, "body", b"")
    if not body.startswith(b"{") or len(body) > MOST_COUNT:
        return UNKNOWN
    answer = json.loads(body)
    if len(answer) != 1:
        return UNKNOWN
    (number,) = answer.values()
    return number if type(number) is int else UNKNOWN
