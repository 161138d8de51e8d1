"""The HTTP client of the commands: the address of nsqd, the token, and TLS if an authority is given.

An address may be that of plain HTTP, as nodes report it of each other. With TLS, the client asks there for the HTTPS port
first, and sends neither the token nor the request itself in clear.
"""

from __future__ import annotations

import argparse
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from shared.http.bounded import AnswerError, https_port, parse_object, read_whole
from shared.terminal.commands import CommandError
from shared.terminal.context import CREDENTIALS, LOOKUPD, NODE, Context, add_context, resolve
from shared.terminal.token import token_of

PAGE = 1000  # entries of a list asked for at a time
TIMEOUT = 60.0  # s for an answer, or without receiving a byte of it
MOST_NODES = 8 << 20  # bytes of the answer of an nsqlookupd to /nodes
MOST_INFO, MOST_INFO_MEMORY = 64 * 1024, 1024 * 1024  # bytes of the answer to /info, and of the parsed answer

REFUSALS = {
    "UNAUTHORIZED": "nsqd at {address} has an auth file: give --auth-token-file with a token that it knows",
    "FORBIDDEN": "Access denied by nsqd at {address}: `penstock auth can` says what the token may do",
    "TLS_REQUIRED": "nsqd at {address} wants TLS: give --tls-root-ca-file with its certificate authority",
    "DISK_FULL": "nsqd at {address} has no space for its log, and takes no messages: see docs/troubleshooting/disk-full.md",
    "DRAINING": "nsqd at {address} drains or leaves, and takes no messages: use another node, or penstock undrain",
    "NOREPL": "too few nodes have a copy, of those that the topic's `replicate` asks for: see penstock cluster status",
    "TOPIC_FULL": "the topic has as many messages as its max_length or max_bytes allows: see penstock channels",
}


def add_address(parser: argparse.ArgumentParser, whose: str = "nsqd") -> None:
    """Add the options with the address of nsqd, the token and TLS. `whose`: such as "the node that is to leave"."""
    parser.add_argument(
        "--nsqd-http-address",
        metavar="HOST:PORT",
        help=f"HTTP address of {whose}, or https://HOST:PORT (default: the first node of the context, or {NODE})",
    )
    add_context(parser, CREDENTIALS)


def use_context(arguments: argparse.Namespace) -> None:
    """Give the arguments the node's address and the credentials of the context, where no flag has them.

    `used_context` has all of it. Raises CommandError.
    """
    context = arguments.used_context = resolve(arguments)
    for name in CREDENTIALS:
        setattr(arguments, name, getattr(context, name))
    if hasattr(arguments, "nsqd_http_address"):
        arguments.nodes = list(context.nsqd_http_address or _named_nodes(context, arguments))
        arguments.nsqd_http_address = arguments.nodes[0]


