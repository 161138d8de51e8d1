"""The pages that say why a request failed, and where to go from there. No page is a dead end."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from admin.nodes.cluster import AllFailed, Outcome
from admin.nodes.upstreams import Refused, UpstreamError
from admin.output.failures import in_words
from shared.http.errors import HttpError
from shared.log import log

FORBIDDEN = "FORBIDDEN"  # the text of an error: the user may not
Ways = list[tuple[tuple[str, ...], str]]  # segments of a path, and the words of the link to it


class Partly(HttpError):
    """A command was done on some nodes, and not on others."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(502, "; ".join(errors))


def check_outcome(outcome: Outcome) -> None:
    """Raise Partly if an action failed on some nodes, or HttpError 502 if it failed on all."""
    if outcome.errors:
        raise Partly(outcome.errors) if outcome.done else HttpError(502, "; ".join(outcome.errors))


def wrong(words: str, advice: str) -> dict[str, Any]:
    """Return the fields of an error page."""
    return {"page_of": "error", "title": "Request failed", "words": words, "advice": advice, "still": True}


def failure(request: Request, error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the status and the fields of a page that says what went wrong."""
    if isinstance(error, HttpError):
        words, advice = error.text, ""
        if error.text == FORBIDDEN:
            words, advice = "Access denied", "Your role or your topics do not allow this."
        return error.status, wrong(words, advice) | {"still": error.status == 403}
    if isinstance(error, AllFailed | UpstreamError):
        words = in_words(str(error))
        if isinstance(error, Refused) and error.status == 404:
            return 404, wrong("Not found on the node.", words) | {"still": False}
        if "TOPIC_NOT_FOUND" in str(error):  # from every nsqlookupd
            return 404, wrong("No nsqlookupd knows this topic.", "It may have been deleted.") | {"still": False}
        return 502, wrong(words, "This page tries again every two seconds.") | {"still": False}
    # Operators need the other pages, and this one once the node's answer can be understood again.
    log.critical("PAGES: %s", request.url.path, exc_info=error)
    return 500, wrong("Internal error in nsqadmin.", "See its log for details.") | {"still": False}


def ways_from(parts: list[str]) -> Ways:
    """Return the pages above a page, the nearest first, without the list of topics. `parts`: the segments of its path."""
    kind, names = parts[0], parts[1:]
    found: Ways = []
    if kind in ("topics", "messages", "body", "configuration", "series") and names:
        if kind in ("messages", "body") and len(names) > 1:
            found.append((("topics", *names[:2]), f"Channel {names[1]}"))
        if kind != "topics" or len(names) > 1:
            found.append((("topics", names[0]), f"Topic {names[0]}"))
    above = {"nodes": "Nodes", "tasks": "Tasks", "tube": "Tubes", "history": "History"}.get(kind, "")
    if above and (names or kind == "tube"):
        found.append((("tubes" if kind == "tube" else kind,), above))
    return found
