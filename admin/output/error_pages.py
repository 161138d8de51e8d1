"""The pages that show why a request failed, with links to other pages."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from admin.nodes.cluster import AllFailed, Outcome
from admin.nodes.upstreams import Refused, UpstreamError
from admin.output.failures import in_words
from shared.http.errors import HttpError
from shared.log import log

FORBIDDEN = "FORBIDDEN"  # the text of an error: the user may not
Ways = list[tuple[tuple[str, ...], str]]  # segments of a path, and the text of the link to it


class Partly(HttpError):
    """A command was done on some nodes, and not on others."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(502, "; ".join(errors))


def check_outcome(outcome: Outcome) -> None:
    """Raise Partly if an action failed on some nodes, or HttpError 502 if it failed on all."""
    if outcome.errors:
        raise Partly(outcome.errors) if outcome.done else HttpError(502, "; ".join(outcome.errors))


def wrong(words: str, advice: str, *, still: bool = True) -> dict[str, Any]:
    """Return the fields of an error page. `still`: it does not try again by itself."""
    return {"page_of": "error", "title": "Request failed", "words": words, "advice": advice, "still": still}


def failure(request: Request, error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the status and the fields of a page that shows the error."""
    status, words, advice = 502, in_words(str(error)), "This page tries again every two seconds."
    if isinstance(error, HttpError):
        status, words, advice = error.status, error.text, ""
        if error.text == FORBIDDEN:
            words, advice = "Access denied", "Your role or your topics do not allow this."
    elif isinstance(error, Refused) and error.status == 404:
        status, words, advice = 404, "Not found on the node.", words
    elif isinstance(error, AllFailed | UpstreamError):
        if "TOPIC_NOT_FOUND" in str(error):  # from every nsqlookupd
            status, words, advice = 404, "No nsqlookupd knows this topic.", "It may have been deleted."
    else:  # a bug; operators need the other pages, and this one once the node's answer can be understood again
        log.critical("PAGES: %s", request.url.path, exc_info=error)
        status, words, advice = 500, "Internal error in nsqadmin.", "See its log for details."
    return status, wrong(words, advice, still=status == 403)


def ways_from(parts: list[str]) -> Ways:
    """Return the pages above a page, the nearest first, without the list of topics. `parts`: the segments of its path."""
    match parts:
        case ["messages" | "body", topic, channel]:
            return [(("topics", topic, channel), f"Channel {channel}"), (("topics", topic), f"Topic {topic}")]
        case ["topics" | "series", topic, _] | ["configuration" | "series", topic]:
            return [(("topics", topic), f"Topic {topic}")]
        case ["nodes" | "tasks" | "history" as kind, _]:
            return [((kind,), kind.capitalize())]
        case ["tube"]:
            return [(("tubes",), "Tubes")]
    return []
