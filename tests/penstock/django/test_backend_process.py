"""The backend of Django's tasks, and its worker in this process."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.utils import timezone

from penstock.django.backend import PenstockBackend
from penstock.django.tasks import TaskResultStatus, task_backends, task_finished
from penstock.django.worker import Worker
from penstock.jobs import Jobs
from tests.cases import each
from tests.daemons import Daemon, eventually
from tests.penstock.django import site
from tests.penstock.spans import Recorded
from tests.penstock.test_telemetry import recorded as recorded  # the fixture
from tests.processes.task_workers import job_counts
from tests.processes.test_jobs_client import beanstalk_node

pytestmark = pytest.mark.process
NUMBERS = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with beanstalk_node(tmp_path_factory.mktemp("django")) as daemon:
        yield daemon


@pytest.fixture
def backend(node: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[PenstockBackend]:
    """The default backend, at the node, with tubes of its own."""
    params = site.settings.TASKS["default"]
    options = params["OPTIONS"] | {"ADDRESS": node.addresses["BEANSTALK"], "PREFIX": f"test{next(NUMBERS)}."}
    backend = PenstockBackend("default", params | {"OPTIONS": options})
    monkeypatch.setattr(task_backends._connections, "default", backend, raising=False)
    site.DONE.clear()
    yield backend
    backend.jobs.close()


@contextmanager
def working(backend: PenstockBackend, *queues: str, threads: int = 1) -> Iterator[Worker]:
    """Run a worker; at the end it finishes its tasks."""
    worker = Worker(backend, queues or ("default",), threads)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(30)
        assert not thread.is_alive()


def counts(backend: PenstockBackend, queue: str = "default") -> tuple[object, ...]:
    return job_counts(backend.address, backend.tube_of(queue))


def test_the_span_of_a_task_is_a_child_of_its_enqueue(recorded: Recorded, backend: PenstockBackend) -> None:
    site.fail.enqueue(1)
    with working(backend):
        eventually(lambda: len(recorded.spans) == 3)
    tube = backend.tube_of("default")
    published, failed, processed = recorded.spans
    assert [published.name, failed.name, processed.name] == [f"publish {tube}", *[f"process {tube}"] * 2]
    assert {span.parent.span_id for span in (failed, processed) if span.parent} == {published.context.span_id}
    assert (failed.status.is_ok, processed.status.is_ok) == (False, True)


def test_tasks_are_done_by_priority_after_their_time_and_from_their_queue(backend: PenstockBackend) -> None:
    site.collect.enqueue("first")
    site.collect.using(priority=-1).enqueue("last")
    asyncio.run(site.sleep.using(priority=1).aenqueue(["urgent"]))
    site.collect.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("later")
    site.collect.using(queue_name="mail").enqueue("of another queue")
    with working(backend):
        eventually(lambda: len(site.DONE) == 3)
        eventually(lambda: counts(backend) == (0, 0, 1, 0))
    assert site.DONE == [["urgent"], "first", "last"]
    assert counts(backend, "mail") == (1, 0, 0, 0)
    with working(backend, "mail"):
        eventually(lambda: site.DONE[-1] == "of another queue")


def test_a_failed_task_is_tried_again_and_buried_after_its_last_attempt(backend: PenstockBackend) -> None:
    finished: list[Any] = []
    receive: Callable[..., None] = lambda task_result, **_: finished.append(task_result)  # noqa: E731
    task_finished.connect(receive)
    try:
        site.fail.enqueue(1)
        with working(backend):
            eventually(lambda: len(finished) == 1)
            site.fail.enqueue(2)
            eventually(lambda: counts(backend) == (0, 0, 0, 1))
    finally:
        task_finished.disconnect(receive)
    assert site.DONE == [1, 2, 1, 2]
    assert [result.status for result in finished] == [TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED]
    assert finished[1].errors[0].exception_class is ValueError
    assert finished[0].enqueued_at < finished[0].started_at < finished[0].finished_at


def test_a_stopped_worker_finishes_its_task_and_returns_the_others(
    backend: PenstockBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, finish = threading.Event(), threading.Event()
    monkeypatch.setattr(site, "note", lambda line: begun.set() if line.startswith("begin") else site.DONE.append(line))
    monkeypatch.setattr(site.time, "sleep", lambda _: finish.wait(30))
    for number in range(3):
        site.add.enqueue(number, 1)
    with working(backend) as worker:
        assert begun.wait(30)
        worker.stop()
        finish.set()
    assert site.DONE == ["0"]
    assert counts(backend) == (2, 0, 0, 0)


def test_jobs_without_a_task_are_buried(backend: PenstockBackend, node: Daemon) -> None:
    with Jobs(node.addresses["BEANSTALK"], use=backend.tube_of("default")) as jobs:
        for body in (b"\xff", b"[]", b"{}", b'{"task": "os.system"}', b'{"task": "tests.penstock.django.site.add"}'):
            jobs.put(body)
    site.collect.enqueue("a task")
    with working(backend):
        eventually(lambda: counts(backend) == (0, 0, 0, 5))
    assert site.DONE == ["a task"]


@each("arguments, error", [(("--backend", "other"), "is not"), (("--threads", "0"), "at least 1")])
def test_flags_that_do_not_fit_are_refused(arguments: tuple[str, ...], error: str, backend: PenstockBackend) -> None:
    with pytest.raises(CommandError, match=error):
        call_command("penstock_worker", *arguments)


def test_wrong_options_and_arguments_are_refused(backend: PenstockBackend) -> None:
    with pytest.raises(ImproperlyConfigured, match="addres"):
        task_backends["wrong"]
    with pytest.raises(TypeError):
        site.collect.enqueue(object())
    with pytest.raises(NotImplementedError):
        site.collect.get_result("x")
