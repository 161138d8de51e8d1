"""Questions to other nodes over HTTP: with this node's token, and over TLS if the cluster has certificates.

Nodes know each other's address of plain HTTP. Where TLS is wanted, a node is asked there for its HTTPS port first, and nothing
that is secret goes there. A process has one certificate and one token, so both are kept here and in shared.auth.own_token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from shared.auth.own_token import headers
from shared.http.bounded import AnswerError, https_port, parse_object, read_whole
from shared.tls_client import ClientCertificates

MOST_INFO, MOST_INFO_MEMORY = 64 * 1024, 1024 * 1024  # bytes of the answer to /info, and of what is parsed of it


@dataclass(slots=True)
class Trust:
    """How other nodes are asked: in clear, or over TLS."""

    tls: ClientCertificates | None = None  # what connections trust and show; None: they are in clear
    is_tls_required: bool = False  # True: a node without HTTPS is not asked


_TRUST = [Trust()]


def ask_by(trust: Trust) -> None:
    """Ask other nodes this way from now on."""
    _TRUST[0] = trust


@contextmanager
def get(address: str, target: str, timeout: float) -> Iterator[httpx.Response]:
    """Send a GET to the node at `address` (host:port of plain HTTP), for `target`, path and query. `timeout`: s.

    The answer is to be read as a stream. Raises httpx.HTTPError, httpx.InvalidURL.
    """
    trust = _TRUST[0]
    with httpx.Client(
        verify=trust.tls.context if trust.tls is not None else True, timeout=timeout, trust_env=False
    ) as client:
        base = f"http://{address}" if trust.tls is None else _secure_base(client, address, trust)
        # where there are certificates, whoever answers in clear may be somebody else
        shown = headers() if trust.tls is None or base.startswith("https:") else {}
        with client.stream("GET", base + target, headers=shown) as answer:
            yield answer


def _secure_base(client: httpx.Client, address: str, trust: Trust) -> str:
    """Return the URL of a node's HTTPS, or of its HTTP if it has none and need not. Raises httpx.HTTPError."""
    url = httpx.URL(f"http://{address}/info")
    with client.stream("GET", url) as answer:
        try:
            port = https_port(parse_object(read_whole(answer.iter_bytes(), MOST_INFO), MOST_INFO_MEMORY))
        except AnswerError:
            port = 0
    if port:
        return str(url.copy_with(scheme="https", port=port, raw_path=b"/")).rstrip("/")
    if trust.is_tls_required or answer.status_code == 403:
        raise httpx.ConnectError(f"{address} does not say at which port it speaks HTTPS")
    return f"http://{address}"
