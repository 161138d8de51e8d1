"""Who asks, and what they may: the original's admin users by a header, and the networks that may see the configuration."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from dataclasses import dataclass

from starlette.requests import Request

from admin.actions import Actor
from admin.options import AdminOptions
from shared.http.errors import HttpError

MOST_TEXT = 500  # characters of what is noted of a request


@dataclass(frozen=True, slots=True)
class Access:
    """See above."""

    options: AdminOptions

    def may_change(self, request: Request) -> bool:
        """Without admin users everybody may."""
        users = self.options.admin_user
        return not users or request.headers.get(self.options.acl_http_header, "") in users

    def check_change(self, request: Request) -> None:
        """403 if not."""
        if not self.may_change(request):
            raise HttpError(403, "FORBIDDEN")

    def check_config(self, request: Request) -> None:
        """403 from elsewhere, 400 where there is no address."""
        network = self.options.allow_config_from_cidr
        if not network:
            return
        try:
            address = ipaddress.ip_address(request.client.host if request.client else "")
        except ValueError:
            raise HttpError(400, "INVALID_REMOTE_ADDR") from None
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        if address not in ipaddress.ip_network(network, strict=False):
            raise HttpError(403, "FORBIDDEN")

    def actor(self, request: Request) -> Actor:
        """For the log and for those who are notified."""
        client = request.client
        remote = f"{client.host}:{client.port}" if client else ""
        return Actor(
            _user(request), remote, request.headers.get("user-agent", "")[:MOST_TEXT], str(request.url)[:MOST_TEXT]
        )


def _user(request: Request) -> str:
    """Of HTTP basic authentication; it is believed as it stands, and decides nothing."""
    kind, _, word = request.headers.get("authorization", "").partition(" ")
    if kind != "Basic":
        return ""
    try:
        user, colon, _ = base64.b64decode(word, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return ""
    return user[:MOST_TEXT] if colon else ""
