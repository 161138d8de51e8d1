"""PenstockBackend: a task is put into the tube of its queue once, and waits there until it is due."""

from __future__ import annotations  # Django's own TaskResult is not generic, that of django-tasks is

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.utils.module_loading import import_string

from penstock.django.tasks import BaseTaskBackend, Task, TaskResult, TaskResultStatus, task_enqueued
from penstock.jobs import Jobs, JobsSettings, Retries
from penstock.jobs.commands import DEFAULT_ADDRESS, DEFAULT_PRIORITY, DEFAULT_TTR_S
from penstock.jobs.shared import SharedJobs
from penstock.telemetry import telemetry

PREFIX = "django."
ID_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Options:
    """The OPTIONS of the backend, in lower case here."""

    address: str = DEFAULT_ADDRESS  # host:port, or the path of a unix socket
    prefix: str = PREFIX  # of tubes; the name of the queue follows
    ttr_s: int = DEFAULT_TTR_S  # s until the tasks of a worker are redelivered whose connection broke silently
    retry_s: float = 30  # s for which a lost node is waited for
    max_attempts: int = 1  # of a task that raises; 0: no limit
    first_delay_s: float = 1  # before the second attempt; it doubles
    max_delay_s: float = 3600


@dataclass(frozen=True, slots=True)
class StoredTask:
    """The content of a job: a task with its arguments, the time to run of the job and its priority."""

    result: TaskResult[Any]  # as it was when the task was put
    ttr_s: float
    priority: int


class PenstockBackend(BaseTaskBackend):
    """A backend of Django's tasks at the beanstalkd port of an nsqd.

    Example::

        TASKS = {
            "default": {
                "BACKEND": "penstock.django.backend.PenstockBackend",
                "QUEUES": ["default", "mail"],
                "OPTIONS": {"ADDRESS": "127.0.0.1:11300", "MAX_ATTEMPTS": 5},
            }
        }
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = False  # nothing keeps results
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        try:
            self._options = options = Options(**{name.lower(): value for name, value in self.options.items()})
            self.retries = Retries(options.max_attempts, options.first_delay_s, options.max_delay_s)
            self._settings = JobsSettings(retry_s=options.retry_s)
            self.jobs = SharedJobs(Jobs(options.address, self._settings))
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"OPTIONS of the tasks' backend {alias!r}: {error}") from error

    @property
    def address(self) -> str:
        """Return the address of the node's beanstalkd port."""
        return self._options.address

    def new_worker_jobs(self) -> Jobs:
        """Return a client for a worker. It begins no spans: tasks at work do."""
        return Jobs(self.address, replace(self._settings, telemetry=False, headers=telemetry() is not None))

    def tube_of(self, queue_name: str) -> str:
        """Return the tube of a queue."""
        return self._options.prefix + queue_name

    def enqueue(self, task: Task[..., Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        """Put the task, once although it is tried again. `run_after` is rounded up to whole seconds.

        Raises JobsError, ValueError for a queue whose name no tube can have, TypeError for arguments that JSON cannot hold.
        """
        self.validate_task(task)
        result = new_result(task, get_random_string(ID_LENGTH), timezone.now(), args, kwargs, self.alias)
        delay_s = max(0.0, task.run_after.timestamp() - timezone.now().timestamp()) if task.run_after else 0
        body, ttr_s = pack_task(result, self._options.ttr_s), self._options.ttr_s
        self.jobs.put_once(self.tube_of(task.queue_name), body, _job_priority(task), delay_s, ttr_s, result.id)
        task_enqueued.send(type(self), task_result=result)
        return result


def new_result(
    task: Task[..., Any], task_id: str, enqueued_at: datetime, args: Any, kwargs: Any, alias: str
) -> TaskResult[Any]:
    """Return the result of a task that has not begun."""
    return TaskResult(
        task=task,
        id=task_id,
        status=TaskResultStatus.READY,
        enqueued_at=enqueued_at,
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=list(args),
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def pack_task(result: TaskResult[Any], ttr_s: float) -> bytes:
    """Return the body of the job of a task."""
    task, enqueued_at = result.task, result.enqueued_at
    fields = {
        "id": result.id,
        "task": task.module_path,
        "args": result.args,
        "kwargs": result.kwargs,
        "queue_name": task.queue_name,
        "priority": task.priority,
        "enqueued_at": enqueued_at.timestamp() if enqueued_at else 0,
        "ttr_s": ttr_s,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def read_task(body: bytes, alias: str) -> StoredTask:
    """Read the body of a job. Raises ValueError if it holds no task, or one that is not defined here."""
    try:
        fields = json.loads(body)
        found = import_string(fields["task"])
        if not isinstance(found, Task):
            raise ValueError(f"not a task: {fields['task']}")
        task = found.using(priority=fields["priority"], queue_name=fields["queue_name"], backend=alias)
        enqueued_at = datetime.fromtimestamp(fields["enqueued_at"], UTC if timezone.now().tzinfo else None)
        result = new_result(task, str(fields["id"]), enqueued_at, fields["args"], dict(fields["kwargs"]), alias)
        return StoredTask(result, float(fields["ttr_s"]), _job_priority(task))
    except Exception as error:  # importing the task's module may raise anything
        raise ValueError(f"not a task: {error!r}") from error


def _job_priority(task: Task[..., Any]) -> int:
    """Return the priority of the task's job: greater ones of Django come first, lower ones of jobs."""
    return DEFAULT_PRIORITY - int(task.priority)
