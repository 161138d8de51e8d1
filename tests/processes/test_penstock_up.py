"""`penstock up`: which daemons it starts with which flags, wrong arguments, and a taken port."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from apps import daemon_set
from apps.secure_set import SecureSet
from tests.daemons import ROOT, STOP_TIMEOUT


def free_offset(nodes: int) -> int:
    """A --port-offset at which every port is free, HTTPS's too. Never 0: tests do not use the default ports.

    All ports are below those that the kernel gives away. Each worker of a run has a range of its own, since another's daemons
    may be about to start: four ranges of 850 ports fit between those of nsqd, Disque and beanstalkd (4150, 7711, 11300).
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
    first = 5_000 + 10_600 * (os.getppid() % 2) + 850 * worker
    for number in range(32):
        offset = first + 13 * ((number + os.getpid()) % 32)
        daemons = daemon_set.Plan(Path("x"), nodes, offset, secure=SecureSet(Path("x"))).daemons()
        if not daemon_set.port_problems(daemons):
            return offset
    raise AssertionError("no free ports")


@contextmanager
def run(*arguments: str, cwd: Path, errors: IO[str] | int = subprocess.PIPE) -> Iterator["subprocess.Popen[str]"]:
    """The program as a process, which does not outlive the test. `errors`: where its standard error goes."""
    command = [sys.executable, "-m", "penstock.launch", "penstock", *arguments]
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(cwd / "state")}
    with subprocess.Popen(command, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def started(process: "subprocess.Popen[str]") -> str:
    """Wait until `penstock up` runs all daemons, and return what it has said."""
    assert process.stdout is not None
    said = ""
    while "Press Ctrl-C to stop all daemons." not in said:
        line = process.stdout.readline()
        assert line, (said, process.wait(20))
        said += line
    return said


def child(parent: int, word: str) -> int:
    """The process that `parent` started with `word` in its command line."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) != parent:
                continue
            if word.encode() in (entry / "cmdline").read_bytes():
                return int(entry.name)
        except OSError:
            continue  # it ended while we looked
    raise AssertionError(f"{parent} has no child {word}")


def test_plan_of_one_node_has_the_default_ports() -> None:
    lookupd, nsqd, admin = daemon_set.Plan(Path("data"), 1, 0).daemons()
    assert (admin.tcp_port, admin.http_port) == (0, 4171)
    assert (lookupd.tcp_port, lookupd.http_port, nsqd.tcp_port, nsqd.http_port) == (4160, 4161, 4150, 4151)
    assert "-data-path=data/nsqd" in nsqd.flags
    assert "-lookupd-tcp-address=127.0.0.1:4160" in nsqd.flags


def test_the_summary_has_some_ten_lines_however_many_nodes_there_are() -> None:
    for nodes in (1, 64):
        daemons = daemon_set.Plan(Path("data"), nodes, 0).daemons()
        said = daemon_set.welcome(daemons, logs=Path("data/logs"))
        assert len(said.splitlines()) <= 11
        assert "Logs:  data/logs (--logs prints them here)" in said
    assert "... and 61 more nsqd: " in said
    context = daemon_set.context_of(daemons, None)
    assert (context.lookupd_http_address, len(context.nsqd_http_address)) == (("127.0.0.1:4161",), 64)
    assert (context.nsqd_http_address[1], context.job_address) == ("127.0.0.1:4251", "127.0.0.1:11300")


def test_nodes_have_their_own_directories_ports_and_numbers() -> None:
    daemons = daemon_set.Plan(Path("data"), 3, 1000).daemons()[1:-1]
    assert [daemon.tcp_port for daemon in daemons] == [5150, 5250, 5350]
    for prefix in ("-data-path=", "-node-id=", "-tcp-address=", "-http-address="):
        values = {flag for daemon in daemons for flag in daemon.flags if flag.startswith(prefix)}
        assert len(values) == 3


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "code"), [("up --nodes 0", 2), ("up --port-offset 60000", 2), ("up --secure s --chaos", 1)]
)
def test_wrong_arguments(arguments: str, code: int, tmp_path: Path) -> None:
    with run(*arguments.split(), cwd=tmp_path) as process:
        _, errors = process.communicate(timeout=STOP_TIMEOUT)
    assert process.returncode == code
    assert "--chaos" in errors or code == 2
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_a_taken_port_says_who_holds_it_and_names_the_way_out(tmp_path: Path) -> None:
    offset = free_offset(1)
    with (
        socket.create_server(("127.0.0.1", 4150 + offset)),
        run("up", "--port-offset", str(offset), cwd=tmp_path) as process,
    ):
        output, errors = process.communicate(timeout=STOP_TIMEOUT)
    assert process.returncode == 1
    assert f"127.0.0.1:{4150 + offset}" in errors
    assert "held by" in errors
    assert "--port-offset" in errors
    assert output == ""
    assert not (tmp_path / "data").exists()
