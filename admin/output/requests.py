"""Common functions of the handlers of forms: confirmations, headers, names, and a wrapper that renews pages."""

from __future__ import annotations

import re

from starlette.requests import Request

from admin.nodes.response_cache import ResponseCache
from admin.output.form_state import FieldError
from admin.output.layout import Do, Form

_HEADER = re.compile(r"([A-Za-z0-9_-]{1,64}):\s*(.*)")


def confirm(form: Form, expected: str, what: str = "name") -> None:
    """Raise FieldError unless the user typed what the form asked for."""
    if not expected or form.get("confirm") != expected:
        raise FieldError(
            "confirm", f"The {what} does not match. Type {expected[:200]} to confirm. Nothing was changed."
        )


def headers_of(lines: str) -> list[tuple[str, str]]:
    """Return the headers in a form's text: NAME: VALUE, one per line. Raises HttpError 400."""
    found = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        match = _HEADER.fullmatch(line)
        if match is None or not (match[2].isascii() and match[2].isprintable()):
            raise FieldError("headers", f"Invalid header {line[:100]!r}: use Name: value (ASCII).")
        found.append((match[1], match[2]))
    return found


def printable(name: str) -> str:
    """Return a user's name as nodes take it."""
    return "".join(one for one in name if one.isprintable())[:100]


def forgetting(cache: ResponseCache, do: Do) -> Do:
    """Wrap an action so that pages see its effect at once, even if it failed."""

    async def work(request: Request, form: Form) -> str:
        try:
            return await do(request, form)
        finally:
            cache.invalidate()

    return work
