"""The common parts of all pages: layout, live part, exports, refusals, and the check that forms are nsqadmin's own.

A view returns fields: "page_of" names its template (NAME_live.html, and NAME.html if there is more than the live part),
"title", and what the templates need. Pages with "still" do not refresh; "table" is what ?format=csv and ?format=json return.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from admin.nodes.cluster import AllFailed
from admin.nodes.upstreams import UpstreamError
from admin.nodes.views import FILTERS
from admin.options import AdminOptions
from admin.output import tables
from admin.output.error_pages import FORBIDDEN, failure, ways_from, wrong
from admin.output.export import exported
from admin.output.failures import sentences
from admin.output.form_answers import Done, FormAnswers, asked_again, done_of, no_right, refusal_of, split_result
from admin.output.form_state import LIMITS
from admin.output.live_events import live_events
from admin.users.access import Access, check_origin, place_of, who_asks
from admin.users.roles import NEEDED
from shared.http.api import Handler, query, read_body
from shared.http.errors import HttpError
from shared.text import without_surrogates
from shared.version import PENSTOCK_VERSION

if TYPE_CHECKING:
    import jinja2

HERE = Path(__file__).parent.parent
EVERY = 2.0  # s between two refreshes of a page
MOST_STREAMS, MOST_STREAMS_OF_ONE = 500, 50
LAST_WORDS = 0.2  # s for the end of a stream when nsqadmin stops
MOST_FORM = 1024 * 1024 + 65536  # bytes
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"
    " data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NAVIGATION = (  # paths, labels, and the letters that open the pages after g; Cluster is hidden without a cluster
    ("/", "Topics", "t"), ("/alarms", "Alarms", "m"), ("/nodes", "Nodes", "n"), ("/cluster", "Cluster", "o"),
    ("/storage", "Storage", "s"), ("/tubes", "Tubes", "u"), ("/readers", "Readers", "r"),
    ("/schedules", "Schedules", "e"), ("/batches", "Batches", "b"), ("/history", "History", "h"),
    ("/tasks", "Tasks", "k"), ("/lookup", "Lookup", "l"), ("/counter", "Counter", "c"), ("/audit", "Audit", "a"),
)  # fmt: skip
DID = {
    "publish": "Published.", "create": "Created.", "pause": "Paused.", "unpause": "Unpaused.", "empty": "Emptied.",
    "delete": "Deleted.", "tombstone": "Tombstoned.", "drain": "Draining started.",
    "undrain": "The node accepts messages again.", "forget": "The node is forgotten.",
    "configure": "Settings changed.",
    "promote": "The node is a candidate for the log. This page shows the result.",
    "finish": "Finished", "requeue": "Requeued", "kick": "Kicked", "bury": "Buried", "deletejob": "Deleted",
    "release": "Released", "cancel": "Cancelled.", "dismiss": "The node is dismissed.", "snooze": "Snoozed.",
    "wake": "Unsnoozed.", "set-alarms": "Thresholds saved.", "move": "Moved", "redrive": "Moved", "republish": "Published.",
    "disconnect": "The client is disconnected. What it had in flight is ready again.",
}  # fmt: skip

Fields = dict[str, Any]
View = Callable[[Request], Awaitable[Fields]]
Form = dict[str, str]
Do = Callable[[Request, Form], Awaitable[str]]  # returns the path to go to next


@cache
def _sources() -> dict[str, tuple[str, str, None]]:
    """Return the text and path of each template, read at the start: an upgrade does not mix its files with this code."""
    paths = (HERE / "templates").glob("*.html")
    return {path.name: (path.read_text(encoding="utf-8"), str(path), None) for path in paths}


@cache
def _environment() -> jinja2.Environment:
    """Return the templates, which all clusters share. Each is compiled at its first use: all take longer than a start."""
    import jinja2  # here, because a start needs no page

    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(_sources().get), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    found.filters |= FILTERS
    found.globals |= {**LIMITS, "tables": tables}
    return found


@dataclass(slots=True)
class PageRenderer:
    """Turns views and form actions into request handlers with a common layout and common error pages."""

    options: AdminOptions
    access: Access
    banners: Callable[[Request], Awaitable[Fields]]  # fields that appear above every page
    home: str  # the base path of the login page
    answers: FormAnswers
    clusters: tuple[tuple[str, str], ...] = ()  # names and paths of all clusters, if several are shown
    _streams: Counter[str] = field(default_factory=Counter)  # open streams, by user or address

    def __post_init__(self) -> None:
        """Read the templates, so that an error in one of them stops the start."""
        _sources()

    @property
    def base(self) -> str:
        """The prefix of all paths, without the trailing slash."""
        return self.options.base_path.rstrip("/")

    @property
    def open_streams(self) -> int:
        """The number of pages that update now."""
        return self._streams.total()

    def url(self, *parts: str, **arguments: object) -> str:
        """Return the path and query of a page."""
        asked = FILTERS["arguments"](arguments)
        return f"{self.base}/{'/'.join(map(FILTERS['segment'], parts))}{'?' if asked else ''}{asked}"

    async def asset(self, request: Request) -> Response:
        """Return a static file. Its name has no slash, so a path cannot leave the directory."""
        path = HERE / "static" / request.scope["path"].rpartition("/")[2]
        if path.suffix not in _TYPES or not path.is_file():
            raise HttpError(404, "NOT_FOUND")
        headers = {"Cache-Control": "public, max-age=3600"}
        return Response(path.read_bytes(), media_type=_TYPES[path.suffix], headers=headers)

    def page_handler(self, view: View, every: float = EVERY) -> Handler:
        """Return a handler for a page; ?live streams its live part again and again, and ?format exports its table."""

        async def handler(request: Request) -> Response:
            try:
                asked = query(request)
                if "live" in asked:
                    release = self._admit_stream(request)
                    return _Stream(self._stream(request, view, every), release)
                self.answers.take_flash(request)
                status, fields = await self._fields(request, view)
                if "format" in asked and status == 200:
                    return exported(fields, asked["format"], HEADERS)
            except HttpError as error:
                status, fields = error.status, wrong(error.text, "")
            refusal = refusal_of(request)
            if refusal.text:  # the page of the form; or, if that cannot be shown, an error page with the refusal
                status = refusal.status
                fields = fields if fields["page_of"] != "error" else wrong(refusal.text, refusal.advice)
            response = self.page(request, fields, status)
            if done_of(request):
                self.answers.forget(response)
            return response

        return handler

    def raw_handler(self, handler: Handler) -> Handler:
        """Return a handler whose errors are shown as a page, though its answer is none."""

        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception as error:
                status, fields = failure(request, error)
                return self.page(request, fields | {"still": True}, status)

        return guarded

    def form_handler(self, do: Do, path: str, shown: Handler) -> Handler:
        """Return a handler for a form that runs `do`, then redirects to the path that it returns.

        A refused form is shown again on its page, with the typed values. `path`: the route; `shown`: the handler of the page.
        """

        async def handler(request: Request) -> Response:
            form: Form = {}
            try:
                form = await self.form_of(request)
                where = await do(request, form)
            except (HttpError, AllFailed, UpstreamError, ValueError) as error:
                request.state.refusal = refusal = self.answers.refusal(request, form, error)
                if not who_asks(request).meets(NEEDED[f"GET {path}"], *place_of(request)):
                    return self.page(request, wrong(refusal.text, refusal.advice), refusal.status)
                asked = urlencode(asked_again(form)).encode()
                return await shown(Request({**request.scope, "method": "GET", "query_string": asked}, request.receive))
            path_to, location, done = split_result(where)
            response = RedirectResponse(location, 303, HEADERS)
            if done:
                self.answers.keep(request, response, path_to, done)
            return response

        return handler

    async def form_of(self, request: Request) -> Form:
        """Return the fields of a form. Raises HttpError 403 unless nsqadmin's own page sent it, with the session's token."""
        check_origin(request)
        body = await read_body(request, MOST_FORM, "The form is too large.")
        form = dict(parse_qsl(body.decode(), keep_blank_values=True))
        csrf = who_asks(request).csrf
        if csrf and form.get("csrf") != csrf:
            raise HttpError(403, "The form belongs to another session. Reload the page and try again.")
        return form

    async def refuse(self, request: Request, error: HttpError) -> Response:
        """Return the answer to a user without the right: a redirect to the login page if that helps, or else an error page."""
        if error.status == 401 and (request.method != "GET" or "live" in query(request)):
            return self.page(request, wrong("You are not logged in, or your session has ended.", ""), 401)
        if error.status == 401:
            here = request.scope["path"] + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(self._login_url(here), 303, HEADERS)
        self.answers.note_refused(request, f"{request.method} {request.scope['path']}", "no right")
        return self.page(request, wrong("Access denied", no_right(request)), 403)

    async def not_found(self, request: Request, error: HttpError) -> Response | None:
        """Return the page for an unknown path or method, or None for a program, which gets JSON. Record refusals by rights."""
        if error.status == 403 and error.text == FORBIDDEN:
            self.answers.note_refused(request, f"{request.method} {request.scope['path']}", "no right")
        is_api = request.scope["path"].startswith(f"{self.base}/api/")
        if is_api or error.status not in (404, 405) or "text/html" not in request.headers.get("accept", ""):
            return None
        try:
            request.state.who = self.access.who(request, is_use=False)
        except HttpError:
            return None
        words = "Page not found" if error.status == 404 else "This page does not accept such a request"
        return self.page(request, wrong(words, f"nsqadmin has no page {request.scope['path'][:200]}."), error.status)

    def page(self, request: Request, fields: Fields, status: int = 200) -> Response:
        """Return the whole page for the fields of a view."""
        was_wrong = {"wrong": 1} if fields["page_of"] == "error" else {}
        live = "" if fields.get("still") else "?" + FILTERS["arguments"]({**query(request), "live": 1, **was_wrong})
        name = f"{fields['page_of']}.html" if f"{fields['page_of']}.html" in _sources() else "layout.html"
        html = self._render(name, request, {"live": live} | fields)
        return Response(html, status, HEADERS, "text/html; charset=utf-8")

    def _render(self, template: str, request: Request, fields: Fields) -> str:
        values = self._common(request) | {"content": f"{fields['page_of']}_live.html"} | fields
        return without_surrogates(_environment().get_template(template).render(**values))

    async def _fields(self, request: Request, view: View) -> tuple[int, Fields]:
        """Return the status and fields of the view, or of the error page if it failed."""
        try:
            fields = await view(request)
            fields["errors"] = sentences(fields.get("errors", ()))
            return 200, await self.banners(request) | fields
        except Exception as error:
            return failure(request, error)

    def _admit_stream(self, request: Request) -> Callable[[], None]:
        """Count a live stream of the user, and return a function that ends it. Raises HttpError 503 at the limit."""
        owner = who_asks(request).name or self.access.remote(request)
        if self._streams.total() >= MOST_STREAMS or self._streams[owner] >= MOST_STREAMS_OF_ONE:
            raise HttpError(503, "Too many open pages update at the same time. Close some of them.")
        self._streams[owner] += 1

        def release() -> None:
            self._streams -= Counter([owner])  # without owners that have none

        return release

    def _stream(self, request: Request, view: View, every: float) -> AsyncIterator[str]:
        """Return the events of a live page. It ends when the user may no longer see the page."""
        was_wrong = "wrong" in query(request)

        async def look() -> tuple[str, bool]:
            is_open = not await request.is_disconnected()
            try:
                request.state.again()
                status, fields = await self._fields(request, view)
                if status == 200 and was_wrong:  # the rest of the page differs, so it has to be loaded again
                    fields = {"page_of": "again"}
            except HttpError as error:
                is_open = False
                fields = {"page_of": "ended"}
                if error.status != 401:
                    fields = wrong("You no longer have access to this page.", "")
            return self._render("live.html", request, fields), is_open

        return live_events(look, every, request.headers.get("last-event-id", ""))

    def _common(self, request: Request) -> Fields:
        """Return the fields that all templates have; a view and the banners add to them, and replace some."""
        who, asked = who_asks(request), query(request)
        token = Markup('<input type="hidden" name="csrf" value="{}">').format(who.csrf) if who.csrf else ""
        return {
            "base": self.base, "home": self.home, "here": self.url(*parameters(request, self.options)),
            "query": {name: value for name, value in asked.items() if name not in ("live", "wrong")},
            "who": who, "may": who.offered(*place_of(request)), "token": token, "now": time.time_ns(),
            "can_log_in": self.access.has_users and not who.session, "shows_health": who.meets(NEEDED["GET /health"]),
            "navigation": [
                one for one in _NAVIGATION
                if who.meets(NEEDED[f"GET {one[0]}"]) and (one[0] != "/history" or self.options.lake)
            ],
            "clusters": self.clusters, "cluster": next((name for name, path in self.clusters if path == self.base), ""),
            "done": done_of(request), "did": _did(done_of(request)), "refused": refusal_of(request),
            "ways": self._ways(request), "crumbs": self._crumbs(request), "version": f"Penstock {PENSTOCK_VERSION}",
            "errors": (), "table": None,
            "has_cluster": False, "paused": (), "paused_tubes": (), "stale": (), "down": (), "more_down": 0,
            "alarm_counts": {}, "alarm_count": 0, "alarm_groups": (), "alarms_here": (),
        }  # fmt: skip

    def _crumbs(self, request: Request) -> list[tuple[str, str]]:
        """Return the links of the pages above this one, the topmost first."""
        parts = parameters(request, self.options)
        found = [(self.url(*segments), words) for segments, words in reversed(ways_from(parts))]
        is_below = parts[0] in ("messages", "configuration", "republish", "topics") and len(parts) > 1
        return [(self.url(), "Topics"), *found] if is_below else found

    def _ways(self, request: Request) -> list[tuple[str, str]]:
        """Return the links of an error page: to the page itself or the form, to those above it, and to Topics."""
        parts, who, refusal = parameters(request, self.options), who_asks(request), refusal_of(request)
        found = [(self.url(*segments), words) for segments, words in ways_from(parts)]
        if refusal.text or request.method != "GET":
            found.insert(0, (self.url(*parts, **asked_again(refusal.typed)), "Back to the page"))
        if who.meets(NEEDED["GET /"]):
            found.append((self.url(), "Topics"))
        if self.access.has_users and not who.session:
            found.append((self._login_url(self.url(*parts)), "Log in"))
        return found

    def _login_url(self, following: str) -> str:
        return f"{self.home}/login?{FILTERS['arguments']({'next': following})}"


class _Stream(StreamingResponse):
    """A response of server-sent events. It calls `release` when it ends, even if it never began."""

    def __init__(self, parts: AsyncIterator[str], release: Callable[[], None]) -> None:
        super().__init__(parts, media_type="text/event-stream", headers=HEADERS)
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # nsqadmin is stopping; uvicorn would log this as an error of the page
            with suppress(RuntimeError, TimeoutError):  # it may not have begun, or the client may not read
                async with asyncio.timeout(LAST_WORDS):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._release()


def _did(done: Done) -> tuple[str, bool]:
    """Return the result of the last form in words, and whether it changed anything."""
    if done.get("n") == "0":
        return "Nothing was changed: the message or job no longer exists, or it is in another state.", False
    count = f" {int(done['n']):,}" if "n" in done else ""
    return DID.get(done.get("did", ""), "") + count, True


def parameters(request: Request, options: AdminOptions, count: int = 0) -> list[str]:
    """Return the last segments of the path, after /api or the base path: the kind of page, then the parameters."""
    parts: list[str] = request.scope["path"].removeprefix(options.base_path.rstrip("/")).strip("/").split("/")
    parts = parts[1:] if parts[0] == "api" else parts
    assert not count or len(parts) == count
    return parts
