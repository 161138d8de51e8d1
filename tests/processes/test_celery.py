"""A real worker of Celery over penstock://, solo and prefork: every task is done at least once, whatever is killed."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import pytest
from celery import Celery

from penstock.celery import install
from penstock.jobs import Jobs
from tests.daemons import ROOT, Daemon, Tool, eventually, nsqd
from tests.effort import tries

pytestmark = pytest.mark.process
POOLS = pytest.mark.parametrize("pool", [pytest.param("solo", marks=pytest.mark.campaign), "prefork"])
PATIENCE = 240.0  # s


class Bench:
    """A node, and what a worker and this process need to talk to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.done = directory / "done"
        self.done.touch()
        self.tcp = self.jobs = "127.0.0.1:0"
        self.ttr = 60  # s

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
        url = f"penstock://{self.jobs}?nsqd={self.tcp}&ttr={self.ttr}"
        return {"BROKER": url, "DONE": str(self.done), "PYTHONPATH": str(ROOT)}

    @contextmanager
    def app(self) -> Iterator[Celery]:
        """Return an application that knows the names of the tasks, as of another program that publishes them."""
        install()
        with Celery("publisher", broker=self.environ()["BROKER"], set_as_current=False) as app:
            app.conf.update(task_default_queue="work", task_ignore_result=True, broker_connection_timeout=2)
            yield app

    def publish(self, *tasks: tuple[str, *tuple[float, ...]], **options: float) -> None:
        """Publish tasks, each given by its name and its arguments."""
        with self.app() as app:
            for name, *arguments in tasks:
                app.send_task(f"tests.processes.celery_app.{name}", arguments, **options)

    def lines(self) -> list[str]:
        return self.done.read_text().split("\n")[:-1]

    def numbers(self) -> set[int]:
        return {int(line) for line in self.lines() if line.isdigit()}


class Worker(Tool):
    """A worker process of Celery, in a process group of its own."""

    ends_with = None

    def __init__(self, bench: Bench, pool: str, *flags: str, name: str = "w1") -> None:
        command = [sys.executable, "-m", "celery", "-A", "tests.processes.celery_app", "worker", "-P", pool, "-c", "2"]
        command += ["-l", "INFO", "-n", f"{name}@test", *flags]
        environ = {**os.environ, **bench.environ()}
        super().__init__(command, env=environ, cwd=ROOT, start_new_session=True, tracebacks=True)

    def __enter__(self) -> Self:
        super().__enter__()
        self.wait_for_line("ready.")
        return self

    def kill(self) -> None:
        """Kill the worker with its children."""
        with suppress(ProcessLookupError):  # ended already
            os.killpg(self.process.pid, signal.SIGKILL)
        super().kill()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def figures(bench: Bench, tube: str = "work") -> dict[str, Any]:
    with Jobs(bench.jobs) as jobs:
        return jobs.stats_tube(tube)


def left(bench: Bench) -> int:
    found = figures(bench)
    return int(sum(found[f"current-jobs-{state}"] for state in ("ready", "reserved", "delayed", "buried")))


def answering(app: Celery, *destination: str) -> set[str]:
    """Return the names of the workers among these that answer a ping."""
    answers = app.control.ping(destination, timeout=20, limit=len(destination))
    return {name for answer in answers for name in answer}


@POOLS
def test_tasks_retries_etas_priorities_and_control_commands(bench: Bench, pool: str) -> None:
    with bench.running(), bench.app() as app:
        app.control.shutdown()  # there is no worker, and one that starts later does not end
        bench.publish(*(("add", number) for number in range(50)), ("flaky", 100))
        bench.publish(("add", 101), countdown=3)
        assert figures(bench)["current-jobs-delayed"] == 1  # it waits on the node, not in a worker
        with Worker(bench, pool) as worker:
            eventually(lambda: bench.numbers() == {*range(50), 100, 101}, PATIENCE)
            eventually(lambda: left(bench) == 0)
            assert answering(app, "w1@test") == {"w1@test"}
            app.control.shutdown()
            assert worker.process.wait(PATIENCE) == 0
            assert len(bench.lines()) == 52  # nothing was done twice


@POOLS
def test_kill_9_of_the_worker(bench: Bench, pool: str) -> None:
    with bench.running():
        bench.publish(*(("slow", number, 0.1) for number in range(30)))
        for _ in range(tries(1)):
            before = len(bench.numbers())
            with Worker(bench, pool) as worker:
                eventually(lambda before=before: len(bench.numbers()) >= before + 3, PATIENCE)
                worker.kill()
        with Worker(bench, pool):
            eventually(lambda: bench.numbers() == set(range(30)) and left(bench) == 0, PATIENCE)


@POOLS
def test_kill_9_of_the_node(bench: Bench, pool: str) -> None:
    with bench.running() as node:
        long = range(5, 15)  # while no node is there, the worker has some of these
        bench.publish(*(("slow", number, 1 if number in long else 0.1) for number in range(60)))
        with Worker(bench, pool) as worker:
            eventually(lambda: len(bench.numbers()) >= 5, PATIENCE)
            node.kill()
            begun = len(bench.lines())
            eventually(lambda: len(bench.lines()) > begun, PATIENCE)  # a task ends while no node is there
            with bench.running() as second:
                eventually(lambda: len(bench.numbers()) >= 25, PATIENCE)
                second.kill()
            with bench.running(), bench.app() as app:
                eventually(lambda: bench.numbers() == set(range(60)) and left(bench) == 0, PATIENCE)
                eventually(lambda: answering(app, "w1@test"))
                assert worker.stop() == 0


@POOLS
def test_a_long_task_is_touched_and_a_warm_shutdown_gives_back_what_was_prefetched(bench: Bench, pool: str) -> None:
    bench.ttr = 3
    with bench.running():
        bench.publish(*(("slow", number, 4.5) for number in range(10)))  # longer than the ttr
        with Worker(bench, pool) as worker:
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
        bench.publish(("add", 0))
        node.kill()
    thread = threading.Thread(target=bench.publish, args=[("add", 1)])
    thread.start()
    thread.join(1.0)  # the producer meets no node
    assert thread.is_alive()
    with bench.running():
        thread.join(PATIENCE)
        assert figures(bench)["current-jobs-ready"] == 2


def test_a_child_that_is_killed_loses_no_task(bench: Bench) -> None:
    with bench.running(), Worker(bench, "prefork") as worker:
        bench.publish(*(("slow", number, 2) for number in range(4)))
        eventually(lambda: len(bench.lines()) >= 2, PATIENCE)
        pid = worker.process.pid
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        os.kill(children[0], signal.SIGKILL)
        eventually(lambda: bench.numbers() == set(range(4)) and left(bench) == 0, PATIENCE)


def test_each_worker_gets_each_control_command_and_events_reach_a_monitor(bench: Bench) -> None:
    with (
        bench.running(),
        Worker(bench, "solo", "-E") as one,
        Worker(bench, "solo", name="w2") as two,
        bench.app() as app,
    ):
        assert answering(app, "w1@test", "w2@test") == {"w1@test", "w2@test"}
        app.control.shutdown(["w2@test"])
        assert two.process.wait(PATIENCE) == 0
        assert answering(app, "w1@test") == {"w1@test"}
        assert one.process.poll() is None
        seen: list[str] = []
        with app.connection_for_read() as connection:
            receiver = app.events.Receiver(
                connection, handlers={"task-succeeded": lambda event: seen.append(event["type"])}
            )
            with receiver.consumer_context() as (own, _, _):
                bench.publish(("add", 5))
                while not seen:
                    own.drain_events(timeout=PATIENCE)
