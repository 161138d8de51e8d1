"""The port of `penstock up` for requests of `penstock chaos`: the token, the bounds, and a set that has ended."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps import control
from apps.control import FILE, Control, ask
from shared.terminal.commands import CommandError
from tests.cases import each

pytestmark = pytest.mark.process  # it opens sockets


class MainLoop:
    """The main loop of `penstock up`: a thread that answers each request with an empty list of nodes."""

    def __init__(self, data: Path) -> None:
        self.asked: list[tuple[str, str, float]] = []
        self.control = Control(data, self._answer)

    def _answer(self) -> None:
        for request in self.control.requests():
            self.asked.append((request.command, request.name, request.seconds))
            threading.Thread(target=request.responses.put, args=({"nodes": []},)).start()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def loop(data: Path) -> Iterator[MainLoop]:
    made = MainLoop(data)
    with made.control as opened:
        opened.open()
        yield made


def send(data: Path, content: bytes) -> bytes:
    """Send bytes to the set, and return what it answers until it closes."""
    port = json.loads((data / FILE).read_text())["port"]
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()


def test_a_request_gets_its_response(loop: MainLoop, tmp_path: Path) -> None:
    assert ask(tmp_path, "kill", "nsqd-2", 1.5) == {"nodes": []}
    assert loop.asked == [("kill", "nsqd-2", 1.5)]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600, "only the user may read the token"


def request(data: Path, end: bytes = b"\n", **changes: Any) -> bytes:
    token = json.loads((data / FILE).read_text())["token"]
    return json.dumps({"token": token, "command": "kill", "name": "x", "seconds": 1} | changes).encode() + end


@each("changes, content", [
    ({"token": "0" * 32}, None), ({"token": None}, None), ({"command": 1}, None), ({"name": ["x"]}, None),
    ({"seconds": -1}, None), ({"seconds": float("nan")}, None), ({"seconds": float("inf")}, None), ({"seconds": "1"}, None),
    ({"name": "x" * 1000}, None), ({"end": b""}, None), ({}, b"[]\n"), ({}, b"GET / HTTP/1.1\r\n\r\n"),
    ({}, b"\xff\n"), ({}, b""),
])  # fmt: skip
def test_invalid_requests_are_dropped(
    loop: MainLoop, data: Path, changes: dict[str, Any], content: bytes | None
) -> None:
    loop.asked.clear()
    try:
        answer = send(data, request(data, **changes) if content is None else content)
    except OSError:  # it closed before it had read everything
        answer = b""
    assert (answer, loop.asked) == (b"", [])
    assert ask(data, "status") == {"nodes": []}


def test_a_client_that_sends_nothing_is_disconnected(
    loop: MainLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "REQUEST_TIMEOUT", 0.05)
    port = json.loads((tmp_path / FILE).read_text())["port"]
    with socket.create_connection(("127.0.0.1", port), 20) as silent:
        assert silent.recv(1) == b""  # given up


def test_without_a_set_the_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=str(tmp_path)):
        ask(tmp_path, "status")
    for content in (b"", b"[]", b"{}", b'{"port": "x", "token": ""}', b"\xff"):
        (tmp_path / FILE).write_bytes(content)
        with pytest.raises(CommandError, match="no set"):
            ask(tmp_path, "status")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (tmp_path / FILE).write_text(json.dumps({"pid": 1, "port": port, "token": "x"}))  # of a set that was killed
    with pytest.raises(CommandError, match="has ended without removing its file"):
        ask(tmp_path, "status")


@each("answer", [b"[]\n", b"nonsense\n", b"", b"x" * 2000])
def test_something_else_listens_at_the_port(tmp_path: Path, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MOST_RESPONSE", 1000)
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        about = {"pid": 1, "port": other.getsockname()[1], "token": "x"}
        (tmp_path / FILE).write_text(json.dumps(about))
        with pytest.raises(CommandError, match=r"answer"):
            ask(tmp_path, "status")
        server.join()


def test_the_file_goes_with_the_set(tmp_path: Path) -> None:
    with MainLoop(tmp_path).control as opened:
        assert not (tmp_path / FILE).exists()
        opened.open()
        assert (tmp_path / FILE).exists()
    assert not (tmp_path / FILE).exists()