def _named_nodes(context: Context, arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the nodes that the nsqlookupds of a context name; the usual address if there are none. Raises CommandError."""
    if context.lookupd_http_address == (LOOKUPD,):  # on this machine, with nothing configured
        return (NODE,)
    from apps.cluster import node_addresses

    with open_client(arguments) as client:
        for address in context.lookupd_http_address:
            try:
                answer = client.get(f"{url_of(address)}/nodes")
                if found := node_addresses({address: parse_object(answer.content[:MOST_NODES], 8 * MOST_NODES)}):
                    return tuple(found)
            except (httpx.HTTPError, AnswerError):
                continue
    return (NODE,)


def url_of(address: str) -> str:
    """Return the URL of an address, which is host:port or a URL, without a path."""
    return (address if "://" in address else f"http://{address}").rstrip("/")


def open_client(arguments: argparse.Namespace, timeout: float = TIMEOUT) -> httpx.Client:
    """Return a client that presents the token, and trusts the authority. Raises CommandError if a file cannot be used."""
    headers = {}
    if token := token_of(arguments.auth_token_file or "", arguments.auth_token_command or ""):
        headers["Authorization"] = f"Bearer {token}"
    transport = _OverTls(_context(arguments)) if arguments.tls_root_ca_file else None
    base = url_of(getattr(arguments, "nsqd_http_address", None) or NODE)
    return httpx.Client(base_url=base, timeout=timeout, headers=headers, transport=transport, trust_env=False)


@dataclass(frozen=True, slots=True)
class Node:
    """The node of a command. `advice`: see why_refused."""

    client: httpx.Client
    address: str
    advice: Mapping[str, str]

    def request(self, method: str, path: str, query: Mapping[str, Any], **more: Any) -> httpx.Response:
        """Return the answer, without arguments that are None. Raises CommandError as `why_refused` says, HTTPError."""
        given = {name: value for name, value in query.items() if value is not None}
        answer = self.client.request(method, path, params=given, **more)
        if answer.status_code != 200:
            raise CommandError(why_refused(answer, self.advice, self.address))
        return answer

    def list_pages(self, path: str, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the entries of a list that the node answers in pages. Raises as `request` does."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while after != "":
            answer = self.request("GET", path, {"limit": PAGE, "after": after, **query}).json()
            found += answer[path.removeprefix("/")]
            after = answer["after"]
        return found


@contextmanager
def open_node(arguments: argparse.Namespace, advice: Mapping[str, str]) -> Iterator[Node]:
    """Yield the node of a command, over one client: the command that prints the token may ask the user."""
    with open_client(arguments) as client:
        yield Node(client, arguments.nsqd_http_address, advice)


def why_refused(answer: httpx.Response, advice: Mapping[str, str], address: str, **names: object) -> str:
    """Return the meaning of a response other than 200. `advice`: by error code, a text with {address} and the `names`."""
    try:
        message = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{address} answered {answer.status_code}: it may not be an nsqd of Penstock"
    text = {**REFUSALS, **advice}.get(message.partition(" ")[0])
    return (
        text.format(address=address, **names)
        if text
        else f"nsqd at {address} answered {answer.status_code} {message[:200]}"
    )


def _context(arguments: argparse.Namespace) -> ssl.SSLContext:
    """Return the authority and the certificate of a connection. Raises CommandError."""
    path = arguments.tls_root_ca_file
    try:
        context = ssl.create_default_context(cafile=path)
        if arguments.tls_cert:
            path = arguments.tls_cert
            context.load_cert_chain(path, arguments.tls_key or None, password="")
    except (OSError, ssl.SSLError) as error:  # both have a strerror; that of a wrong format says little
        why = "it is not a certificate in PEM" if isinstance(error, ssl.SSLError) else error.strerror
        raise CommandError(f"{path}: {why}") from None
    return context


class _OverTls(httpx.HTTPTransport):
    """Sends every request over TLS, also one for an address of plain HTTP."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(verify=context, trust_env=False)
        self._ports: dict[tuple[str, int | None], int] = {}  # of HTTPS, by host and port of plain HTTP

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to the HTTPS port of its host. Raises httpx.HTTPError."""
        if request.url.scheme == "http":
            url = request.url
            place = url.host, url.port
            if place not in self._ports:
                self._ports[place] = self._https_port(url, request.extensions)
            request.url = url.copy_with(scheme="https", port=self._ports[place])
            request.headers["Host"] = request.url.netloc.decode()
        return super().handle_request(request)

    def _https_port(self, url: httpx.URL, extensions: object) -> int:
        """Return the HTTPS port of a node, which is asked at its plain HTTP port without the token. Raises httpx.HTTPError."""
        request = httpx.Request("GET", url.copy_with(raw_path=b"/info"), extensions=extensions)  # type: ignore[arg-type]
        answer = super().handle_request(request)
        try:
            port = https_port(parse_object(read_whole(answer.iter_raw(), MOST_INFO), MOST_INFO_MEMORY))
        except AnswerError:
            port = 0
        finally:
            answer.close()
        if not port:
            raise httpx.ConnectError(f"it does not say at which port it speaks HTTPS: give https://{url.host}:PORT")
        return port
