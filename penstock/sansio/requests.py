"""Headers and TLS of HTTP requests: to nsqlookupd, and of a reader to nsqd."""

import ssl
from collections.abc import Iterable

from penstock.sansio.settings import Settings
from penstock.sansio.tls import context_of


def request_headers(settings: Settings) -> dict[str, str]:
    """Return the headers of a request: as in go-nsq, the secret of AUTH as a bearer token, if a header can have it."""
    headers = {"Accept-Encoding": "identity"}  # the size of a packed answer cannot be bounded while it arrives
    secret = settings.auth_secret
    if secret and settings.lookupd_authorization and secret.isascii() and secret.isprintable():
        headers["Authorization"] = f"Bearer {secret}"
    return headers


def request_context(settings: Settings, urls: Iterable[str]) -> ssl.SSLContext | bool:
    """Return the TLS context for these URLs, which the settings describe even without tls_v1; True: the system's.

    Raises ValueError for files that cannot be used.
    """
    named = settings.tls_root_ca_file or settings.tls_cert or settings.tls_insecure_skip_verify
    is_wanted = named and any(url.lower().startswith("https://") for url in urls)
    return context_of(settings) if is_wanted else True
