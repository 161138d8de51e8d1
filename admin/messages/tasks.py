"""Tasks: work on many messages or jobs, in steps, at a limited rate, with visible progress, that can be cancelled at once.

A task lives as long as nsqadmin does; the audit trail records what it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum

from admin.nodes.upstreams import UpstreamError
from admin.users.audit import Actor, Audit
from shared.log import log

MOST_RUNNING = 20
MOST_KEPT = 100  # tasks; beyond that the oldest ended ones are forgotten
STEPS_A_SECOND = 5  # so that a cancel takes effect within 0.2 s
LISTING_PAUSE = 0.02  # s between two steps that list messages, so that nodes do other work, too
LARGEST_STEP = 1000  # messages or jobs that nsqd handles in one request
FASTEST = 50_000  # messages or jobs per second

# acts on up to that many, and returns the number; 0: none are left, None: it has not found the next ones yet
Step = Callable[[int], Awaitable[int | None]]


class TaskState(Enum):
    """Whether a task runs, or how it ended."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(slots=True)
class Task:
    """A task, its progress, and its outcome."""

    number: int
    action: str
    topic: str
    target: str
    total: int
    per_second: int
    actor: Actor
    began: float  # s since the epoch
    done: int = 0
    state: TaskState = TaskState.RUNNING
    error: str = ""
    ended: float = 0.0
    cancelled_by: str = ""
    channel: str = ""  # of the topic; "": the task is about the topic, or a tube
    cancel: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def share(self) -> float:
        """The share of the work that is done, in percent."""
        return 100.0 * self.done / self.total if self.total else 100.0


class NotAllowed(Exception):
    """The user who started the task is no longer allowed to do it."""


class TooManyTasks(Exception):
    """MOST_RUNNING tasks run already, so no other can start."""


class Tasks:
    """All tasks that are remembered, the newest last."""

    def __init__(self, audit: Audit, clock: Callable[[], float] = time.time) -> None:
        self._audit = audit
        self._clock = clock
        self._tasks: OrderedDict[int, Task] = OrderedDict()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._next = 1

    def all(self) -> list[Task]:
        """Return all tasks, the newest first."""
        return list(reversed(self._tasks.values()))

    def find(self, number: int) -> Task | None:
        """Return the task with that number, or None if it is forgotten."""
        return self._tasks.get(number)

    def begin(
        self, action: str, topic: str, target: str, total: int, per_second: int, actor: Actor, step: Step, channel: str = ""
    ) -> Task:  # fmt: skip
        """Start a task and record it. Raises TooManyTasks."""
        if len(self._running) >= MOST_RUNNING:
            raise TooManyTasks(f"{MOST_RUNNING} tasks are already running. Wait for one to finish, or cancel one.")
        ended = [number for number in self._tasks if number not in self._running]
        for number in ended[: max(0, len(self._tasks) - MOST_KEPT + 1)]:
            del self._tasks[number]
        began = self._clock()
        task = Task(self._next, action, topic, target, total, min(per_second, FASTEST), actor, began, channel=channel)
        self._next += 1
        self._tasks[task.number] = task
        self._note(task, "started", count=total, per_second=per_second)
        self._running[task.number] = asyncio.create_task(self._run(task, step))
        return task

    def cancel(self, number: int, actor: Actor) -> None:
        """Cancel a task: it begins no further step."""
        task = self._tasks.get(number)
        if task is not None and number in self._running:
            task.cancelled_by = actor.user or "anonymous"
            task.cancel.set()

    async def _run(self, task: Task, step: Step) -> None:
        try:
            await self._work(task, step)
        except UpstreamError as failure:
            unsure = "" if failure.status else "; the last step may have been executed"
            task.state, task.error = TaskState.FAILED, f"{failure}{unsure}"
        except NotAllowed as refusal:
            task.state, task.error = TaskState.CANCELLED, str(refusal)
        except asyncio.CancelledError:
            task.state, task.error = TaskState.CANCELLED, "nsqadmin was stopped"
        except Exception as bug:
            log.critical("TASKS: %s of %s", task.action, task.target, exc_info=bug)
            task.state, task.error = TaskState.FAILED, "internal error in nsqadmin, see its log"
        task.ended = self._clock()
        del self._running[task.number]
        outcome = f"{task.state.value}{': ' if task.error else ''}{task.error}"
        more = {"cancelled_by": task.cancelled_by} if task.state is TaskState.CANCELLED else {}
        self._note(task, outcome, count=task.done, of=task.total, **more)

    def _note(self, task: Task, outcome: str, **detail: object) -> None:
        self._audit.note(f"{task.action} many", task.target, task.actor, outcome, **detail, task=task.number)

    @staticmethod
    async def _work(task: Task, step: Step) -> None:
        most = max(1, min(LARGEST_STEP, task.per_second // STEPS_A_SECOND))
        pause = most / task.per_second
        loop = asyncio.get_running_loop()
        while task.done < task.total:
            if task.cancel.is_set():
                task.state = TaskState.CANCELLED
                return
            began = loop.time()
            count = min(most, task.total - task.done)
            acted = await step(count)
            if acted is None:
                await asyncio.sleep(LISTING_PAUSE)
                continue
            if not acted:  # none are left, or other clients have taken them
                break
            task.done += min(count, acted)
            left = pause - (loop.time() - began)
            if left > 0 and task.done < task.total:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(task.cancel.wait(), left)
        task.state = TaskState.DONE
