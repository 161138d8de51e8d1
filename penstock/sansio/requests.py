"""What requests over HTTP show and trust: those to nsqlookupd, and those of a reader to nsqd."""

import ssl

from penstock.sansio.settings import Settings
from penstock.sansio.tls import client_context


def request_headers(settings: Settings) -> dict[str, str]:
    """Return the headers of a request. As in go-nsq, it shows the secret of AUTH as a bearer token."""
    headers = {"Accept-Encoding": "identity"}  # the size of a packed answer cannot be bounded while it arrives
    if settings.auth_secret and settings.lookupd_authorization:
        headers["Authorization"] = f"Bearer {settings.auth_secret}"
    return headers


def request_context(settings: Settings) -> ssl.SSLContext | bool:
    """Return what an HTTPS connection trusts and shows, as one to nsqd does. True: what the system trusts."""
    return (client_context(settings) if settings.tls_v1 else None) or True
