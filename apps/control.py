"""How `penstock chaos` reaches the `penstock up` that runs a set: one question and one answer, JSON objects, over loopback.

`penstock up --chaos` writes DATA/up.json, which only its user can read: the port where it listens, and a token that each
question must have. A thread takes the questions, and the main loop answers them between two events.
"""

import json
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from apps.daemon_set import HOST
from shared.files import replace_file

FILE = "up.json"  # in the directory for the data of all daemons
MOST_QUESTION = 1000  # bytes
MOST_ANSWER = 1 << 20  # bytes
MOST_SECONDS = 24 * 3600  # s that something may last
QUESTION_TIMEOUT = 1.0  # s for a whole question to arrive
ANSWER_TIMEOUT = 10.0  # s for the main loop to answer


class NoSetError(Exception):
    """No set runs with this directory, or it does not answer. The text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Question:
    """What `penstock chaos` asks for. The main loop must call `reply` once."""

    command: str
    name: str  # of the daemon that it is about
    seconds: float  # for how long; 0: until it is undone
    answers: "queue.SimpleQueue[dict[str, Any]]" = field(default_factory=queue.SimpleQueue)

    def reply(self, answer: dict[str, Any]) -> None:
        """Answer the question, whose asker waits in another thread."""
        self.answers.put(answer)


class Control:
    """The end of `penstock up`. A context manager; questions come after `open`."""

    def __init__(self, data: Path, wake: Callable[[], None]) -> None:
        """Begin without a port. `data`: the directory for the data of all daemons.

        `wake`: called in another thread when there is a question.
        """
        self.data = data
        self._path = data / FILE
        self._wake = wake
        self._token = secrets.token_hex(16)
        self._questions: queue.SimpleQueue[Question] = queue.SimpleQueue()
        self._listener: socket.socket | None = None

    def __enter__(self) -> "Control":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._listener is not None:
            self._path.unlink(missing_ok=True)
            self._listener.close()

    def open(self) -> None:
        """Listen, and write the file that tells where. Raises OSError."""
        listener = socket.create_server((HOST, 0))
        try:
            about = {"pid": os.getpid(), "port": listener.getsockname()[1], "token": self._token}
            replace_file(self._path, json.dumps(about).encode() + b"\n")
        except OSError:
            listener.close()
            raise
        self._listener = listener
        threading.Thread(target=self._serve, args=(listener,), name="control", daemon=True).start()

    def questions(self) -> list[Question]:
        """Return the questions that came since the last call."""
        found = []
        while not self._questions.empty():
            found.append(self._questions.get())
        return found

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the set has ended
                return
            with connection:
                try:
                    self._serve_one(connection)
                except (OSError, ValueError):
                    pass  # whoever asked is gone, or is not `penstock chaos`

    def _serve_one(self, connection: socket.socket) -> None:
        """Take one question and send its answer. Raises OSError, ValueError."""
        question = _parse(_read_line(connection, MOST_QUESTION, QUESTION_TIMEOUT), self._token)
        self._questions.put(question)
        self._wake()
        try:
            answer = question.answers.get(timeout=ANSWER_TIMEOUT)
        except queue.Empty:
            return
        connection.settimeout(QUESTION_TIMEOUT)
        connection.sendall(json.dumps(answer).encode() + b"\n")


def ask(data: Path, command: str, name: str = "", seconds: float = 0) -> dict[str, Any]:
    """Ask the set that runs with this directory, and return its answer. Raises NoSetError."""
    try:
        about = json.loads((data / FILE).read_bytes())
        address, token = (HOST, int(about["port"])), str(about["token"])
    except (OSError, ValueError, KeyError, TypeError):
        raise NoSetError(f"no set that allows it runs with its data in {data.absolute()}") from None
    content = {"token": token, "command": command, "name": name, "seconds": seconds}
    try:
        with socket.create_connection(address, QUESTION_TIMEOUT) as connection:
            connection.sendall(json.dumps(content).encode() + b"\n")
            answer = json.loads(_read_line(connection, MOST_ANSWER, ANSWER_TIMEOUT))
    except ConnectionRefusedError:
        raise NoSetError(f"the set with its data in {data.absolute()} has ended without tidying up") from None
    except (OSError, ValueError) as error:
        raise NoSetError(f"the set with its data in {data.absolute()} does not answer: {error}") from None
    if not isinstance(answer, dict):
        raise NoSetError(f"the set with its data in {data.absolute()} gives an answer that is not one of penstock up")
    return answer


def _parse(line: bytes, token: str) -> Question:
    """Return the question in a line. Raises ValueError if it is none, or does not have the token."""
    content = json.loads(line)
    if not isinstance(content, dict) or not secrets.compare_digest(str(content.get("token")).encode(), token.encode()):
        raise ValueError("the token is wrong")
    command, name, seconds = (content.get(key) for key in ("command", "name", "seconds"))
    if not (isinstance(command, str) and isinstance(name, str) and isinstance(seconds, int | float)):
        raise ValueError("not a question")
    if not 0 <= seconds <= MOST_SECONDS:  # also false for NaN
        raise ValueError("not a time")
    return Question(command, name, seconds)


def _read_line(connection: socket.socket, most: int, timeout: float) -> bytes:
    """Return what comes up to the end of a line, at most so many bytes within so many seconds. Raises OSError, ValueError."""
    deadline, line = time.monotonic() + timeout, b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        more = connection.recv(most + 1 - len(line))
        line += more
        if not more or len(line) > most:
            raise ValueError("the line is not complete")
    return line
