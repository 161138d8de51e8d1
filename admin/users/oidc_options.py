"""Checks of the options for OIDC, and the mapping that -oidc-role describes. It imports nothing heavy."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

SCOPE = "openid"  # without it a provider answers without an ID token
LOOPBACK = ("127.0.0.1", "::1", "localhost")
MOST_URL = 2000  # characters
_ROLE = re.compile(r"[A-Za-z0-9._@+-]{1,100}")  # as shared/auth/auth_file.py has it


def url_problem(url: str) -> str:
    """Return the problem with the URL of a provider, or ""; plain HTTP is for loopback alone."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port  # an invalid port raises ValueError
    except ValueError:
        host = ""
    if not host or len(url) > MOST_URL or not (url.isascii() and url.isprintable()) or " " in url:
        return "is not a URL"
    if parts.username is not None or parts.fragment:
        return "must have no user and no fragment"
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        return "must begin with https:// (http:// is for loopback alone)"
    return ""


def no_role_mapping(texts: tuple[str, ...]) -> str:
    """Check -oidc-role, as an option check: VALUE=ROLE. A value may have `=`, as the names of LDAP do."""
    for text in texts:
        value, _, role = text.rpartition("=")
        if not value or _ROLE.fullmatch(role) is None:
            return f"expected VALUE=ROLE, such as ops=operator, and not {text[:100]!r}"
    return ""
