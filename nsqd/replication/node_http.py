"""Questions to other nodes over HTTP: with this node's token, and over TLS if the cluster has certificates.

Nodes know each other's address of plain HTTP. Where TLS is wanted, a node is asked there for its HTTPS port first, and nothing
that is secret goes there. A process has one certificate and one token, so both are kept here and in shared.auth.own_token.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from shared.auth.own_token import headers

MOST_INFO = 64 * 1024  # bytes of what a node tells of its HTTPS port


@dataclass(slots=True)
class Trust:
    """How other nodes are asked."""

    tls: ssl.SSLContext | None = None  # what connections trust and show; None: they are in clear
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
    base = f"http://{address}" if trust.tls is None else _secure_base(address, timeout, trust)
    # where there are certificates, whoever answers in clear may be somebody else
    shown = headers() if trust.tls is None or base.startswith("https:") else {}
    with (
        httpx.Client(verify=trust.tls or True, timeout=timeout, trust_env=False) as client,
        client.stream("GET", base + target, headers=shown) as answer,
    ):
        yield answer


def _secure_base(address: str, timeout: float, trust: Trust) -> str:
    """Return the URL of a node's HTTPS, or of its HTTP if it has none and need not. Raises httpx.HTTPError."""
    url = httpx.URL(f"http://{address}/info")
    with httpx.Client(timeout=timeout, trust_env=False) as client, client.stream("GET", url) as answer:
        content = b""
        for chunk in answer.iter_bytes(MOST_INFO):
            content += chunk
            if len(content) > MOST_INFO:
                break
    try:
        port = httpx.Response(answer.status_code, content=content).json()["https_port"]
    except (ValueError, KeyError, TypeError):
        port = 0
    if type(port) is int and 0 < port < 65536:
        return str(url.copy_with(scheme="https", port=port, raw_path=b"/")).rstrip("/")
    if trust.is_tls_required or answer.status_code == 403:
        raise httpx.ConnectError(f"{address} does not say at which port it speaks HTTPS")
    return f"http://{address}"
