"""The user for whom a program sends a request: nsqadmin proves who it is, and names the user who asked.

The name is believed only if the program may do everything anyway (the user's own rights are the program's affair), and if
either the connection shows the program's certificate, or the program's token has signed the name for this request.
"""

from __future__ import annotations

from starlette.requests import Request

from shared.auth.auth_file import Identity
from shared.auth.on_behalf import SIGNATURE, USER, is_signed
from shared.auth.verbs import Verb
from shared.http.errors import HttpError


def user_behind(request: Request, identity: Identity) -> str:
    """Return the user whom a request of this identity names; "": none. Raises HttpError 403 if that is not to be believed."""
    names = request.headers.getlist(USER)
    if not names:
        return ""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    user, signature = _utf_8(names[0]), request.headers.get(SIGNATURE, "")
    if kind:
        signed = is_signed(signature, token.strip(), user, request.method, _target(request))
        is_proved = kind.lower() == "bearer" and signed
    else:
        is_proved = identity.kind == "certificate"
    if len(names) != 1 or not is_proved or not identity.rights.may(Verb.ADMIN):
        raise HttpError(403, "FORBIDDEN")
    return user


def _target(request: Request) -> str:
    """Return path and query as they were sent."""
    path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")


def _utf_8(header: str) -> str:
    """Return a header's text, which Starlette takes for Latin-1."""
    return header.encode("latin-1").decode("utf-8", "replace")
