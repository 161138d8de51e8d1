"""The answers to forms: the reason of a refusal, or the result, for the page that the browser is sent to next.

A result is kept in Flashes and not in the address, so that no link can make a page show a false result. The browser has a
random token of its result in a cookie, and sees it once. Refusals by rights and confirmations are in the audit trail.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from admin.nodes.cluster import AllFailed
from admin.nodes.upstreams import UpstreamError
from admin.output.error_pages import FORBIDDEN, Partly
from admin.output.failures import field_of, in_words
from admin.output.form_state import NONE, FieldError, Refusal
from admin.output.message_filters import NAMES
from admin.users.access import Access, place_of, who_asks
from admin.users.refused_attempts import RefusedAttempts
from shared.http.errors import HttpError
from shared.topic_config import SETTINGS

COOKIE = "nsqadmin_done"
KEPT = 60.0  # s until a page must have asked
MOST = 1000  # of all browsers; the oldest is forgotten first
MOST_TOKEN = 100  # characters
# Arguments of the path that a form's action returns: its result.
_ONCE = ("did", "n", "published", "at", "key")
# Fields of a refused form that are arguments of the page that shows it again.
_ASKED = ("name", "node", "offset", "state", "after", "count", "per_second", "to", *NAMES, *SETTINGS)
_AGAIN = "A node that did not answer may have applied the change, or may apply it later. Check the result."
MOST_ASKED = 500  # characters of each argument

Done = dict[str, str]


@dataclass(slots=True)
class Flashes:
    """The results of forms that no page has shown yet."""

    clock: Callable[[], float]  # s, monotonic
    new_token: Callable[[], str]
    # By token: when it ends, the owner, the path of the page, and the result.
    _kept: OrderedDict[str, tuple[float, str, str, Done]] = field(default_factory=OrderedDict)

    def put(self, owner: str, path: str, done: Done) -> str:
        """Keep a result for the owner's page, and return the token."""
        token = self.new_token()
        self._kept[token] = self.clock() + KEPT, owner, path, done
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return token

    def take(self, token: str, owner: str, path: str) -> Done:
        """Return the result, once; empty if the token is unknown, expired, or of another owner or page."""
        ends, of, where, done = self._kept.get(token[:MOST_TOKEN], (0.0, "", "", {}))
        if not done or (of, where) != (owner, path):
            return {}
        del self._kept[token]
        return done if self.clock() < ends else {}


@dataclass(slots=True)
class FormAnswers:
    """Makes answers to forms, and keeps what they did until a page has shown it."""

    access: Access
    home: str  # the path of the cookie
    attempts: RefusedAttempts
    flashes: Flashes = field(default_factory=lambda: Flashes(time.monotonic, secrets.token_urlsafe))

    def refusal(self, request: Request, form: Mapping[str, str], error: Exception) -> Refusal:
        """Return the refusal of a form: the error, and the values that were typed."""
        typed = {name: value for name, value in form.items() if name != "csrf"}
        if isinstance(error, Partly):
            return Refusal(typed, f"Done on some nodes only. {in_words(error.text)}", "", _AGAIN, error.status)
        if isinstance(error, FieldError):
            if error.field == "confirm":
                self.note_refused(request, form.get("action", ""), "the confirmation does not match", form)
            return Refusal(typed, error.text, error.field, "", error.status)
        if isinstance(error, HttpError) and error.status == 403 and error.text == FORBIDDEN:
            self.note_refused(request, form.get("action", ""), "no right", form)
            return Refusal(typed, f"Access denied. {no_right(request)}", "", "", 403)
        if isinstance(error, HttpError):
            words = in_words(error.text) if error.status == 502 else error.text
            return Refusal(typed, words, field_of(error.text), "", error.status)
        if isinstance(error, AllFailed | UpstreamError):
            field = field_of(str(error))
            return Refusal(typed, in_words(str(error)), field, "" if field else _AGAIN, 502)
        return Refusal(typed, "The form is not valid UTF-8.", "", "", 400)

    def keep(self, request: Request, response: Response, path: str, done: Done) -> None:
        """Keep the result for the page at `path`, and have the response set the cookie that shows it there."""
        token = self.flashes.put(self._owner(request), unquote(path), done)
        self.access.set_cookie(request, response, COOKIE, token, self.home, max_age=int(KEPT))

    def forget(self, response: Response) -> None:
        """Have the response delete the cookie."""
        response.delete_cookie(COOKIE, path=self.home or "/")

    def take_flash(self, request: Request) -> None:
        """Take the result of this browser's form, if this is the page that shows it."""
        token = request.cookies.get(COOKIE, "")
        if token and not refusal_of(request).text:
            request.state.done = self.flashes.take(token, self._owner(request), request.scope["path"])

    def _owner(self, request: Request) -> str:
        """Return the owner of the flash: the session, or the user and the address."""
        who = who_asks(request)
        return who.csrf or f"{who.name} at {self.access.remote(request)}"

    def note_refused(self, request: Request, action: str, words: str, form: Mapping[str, str] | None = None) -> None:
        """Record an attempt that was refused. `words`: the reason."""
        named = form or {}
        target = "/".join(place_of(request)) or named.get("topic") or named.get("name") or request.scope["path"]
        target += f" at {named['node']}" if named.get("node") else ""
        self.attempts.note(action, target, self.access.actor(request), words)


def no_right(request: Request) -> str:
    """Return the reason for which the user may not use a page or form."""
    return f"Your role ({who_asks(request).role}) or your topics do not allow this."


def split_result(where: str) -> tuple[str, str, Done]:
    """Return the path of the page that an action leads to, its address with the query, and the result."""
    path, _, asked = where.partition("?")
    arguments = parse_qsl(asked, keep_blank_values=True)
    kept = urlencode([(name, value) for name, value in arguments if name not in _ONCE])
    return path, f"{path}?{kept}" if kept else path, {name: value for name, value in arguments if name in _ONCE}


def done_of(request: Request) -> Done:
    """Return the result of the form that this browser has just sent, for the page that shows it; empty for all others."""
    found: Done = getattr(request.state, "done", {})
    return found


def refuse_field(request: Request, typed: Mapping[str, str], error: FieldError) -> None:
    """Have a page that was asked for by GET show a form with this error, and answer with its status."""
    if not refusal_of(request).text:
        request.state.refusal = Refusal(typed, error.text, error.field, "", error.status)


def refusal_of(request: Request) -> Refusal:
    """Return the refusal of this request's form; without a text if it was not refused."""
    found: Refusal = getattr(request.state, "refusal", NONE)
    return found


def asked_again(form: Mapping[str, str]) -> dict[str, str]:
    """Return the query of the page that shows a refused form again."""
    asked = {name: form[name][:MOST_ASKED] for name in _ASKED if name in form}
    return asked | {"many": form.get("action", "")} if "count" in form else asked
