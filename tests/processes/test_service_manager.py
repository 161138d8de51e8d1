"""The daemons report to the service manager that has started them."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.conftest import nsqadmin
from tests.daemons import STOP_TIMEOUT, Daemon

pytestmark = pytest.mark.process


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(STOP_TIMEOUT)
        yield listening


@pytest.mark.parametrize("program", ["nsqd", "nsqlookupd", "nsqadmin"])
def test_a_daemon_reports_that_it_serves_reloads_and_stops(
    program: str, manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "600000000")
    flags = ["-data-path", str(tmp_path)] if program == "nsqd" else []
    started = nsqadmin("-nsqd-http-address=127.0.0.1:1") if program == "nsqadmin" else Daemon(program, *flags)
    with started as daemon:
        reports = [manager.recv(4096).decode() for _ in range(3)]
        assert reports == ["WATCHDOG_USEC=600000000", "READY=1", "WATCHDOG=1"]
        daemon.process.send_signal(signal.SIGHUP)
        assert manager.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert manager.recv(4096) == b"READY=1"
        assert daemon.stop() == 0
    assert manager.recv(4096) == b"STOPPING=1"
