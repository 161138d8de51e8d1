"""One thread's HTTP of nsq_to_http: a request to an endpoint, its redirects, and connections that are kept for the next one.

Invariant: a request takes no longer than its timeout, whatever the endpoint and the resolver of names do. Of an answer's
body at most MAX_BODY bytes are read and dropped, for at most BODY_S; then the connection is closed, and the status counts.

http.client parses the answers. httpx is not used here, because its time limits are for single reads, it keeps the
cookies that an endpoint sends, and it refuses URLs of more than 64 KiB, which a GET with a message may have.
"""

import base64
import io
import select
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException, HTTPResponse
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

from penstock.client.dial import dial_first, targets_of
from penstock.client.resolver import LONGEST_S

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_BODY = 1 << 20  # bytes of an answer that are read to keep the connection
BODY_S = 2.0  # and for how long
TLS_S = 10.0  # for a TLS handshake, as in the original
MAX_REQUESTS = 10  # for one message: the first and nine redirects, as Go's client does
MAX_KEPT = 8  # connections that a thread keeps
REDIRECTS = (301, 302, 303, 307, 308)
_PRIVATE = ("authorization", "cookie", "www-authenticate")  # headers that are not sent to another host
_PORTS = {"http": 80, "https": 443}
_PATH, _QUERY = "/%:@!$&'()*+,;=~-._", "/%:@!$&'()*+,;=~-._?[]"  # characters of a URL that stay as they are
_READ_SIZE = 65_536


class SendError(Exception):
    """The endpoint did not take the message. The text says why, on one line."""


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of an http or https URL that a request needs."""

    scheme: str
    host: str
    port: int
    netloc: str  # the value of the header Host
    target: str  # path and query, in ASCII
    authorization: str  # of the user and password in the URL, or ""

    @property
    def origin(self) -> tuple[str, str, int]:
        """The key of connections that can be reused for this URL."""
        return self.scheme, self.host, self.port


def parse_url(text: str) -> Url:
    """Return the parts of a URL. Raises ValueError with a reason that does not quote it."""
    parts = urlsplit(text)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("not an http or https URL")
    user, at, netloc = parts.netloc.rpartition("@")
    target = quote(parts.path or "/", _PATH) + ("?" + quote(parts.query, _QUERY) if parts.query else "")
    authorization = "Basic " + base64.b64encode(_credentials(user)).decode() if at else ""
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    port = _PORTS[parts.scheme] if parts.port is None else parts.port
    if not netloc.isascii():
        netloc = host if parts.port is None else f"{host}:{port}"
    if any(character <= " " or character == "\x7f" for character in netloc):
        raise ValueError("not an http or https URL")
    return Url(parts.scheme, host, port, netloc.removesuffix(":"), target, authorization)


def _credentials(user: str) -> bytes:
    name, _, password = user.partition(":")
    return unquote_to_bytes(name) + b":" + unquote_to_bytes(password)


@dataclass(frozen=True, slots=True)
class Form:
    """The common part of all requests of a run."""

    method: str  # GET or POST
    headers: Mapping[str, str]  # names in lower case, without Host and Content-Length
    connect_timeout_s: float  # 0: none
    request_timeout_s: float  # 0: none

    def is_taken(self, status: int) -> bool:
        """Whether this status says that the endpoint has taken the message."""
        return status == 200 if self.method == "GET" else 200 <= status < 300


class Sender:
    """Sends requests for one thread, over connections that are kept for the next ones."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._kept: dict[tuple[str, str, int], Stream] = {}  # idle connections, the one used last at the end

    def send(self, url: str, body: bytes) -> None:
        """Send one request and follow its redirects. Raises SendError unless the endpoint takes the message."""
        timeout = self._form.request_timeout_s
        deadline = monotonic() + timeout if timeout else inf
        try:
            status = self._follow(url, body, deadline)
        except TimeoutError as error:
            over = monotonic() >= deadline
            raise SendError(f"no answer in {timeout:g} s" if over else str(error) or "timed out") from None
        except (OSError, HTTPException, ValueError) as error:
            raise SendError(_reason(error)) from None
        if not self._form.is_taken(status):
            raise SendError(f"got status code {status}")

    def close_stale(self) -> None:
        """Close the kept connections that the endpoint has closed, or on which it says something unasked."""
        for origin, stream in [*self._kept.items()]:
            if stream.is_readable():
                del self._kept[origin]
                stream.close()

    def _follow(self, text: str, body: bytes, deadline: float) -> int:
        """Return the last status. Raises SendError, OSError, HTTPException, ValueError."""
        method, first = self._form.method, parse_url(text)
        url = first
        for _ in range(MAX_REQUESTS):
            status, location = self._request(method, url, url.host == first.host, body, deadline)
            if status not in REDIRECTS or not location:
                return status
            if method == "POST" and status in (301, 302):
                raise SendError(f"got status code {status}: the redirect of a POST would lose the message")
            if status == 303:
                method, body = "GET", b""
            text = urljoin(text, location)
            url = parse_url(text)
        raise SendError(f"stopped after {MAX_REQUESTS} redirects")

    def _request(self, method: str, url: Url, is_home: bool, body: bytes, deadline: float) -> tuple[int, str]:
        """Return the status and the Location. A kept connection that turns out to be closed is replaced once."""
        data = self._encode(method, url, is_home, body)
        self.close_stale()
        stream = self._kept.pop(url.origin, None)
        if stream is not None:
            stream.deadline = deadline
            try:
                return self._exchange(method, url, stream, data)
            except ConnectionError:  # the endpoint closed it while it was idle
                pass
        return self._exchange(method, url, self._connect(url, deadline), data)

    def _encode(self, method: str, url: Url, is_home: bool, body: bytes) -> bytes:
        lines = [f"{method} {url.target} HTTP/1.1", f"Host: {url.netloc}"]
        if method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        headers = dict(self._form.headers)
        if url.authorization and is_home:
            headers.setdefault("authorization", url.authorization)
        for name, value in headers.items():
            if (name != "content-type" or method == self._form.method) and (is_home or name not in _PRIVATE):
                lines.append(f"{name.title()}: {value}")
        return "\r\n".join([*lines, "\r\n"]).encode() + body

    def _exchange(self, method: str, url: Url, stream: "Stream", data: bytes) -> tuple[int, str]:
        try:
            stream.send(data)
            answer = HTTPResponse(cast(socket.socket, stream), method=method)
            answer.begin()
            if stream.has_ended:  # http.client takes this for the end of the headers
                raise ConnectionResetError("connection closed within the headers of the answer")
            status, location = answer.status, answer.getheader("Location") or ""
            if self._drain(answer, stream) and not answer.will_close:
                self._keep(url.origin, stream)
            else:
                stream.close()
        except BaseException:
            stream.close()
            raise
        return status, location

    @staticmethod
    def _drain(answer: HTTPResponse, stream: "Stream") -> bool:
        """Read and drop the body. Return whether it ended, so that the connection can be used again."""
        stream.deadline = min(stream.deadline, monotonic() + BODY_S)
        size = 0
        try:
            while part := answer.read(_READ_SIZE):
                size += len(part)
                if size > MAX_BODY:
                    return False
        except (OSError, HTTPException, ValueError):
            return False  # the status came before, and counts
        return True

    def _keep(self, origin: tuple[str, str, int], stream: "Stream") -> None:
        self._kept[origin] = stream
        if len(self._kept) > MAX_KEPT:
            self._kept.pop(next(iter(self._kept))).close()

    def _connect(self, url: Url, deadline: float) -> "Stream":
        limit = min(deadline - monotonic(), self._form.connect_timeout_s or inf)
        try:
            started = monotonic()
            targets = targets_of(f"[{url.host}]:{url.port}", min(limit, LONGEST_S))
            connected = dial_first(targets, _timeout(limit - (monotonic() - started)))
        except TimeoutError as error:
            raise SendError(str(error) if limit == inf else f"no connection in {limit:g} s") from None
        try:
            if url.scheme == "https":
                connected.settimeout(min(TLS_S, max(0.001, deadline - monotonic())))
                connected = tls_context().wrap_socket(connected, server_hostname=url.host)
        except BaseException:
            connected.close()
            raise
        return Stream(connected, deadline)


