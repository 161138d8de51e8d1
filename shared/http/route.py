"""The declaration of a route. Routing, parsing, rights, the audit and docs/reference/http-routes.md follow from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response

from shared.auth.verbs import Verb
from shared.http.api import Handler, Routes, query
from shared.http.argument import Argument, values_in


@dataclass(frozen=True, slots=True)
class Need:
    """The right that the sender of a request to a route needs, where there is an auth file."""

    verb: Verb | None  # None: none
    # name of the argument with the topic, tube or queue; "": the route is about all of them, or the node
    topic: str = ""
    channel: str = ""  # name of the argument with the channel
    preview: str = ""  # name of the argument that is 0 if no bodies are wanted; else the route needs READ, too
    reading: tuple[str, ...] = ()  # names of arguments with which the route needs READ, too: they ask about bodies
    is_open: bool = False  # any client may, also one without credentials
    target: str = ""  # name of the argument with another topic, on which the route needs PUBLISH
    has_bodies: bool = False  # the answer has bodies of messages: the route needs READ, too
    finishing: str = ""  # name of the argument that lists messages to finish, unless `count` counts them


OPEN = Need(None, is_open=True)
KNOWN = Need(None)  # any client may that the auth file knows
ADMIN = Need(Verb.ADMIN)
STATS = Need(Verb.STATS)


def on_topic(verb: Verb) -> Need:
    """Return the need of a route whose argument `topic` names what it is about."""
    return Need(verb, "topic")


def on_channel(verb: Verb) -> Need:
    """Return the need of a route whose arguments `topic` and `channel` name what it is about."""
    return Need(verb, "topic", "channel")


@dataclass(frozen=True, slots=True)
class Route:
    """One route of a daemon's API."""

    key: str  # method and path, as "GET /stats"; a segment of the path may be a "{parameter}"
    handler: Callable[..., Awaitable[Response]]  # takes the request and, by name, the values of the declared arguments
    need: Need
    arguments: tuple[Argument, ...]  # those in the query
    does: str  # what the route does, in a sentence without a period
    parses_itself: bool = False  # the handler parses the arguments, because NSQ reads the body first

    @property
    def method(self) -> str:
        return self.key.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.key.partition(" ")[2]

    def parsing(self) -> Route:
        """Return the route with a handler that takes a request alone, and parses the arguments in their order.

        It raises HttpError 400.
        """
        if not self.arguments or self.parses_itself:
            return self
        handler, declared = self.handler, self.arguments

        @wraps(handler)
        async def parsed(request: Request) -> Response:
            return await handler(request, **values_in(query(request), declared))

        return replace(self, handler=parsed)


def handlers(routes: Iterable[Route]) -> Routes:
    """Return the handlers of the routes, as Api takes them."""
    found: dict[str, dict[str, Handler]] = {}
    for route in routes:
        found.setdefault(route.path, {})[route.method] = route.handler
    return found
