"""Keys that Penstock adds to NSQ's JSON answers, for clients that send the header `X-Nsq-Extensions: true`.

So an unchanged tool sees exactly what the original would answer. Keys that another header, an argument or an option of
Penstock switches on need no such header: they appear only where that feature is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

HEADER = "X-Nsq-Extensions"
ASK = {HEADER: "true"}  # headers of a request that wants the keys


def wants_extensions(request: Request) -> bool:
    """Return whether the answer may contain keys that NSQ does not know."""
    value: str = request.headers.get(HEADER, "")
    return value == "true"
