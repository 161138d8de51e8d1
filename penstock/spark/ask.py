"""Questions to nsqd and nsqlookupd over HTTP: blocking, a connection each address that is kept. Standard library only."""

from __future__ import annotations

import contextlib
import http.client
import json
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

TIMEOUT = 30.0  # s for an answer, beyond what it was asked to wait
MOST_BYTES = 256 * 1024 * 1024  # of an answer: nsqd's largest is a `fetch` and one message


class Unreachable(Exception):
    """Nobody answers there, or not in time."""


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, address: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{address} answered {path} with {status} {message}")
        self.status = status
        self.message = message  # e.g. OFFSET_GONE


class Asker:
    """See above. Not for several threads."""

    def __init__(self) -> None:
        self._connections: dict[str, http.client.HTTPConnection] = {}

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def get(
        self, address: str, path: str, arguments: dict[str, str], accept: str = "application/json", wait: float = 0.0
    ) -> tuple[bytes, dict[str, str]]:
        """The body, and the headers by lower-case name. `wait`: s that the answer may take longer. Raises both errors."""
        return self._ask("GET", address, path, arguments, None, {"Accept": accept}, wait)

    def post(
        self, address: str, path: str, arguments: dict[str, str], body: bytes = b""
    ) -> tuple[bytes, dict[str, str]]:
        """Likewise."""
        return self._ask("POST", address, path, arguments, body, {}, 0.0)

    def json(self, address: str, path: str, arguments: dict[str, str]) -> Any:
        """A JSON answer. Raises both errors."""
        body, _ = self.get(address, path, arguments)
        try:
            return json.loads(body)
        except ValueError:
            raise Refused(address, path, 200, f"something that is no JSON: {body[:60]!r}") from None

    def _ask(
        self,
        method: str,
        address: str,
        path: str,
        arguments: dict[str, str],
        body: bytes | None,
        headers: dict[str, str],
        wait: float,
    ) -> tuple[bytes, dict[str, str]]:
        target = f"{path}?{urlencode(arguments)}" if arguments else path
        for is_old in (address in self._connections, False):  # one that was kept may have been closed meanwhile
            connection = self._connections.get(address)
            if connection is None:
                connection = self._connections[address] = http.client.HTTPConnection(address)
            connection.timeout = TIMEOUT + wait
            try:
                if connection.sock is not None:
                    connection.sock.settimeout(TIMEOUT + wait)
                connection.request(method, target, body, headers)
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
            if response.status >= 300:
                raise Refused(address, path, response.status, _message(content))
            return content, {name.lower(): value for name, value in response.getheaders()}
        raise AssertionError("the second connection is never an old one")


def _message(content: bytes) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(content)["message"])
    return content[:200].decode(errors="replace")