class Stream:
    """A connection whose reads and writes end at `deadline` (monotonic s), with TimeoutError. HTTPResponse reads from it."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self.connected = connected
        self.deadline = deadline
        self.has_ended = False  # the end of the connection was read

    def send(self, data: bytes) -> None:
        """Send all of `data`. Raises OSError."""
        self.connected.settimeout(_timeout(self.deadline - monotonic()))
        self.connected.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file for one answer; closing it leaves the connection open."""
        return io.BufferedReader(_Answer(self))

    def is_readable(self) -> bool:
        """Whether bytes or the end of the connection have come."""
        poll = select.poll()
        poll.register(self.connected, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self.connected.close()


class _Answer(io.RawIOBase):
    """A response as a file, for http.client. A read after the deadline of the stream raises TimeoutError."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        connected = self._stream.connected
        connected.settimeout(_timeout(self._stream.deadline - monotonic()))
        count = connected.recv_into(buffer)
        self._stream.has_ended = not count
        return count


@cache
def tls_context() -> ssl.SSLContext:
    """Return the context for https: certificates of the system's authorities, and names, are checked."""
    return ssl.create_default_context()


def _timeout(left: float) -> float | None:
    """Return the argument of settimeout for `left` seconds. Raises TimeoutError if none are left."""
    if left == inf:
        return None
    if left <= 0:
        raise TimeoutError
    return left


def _reason(error: BaseException) -> str:
    """Return one line; of what the endpoint sent, only its beginning."""
    text = str(error) or type(error).__name__
    return text if isinstance(error, OSError) and error.errno else f"{type(error).__name__}: {text[:100]}"
