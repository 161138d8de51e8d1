"""A real worker of Celery over penstock://, solo and prefork: every task is done at least once, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from penstock.jobs import Jobs
from tests.daemons import ROOT, Daemon, eventually, nsqd
from tests.processes.entry_points import install_entry_points

pytest.importorskip("celery", reason="celery is not installed: pip install penstock[celery]")
pytestmark = pytest.mark.process
POOLS = pytest.mark.parametrize("pool", ["solo", "prefork"])
PATIENCE = 90.0  # s


class Bench:
    """A node, and what a worker and this process need to talk to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.done = directory / "done"
        self.done.touch()
        self.tcp = self.jobs = "127.0.0.1:0"

    def node(self) -> Daemon:
        """Return an nsqd that is not started; a second one has the addresses of the first."""
        flags = ("-tcp-address", self.tcp, "-beanstalk-address", self.jobs)
        return nsqd(self.directory / "data", *flags, listens=("TCP", "HTTP", "BEANSTALK"))

    @contextmanager
    def running(self) -> Iterator[Daemon]:
        with self.node() as node:
            self.tcp, self.jobs = node.tcp, node.addresses["BEANSTALK"]
            with patch.dict(os.environ, self.environ()):
                yield node

    def environ(self) -> dict[str, str]:
        url = f"penstock://{self.jobs}?nsqd={self.tcp}&ttr=5"
        return {"BROKER": url, "DONE": str(self.done), "PYTHONPATH": str(ROOT)}

    def call(self, code: str) -> str:
        """Run a line of Python in a process with the application, and return what it prints."""
        command = [sys.executable, "-c", f"from tests.processes.celery_app import *\n{code}"]
        environ = {**os.environ, **self.environ()}
        ended = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def control(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `celery`."""
        command = [sys.executable, "-m", "celery", "-A", "tests.processes.celery_app", *words]
        environ = {**os.environ, **self.environ()}
        return subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)

    @contextmanager
    def worker(self, pool: str, *flags: str, name: str = "w1") -> Iterator[Worker]:
        worker = Worker(self, pool, flags, name)
        try:
            yield worker
        except BaseException as error:
            error.add_note("".join(worker.lines))
            raise
        finally:
            worker.kill()

    def lines(self) -> list[str]:
        return self.done.read_text().split("\n")[:-1]

    def numbers(self) -> set[int]:
        return {int(line) for line in self.lines() if line.isdigit()}


class Worker:
    """A worker process of Celery, in a process group of its own."""

    def __init__(self, bench: Bench, pool: str, flags: tuple[str, ...], name: str) -> None:
        command = [sys.executable, "-m", "celery", "-A", "tests.processes.celery_app", "worker", "-P", pool, "-c", "2"]
        command += ["-l", "INFO", "-n", f"{name}@test", *flags]
        self.process = subprocess.Popen(
            command, env={**os.environ, **bench.environ()}, cwd=ROOT, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        eventually(lambda: self.says("ready.") or self.process.poll() is not None)
        assert self.says("ready."), "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def says(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def stop(self) -> int:
        """Ask for a warm shutdown."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """Kill the worker with its children."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # ended already
        self.process.wait()
        self._reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def figures(bench: Bench, tube: str = "work") -> dict[str, Any]:
    with Jobs(bench.jobs) as jobs:
        return jobs.stats_tube(tube)


def left(bench: Bench) -> int:
    found = figures(bench)
    return int(sum(found[f"current-jobs-{state}"] for state in ("ready", "reserved", "delayed", "buried")))


@POOLS
def test_tasks_retries_etas_priorities_and_control_commands(bench: Bench, pool: str) -> None:
    with bench.running():
        bench.call("for number in range(50): add.delay(number)\nflaky.delay(100)\nadd.apply_async([101], countdown=3)")
        assert figures(bench)["current-jobs-delayed"] == 1  # it waits on the node, not in a worker
        with bench.worker(pool) as worker:
            eventually(lambda: bench.numbers() == {*range(50), 100, 101}, PATIENCE)
            eventually(lambda: left(bench) == 0)
            pong = bench.control("inspect", "ping")
            assert "pong" in pong.stdout, pong.stdout + pong.stderr
            assert bench.control("inspect", "ping", "-d", "w1@test").returncode == 0
            bench.control("control", "shutdown")
            assert worker.process.wait(PATIENCE) == 0
            assert len(bench.lines()) == 52  # nothing was done twice


def test_an_old_shutdown_does_not_end_a_new_worker(bench: Bench) -> None:
    with bench.running():
        bench.control("control", "shutdown")  # there is no worker
        with bench.worker("solo") as worker:
            bench.call("add.delay(1)")
            eventually(lambda: bench.numbers() == {1}, PATIENCE)
            assert worker.process.poll() is None


@POOLS
def test_kill_9_of_the_worker(bench: Bench, pool: str) -> None:
    with bench.running():
        bench.call("for number in range(30): slow.delay(number, 0.1)")
        for _ in range(3):
            before = len(bench.numbers())
            with bench.worker(pool) as worker:
                eventually(lambda before=before: len(bench.numbers()) >= before + 3, PATIENCE)
                worker.kill()
        with bench.worker(pool):
            eventually(lambda: bench.numbers() == set(range(30)) and left(bench) == 0, PATIENCE)


@POOLS
def test_kill_9_of_the_node(bench: Bench, pool: str) -> None:
    with bench.running() as node:
        bench.call("for number in range(60): slow.delay(number, 0.1)")
        with bench.worker(pool) as worker:
            eventually(lambda: len(bench.numbers()) >= 5, PATIENCE)
            node.kill()
            time.sleep(1.0)  # tasks end while no node is there
            with bench.running() as second:
                eventually(lambda: len(bench.numbers()) >= 25, PATIENCE)
                second.kill()
            with bench.running():
                eventually(lambda: bench.numbers() == set(range(60)) and left(bench) == 0, PATIENCE)
                assert "pong" in bench.control("inspect", "ping", "-t", "10").stdout
                assert worker.stop() == 0


@POOLS
def test_a_long_task_is_touched_and_a_warm_shutdown_gives_back_what_was_prefetched(bench: Bench, pool: str) -> None:
    with bench.running():
        bench.call("for number in range(10): slow.delay(number, 8)")  # longer than the 5 s of ttr
        with bench.worker(pool) as worker:
            eventually(lambda: "begin 0" in bench.lines())
            eventually(lambda: figures(bench)["current-jobs-reserved"] > 2)  # prefetched
            eventually(lambda: 0 in bench.numbers(), PATIENCE)
            assert bench.lines().count("begin 0") == 1
            assert worker.stop() == 0
        counts = figures(bench)
        assert counts["current-jobs-reserved"] == 0
        assert counts["current-jobs-ready"] == 10 - len(bench.numbers())


def test_a_producer_waits_for_a_node_that_restarts(bench: Bench) -> None:
    with bench.running() as node:
        bench.call("add.delay(0)")
        node.kill()
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(bench.call("add.delay(1)\nprint('put')")))
    thread.start()
    time.sleep(2.0)  # the producer meets no node
    with bench.running():
        thread.join(PATIENCE)
        assert results == ["put\n"]
        assert figures(bench)["current-jobs-ready"] == 2


