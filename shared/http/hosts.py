"""Which Host and Origin of a request are ours."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING

from shared.http.errors import HttpError

if TYPE_CHECKING:  # nsqd answers its first requests before Starlette is imported
    from starlette.types import Scope

# A host name or an IP address, and optionally a port.
_HOST = re.compile(r"(?:([A-Za-z0-9._-]+)|\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9._~-]+)?)\])(?::[0-9]*)?")
_OWN_SITES = (b"same-origin", b"none")  # Sec-Fetch-Site of our own pages, and of addresses that users typed


class Hosts:
    """Decides which Host and Origin are ours: protection against web pages that reach a daemon through a browser.

    An IP address, a name without a dot and the given names are ours; the DNS name of a page that was re-bound to this
    machine is not. An Origin must equal the host and port that the request was sent to. If a browser says in
    Sec-Fetch-Site that a page of another site has sent the request, the request may only follow a link: a GET or HEAD
    that opens a top-level document, as links to nsqadmin in a chat or a wiki do.

    See docs/contributing/design/security.md#web-pages-in-a-browser.
    """

    def __init__(self, names: list[str]) -> None:
        self._names = {name.lower() for name in names if name and not name.startswith(".")} | {"localhost"}
        self._names.add(socket.gethostname().lower())
        self._suffixes = tuple(name.lower() for name in names if name.startswith("."))
        self._known: set[str] = set()  # Host values that passed, at most 64: the common case is one access

    def check(self, scope: Scope) -> None:
        """Raise HttpError 403 for a foreign Host, Origin or site, and 400 for no or two (RFC 9112, 3.2) or malformed Hosts."""
        hosts, origin, site = [], "", b"none"
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value.decode("latin-1"))
            elif name == b"origin":
                origin = value.decode("latin-1")
            elif name == b"sec-fetch-site":
                site = value
        if len(hosts) != 1 and (hosts or scope["http_version"] != "1.0"):
            raise HttpError(400, "BAD_REQUEST", {"Connection": "close"})
        host = hosts[0] if hosts else ""
        if host and host not in self._known:
            if not self._is_own(host):
                raise HttpError(403, "FOREIGN_HOST")
            if len(self._known) < 64:
                self._known.add(host)
        if origin and origin.lower().removeprefix("http://").removeprefix("https://") != host.lower():
            raise HttpError(403, "FOREIGN_ORIGIN")
        if site not in _OWN_SITES and not _follows_a_link(scope):
            raise HttpError(403, "FOREIGN_ORIGIN")

    def _is_own(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            raise HttpError(400, "BAD_REQUEST", {"Connection": "close"})
        name = (match[1] or match[2]).lower().rstrip(".")
        if name in self._names or name.endswith(self._suffixes or ("\0",)):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return "." not in name
        return True


def _follows_a_link(scope: Scope) -> bool:
    """Return whether the browser says that the request opens a top-level document, not one in a frame."""
    headers = dict(scope["headers"])
    return (
        scope["method"] in ("GET", "HEAD")
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest", b"document") == b"document"
    )
