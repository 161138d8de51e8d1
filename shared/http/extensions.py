"""Keys that Penstock adds to NSQ's JSON answers: only for who asks for them, with the header `X-Nsq-Extensions: true`.

So an unchanged tool sees exactly what the original would answer. What another header, an argument or an option of ours
switches on needs no asking: it appears only where it is used.
"""

from starlette.requests import Request

HEADER = "X-Nsq-Extensions"
ASK = {HEADER: "true"}  # headers of a question


def wants_extensions(request: Request) -> bool:
    """Whether the answer may hold keys that NSQ does not know."""
    value: str = request.headers.get(HEADER, "")
    return value == "true"