def test_a_child_that_is_killed_loses_no_task(bench: Bench) -> None:
    with bench.running(), bench.worker("prefork") as worker:
        bench.call("for number in range(4): slow.delay(number, 3)")
        eventually(lambda: len(bench.lines()) >= 2, PATIENCE)
        pid = worker.process.pid
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        os.kill(children[0], signal.SIGKILL)
        eventually(lambda: bench.numbers() == set(range(4)) and left(bench) == 0, PATIENCE)


def test_each_worker_gets_each_control_command(bench: Bench) -> None:
    with bench.running(), bench.worker("solo") as one, bench.worker("solo", name="w2") as two:
        assert "2 nodes online" in bench.control("inspect", "ping", "-t", "5").stdout
        bench.control("control", "shutdown", "-d", "w2@test")
        assert two.process.wait(PATIENCE) == 0
        assert "1 node online" in bench.control("inspect", "ping").stdout
        assert one.process.poll() is None


def test_a_task_that_is_too_large_is_refused_at_once(bench: Bench) -> None:
    with bench.running():
        code = """
from penstock.jobs import TooBig
try:
    app.send_task("x", ["y" * 100_000])
except TooBig as error:
    print(error.word)
"""
        assert bench.call(code) == "JOB_TOO_BIG\n"


def test_events_reach_a_monitor(bench: Bench) -> None:
    with bench.running(), bench.worker("solo", "-E"):
        code = """
import threading
seen = []
with app.connection_for_read() as connection:
    receiver = app.events.Receiver(connection, handlers={"task-succeeded": lambda event: (seen.append(event), stop())})
    def stop(): receiver.should_stop = True
    threading.Timer(1, lambda: add.delay(5)).start()
    receiver.capture(limit=None, timeout=30, wakeup=False)
print(seen[0]["type"])
"""
        assert bench.call(code) == "task-succeeded\n"


def test_the_url_needs_no_import_where_the_package_is_installed(bench: Bench, tmp_path: Path) -> None:
    """kombu loads the entry point; it is given here as an installation would, because the tests run in a checkout."""
    site = install_entry_points(tmp_path / "site")
    with bench.running():
        code = f"""
from celery import Celery
app = Celery("x", broker={bench.environ()["BROKER"]!r})
with app.connection_for_write() as connection:
    queue = connection.SimpleQueue("simple")
    queue.put({{"n": 1}})
    message = queue.get(timeout=10)
    print(message.payload["n"], connection.transport.driver_type)
    message.ack()
    queue.close()
"""
        environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}
        ended = subprocess.run(
            [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=PATIENCE
        )
        assert ended.stdout == "1 penstock\n", ended.stderr
        assert left_of(bench, "simple") == 0


def left_of(bench: Bench, tube: str) -> int:
    with Jobs(bench.jobs) as jobs:
        return len(jobs.list_jobs("ready", tube=tube)) if tube in jobs.list_tubes() else 0
