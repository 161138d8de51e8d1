"""A Node process that runs one client of a library: a call is a line of JSON on its standard input, and so is the result."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.daemons import STOP_TIMEOUT
from tests.requirements import CLIENTS


class Refused(Exception):
    """The library has thrown an error, or given one to a callback: the server refused the command."""


class NodeClient:
    """client.js of the library's directory in tests/clients."""

    def __init__(self, library: str, *arguments: str) -> None:
        command = ["node", str(CLIENTS / library / "client.js"), *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(STOP_TIMEOUT)
        for stream in (self._process.stdin, self._process.stdout):
            stream.close()

    def send(self, call: dict[str, object]) -> Any:
        """What the call came to. Raises Refused."""
        self._process.stdin.write(json.dumps(call) + "\n")
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]
