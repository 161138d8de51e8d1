"""One attempt at a task: it is called, its result is noted, and the receivers of Django's signals are called."""

from __future__ import annotations

import logging
from traceback import format_exception
from typing import Any

from django.db import close_old_connections
from django.utils import timezone

from penstock.django.tasks import TaskContext, TaskError, TaskResult, TaskResultStatus, task_finished, task_started

logger = logging.getLogger("penstock.django")


def execute(result: TaskResult[Any], sender: type, worker_ids: list[str], may_retry: bool) -> BaseException | None:
    """Call the task, and note in `result` whether it was successful, has failed, or is ready for its next attempt.

    Returns what the task raised; None: nothing.

    `worker_ids` are those of all attempts, the present one last. `may_retry`: a failure is not the end.
    """
    now = timezone.now()
    note(result, status=TaskResultStatus.RUNNING, started_at=now, last_attempted_at=now, worker_ids=worker_ids)
    task_started.send_robust(sender, task_result=result)
    close_old_connections()
    try:
        context = [TaskContext(task_result=result)] if result.task.takes_context else []
        value = result.task.call(*context, *result.args, **result.kwargs)
    except BaseException as error:  # also SystemExit: it ends the task, not the worker
        kind = type(error)
        trace = "".join(format_exception(error))
        result.errors.append(TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=trace))
        if may_retry:
            note(result, status=TaskResultStatus.READY)
            logger.warning(
                "task %s %s failed, and its job is released", result.task.module_path, result.id, exc_info=error
            )
        else:
            _finish(result, sender, TaskResultStatus.FAILED)  # here, so that receivers can log the exception
        return error
    else:
        note(result, _return_value=value)
        _finish(result, sender, TaskResultStatus.SUCCESSFUL)
        return None
    finally:
        close_old_connections()


def note(result: TaskResult[Any], **changes: object) -> None:
    """Change fields of a result, which is frozen for everyone but a backend."""
    for name, value in changes.items():
        object.__setattr__(result, name, value)


def _finish(result: TaskResult[Any], sender: type, status: TaskResultStatus) -> None:
    note(result, status=status, finished_at=timezone.now())
    task_finished.send_robust(sender, task_result=result)
