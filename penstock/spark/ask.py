"""Blocking HTTP requests to nsqd and nsqlookupd over one kept connection for each address. Standard library only."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from typing import Any
from urllib.parse import urlencode

from penstock.spark.access import CA_FILE, Access, access

TIMEOUT = 30.0  # s for a response
MOST_INFO = 64 * 1024  # bytes of the response to /info
MOST_BYTES = 256 * 1024 * 1024  # of a response; the largest of nsqd's is a `fetch` and one message


Headers = dict[str, str]  # by lower-case name


class Unreachable(Exception):
    """The address does not answer, or not in time."""


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, address: str, path: str, status: int, message: str, headers: Headers | None = None) -> None:
        super().__init__(f"{address} answered {path} with {status} {message}")
        self.address, self.status = address, status
        self.message = message  # e.g. OFFSET_GONE
        self.headers = headers or {}


class Asker:
    """A client that keeps its connections. It belongs to one thread; a forked process connects again."""

    def __init__(self, shown: Access | None = None) -> None:
        """`shown`: the token and the authority; None: those of the environment. Raises OSError."""
        shown = access() if shown is None else shown
        self._headers, self._context = shown.headers(), shown.context()
        self._connections: dict[str, http.client.HTTPConnection] = {}
        self._pid = os.getpid()

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; a later request opens a new one."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def get(self, address: str, path: str, arguments: dict[str, str], accept: str) -> tuple[bytes, Headers]:
        """Send a GET; return the body and the headers. Raises Unreachable, Refused."""
        return self._ask("GET", address, path, arguments, None, {"Accept": accept})

    def post(
        self, address: str, path: str, arguments: dict[str, str], body: bytes = b"", headers: Headers | None = None
    ) -> tuple[bytes, Headers]:
        """Send a POST; return the body and the headers. Raises Unreachable, Refused, ValueError for wrong headers."""
        return self._ask("POST", address, path, arguments, body, headers or {})

    def json(self, address: str, path: str, arguments: dict[str, str]) -> Any:
        """Send a GET and return the JSON of the response. Raises Unreachable, Refused."""
        body, _ = self.get(address, path, arguments, "application/json")
        try:
            return json.loads(body)
        except ValueError:
            raise Refused(address, path, 200, f"something that is not JSON: {body[:60]!r}") from None

    def _ask(
        self, method: str, address: str, path: str, arguments: dict[str, str], body: bytes | None, headers: Headers
    ) -> tuple[bytes, Headers]:
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self.close()  # the child's descriptors: nothing is sent, and the parent's connections stay
        target = f"{path}?{urlencode(arguments)}" if arguments else path
        for is_old in (address in self._connections, False):  # the server may have closed a kept connection
            connection = self._connections.get(address)
            if connection is None:
                connection = self._connections[address] = self._connection_to(address)
            try:
                connection.request(
                    method, target, body, {name: value.encode() for name, value in (headers | self._headers).items()}
                )
                response = connection.getresponse()
                content = response.read(MOST_BYTES + 1)
            except (OSError, http.client.HTTPException) as error:
                with contextlib.suppress(OSError):
                    connection.close()
                del self._connections[address]
                if is_old and not isinstance(error, TimeoutError):
                    continue
                raise Unreachable(f"{address} does not answer: {error or type(error).__name__}") from None
            if len(content) > MOST_BYTES:
                connection.close()
                raise Refused(address, path, response.status, f"more than {MOST_BYTES} bytes")
            received = {name.lower(): value for name, value in response.getheaders()}
            if response.status >= 300:
                raise Refused(address, path, response.status, _message(content), received)
            return content, received
        raise AssertionError("the second connection is never an old one")

    def url_of(self, address: str) -> str:
        """Return the URL of a daemon without a path: http://address, or its HTTPS where there is TLS. Raises Unreachable."""
        if self._context is None:
            return f"http://{address}"
        return f"https://{address.rpartition(':')[0]}:{self._https_port(address)}"

    def _connection_to(self, address: str) -> http.client.HTTPConnection:
        """Return a connection that is not open yet. Raises Unreachable."""
        plain = http.client.HTTPConnection(address, timeout=TIMEOUT)
        if self._context is None:
            return plain
        port = self._https_port(address)
        return http.client.HTTPSConnection(plain.host, port, timeout=TIMEOUT, context=self._context)

    def _https_port(self, address: str) -> int:
        """Ask a daemon at its plain HTTP port for the one of HTTPS, without the token. Raises Unreachable."""
        plain = http.client.HTTPConnection(address, timeout=TIMEOUT)
        try:
            plain.request("GET", "/info")
            port = json.loads(plain.getresponse().read(MOST_INFO))["https_port"]
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{address} does not answer: {error or type(error).__name__}") from None
        except (ValueError, KeyError, TypeError):
            port = None
        finally:
            plain.close()
        if type(port) is not int or not 0 < port < 65536:
            raise Unreachable(
                f"{address} has no HTTPS, and {CA_FILE} is set: start it with -tls-cert, -tls-key and -https-address"
            )
        return port


def _message(content: bytes) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(content)["message"])
    return content[:200].decode(errors="replace")
