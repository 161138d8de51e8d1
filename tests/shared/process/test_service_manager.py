import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from signal import SIGHUP, SIGTERM

import anyio
import pytest
import trio

from shared.process.service_manager import PATIENCE, ServiceManager
from tests.cases import each

pytestmark = pytest.mark.process  # a unix socket


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def reports(manager: socket.socket) -> list[str]:
    """The assignments that came, without the times in them."""
    found: list[str] = []
    while True:
        try:
            found += manager.recv(4096).decode().split("\n")
        except BlockingIOError:
            return [line for line in found if not line.startswith("MONOTONIC_USEC=")]


async def sent(*signals: int) -> AsyncIterator[int]:
    for number in signals:
        yield number


def environ(manager: socket.socket, **others: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.getsockname(), **others}


@each("backend", ["trio", "asyncio"])
def test_the_manager_learns_when_the_daemon_serves_reloads_and_stops(manager: socket.socket, backend: str) -> None:
    reloads: list[int] = []
    service = ServiceManager(environ(manager))
    anyio.run(service.serve, sent(SIGHUP, SIGTERM), lambda: reloads.append(1), backend=backend)
    assert reports(manager) == ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
    assert reloads == [1]


async def test_signs_of_life(manager: socket.socket, autojump_clock: trio.testing.MockClock) -> None:
    async def late() -> AsyncIterator[int]:
        await trio.sleep(9)  # not when a sign of life is due, too
        yield SIGTERM

    await ServiceManager(environ(manager, WATCHDOG_USEC="4000000")).serve(late(), lambda: None)
    found = reports(manager)
    assert found[:2] == ["WATCHDOG_USEC=4000000", "READY=1"]
    assert found.count("WATCHDOG=1") == 5
    assert found[-2:] == ["STOPPING=1", f"WATCHDOG_USEC={PATIENCE * 1_000_000}"]


async def test_opening_a_log_takes_time(manager: socket.socket, autojump_clock: trio.testing.MockClock) -> None:
    async def never() -> AsyncIterator[int]:
        await trio.sleep_forever()
        yield SIGTERM

    with trio.move_on_after(1):
        await ServiceManager(environ(manager, WATCHDOG_USEC="4000000")).serve(never(), lambda: None)
    assert reports(manager)[-1] == f"WATCHDOG_USEC={PATIENCE * 1_000_000}"


@each(
    "variable, value",
    [("WATCHDOG_PID", "1"), ("WATCHDOG_USEC", "soon"), ("WATCHDOG_USEC", "-4"), ("WATCHDOG_USEC", "²")],
)
async def test_a_watchdog_for_another_process_or_malformed(manager: socket.socket, variable: str, value: str) -> None:
    given = {"WATCHDOG_USEC": "4000000", variable: value}
    await ServiceManager(environ(manager, **given)).serve(sent(SIGTERM), lambda: None)
    assert reports(manager) == ["READY=1", "STOPPING=1"]


async def test_a_manager_that_is_gone_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "none")}).serve(sent(SIGTERM), lambda: None)
    assert "cannot be reached: No such file or directory" in caplog.text


async def test_an_abstract_address() -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind("")  # the kernel chooses an abstract one
        listening.setblocking(False)
        name = listening.getsockname()[1:].decode()
        await ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).serve(sent(SIGTERM), lambda: None)
        assert reports(listening) == ["READY=1", "STOPPING=1"]
