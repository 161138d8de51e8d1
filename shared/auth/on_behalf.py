"""The user for whom a program acts: nsqadmin shows its own credentials to nsqd, and names the user who asked.

With a client certificate the name is sent as it is. With a token, the token signs the name. The signature binds the name to
one request, so a proxy that adds headers, or a log that keeps them, cannot use the name for another request.
"""

from __future__ import annotations

import hmac

USER = "Penstock-User"  # the header with the user's name
SIGNATURE = "Penstock-Signature"  # the header with the signature: 64 hex digits


def headers_on_behalf(token: str, user: str, method: str, target: str) -> dict[str, str]:
    """Return the headers that name a user; none if there is no token or no user. `target`: path and query as sent."""
    return {USER: user, SIGNATURE: _signature(token, user, method, target)} if token and user else {}


def headers_by_certificate(user: str) -> dict[str, str]:
    """Return the header that names a user on a connection that shows a certificate; none if there is no user."""
    return {USER: user} if user else {}


def is_signed(signature: str, token: str, user: str, method: str, target: str) -> bool:
    """Return whether the signature is by this token, and is about this user and request."""
    return hmac.compare_digest(signature.encode(), _signature(token, user, method, target).encode())


def _signature(token: str, user: str, method: str, target: str) -> str:
    return hmac.digest(token.encode(), f"{user}\n{method}\n{target}".encode(), "sha256").hex()
