"""The stacks of all threads and trio tasks as text, for an operator whose daemon hangs or spins."""

import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType

import trio

MOST_TASKS = 500  # tasks shown in full: each takes 20 us in the trio thread


def threads_text() -> str:
    """Return the stack of each Python thread, the innermost call last. Any thread may call it."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = {ident: traceback.extract_stack(frame) for ident, frame in sys._current_frames().items()}
    return "\n".join(
        f"thread {names.get(ident, '?')} ({ident}):\n{''.join(stack.format())}" for ident, stack in stacks.items()
    )


def tasks_text() -> str:
    """Return the stacks of at most MOST_TASKS trio tasks. Only the trio thread may call it."""
    parts: list[str] = []
    left = 0
    for task in _tasks(trio.lowlevel.current_root_task()):
        if len(parts) < MOST_TASKS:
            parts.append(f"task {task.name}:\n{''.join(_await_lines(task))}")
        else:
            left += 1
    return "\n".join([*parts, f"and {left} tasks more\n"] if left else parts)


def _tasks(root: trio.lowlevel.Task | None) -> Iterator[trio.lowlevel.Task]:
    waiting = [root] if root else []
    while waiting:
        task = waiting.pop()
        yield task
        for nursery in task.child_nurseries:
            waiting += nursery.child_tasks


def _await_lines(task: trio.lowlevel.Task) -> list[str]:
    frames: list[tuple[FrameType, int]] = list(task.iter_await_frames())
    return traceback.StackSummary.extract(iter(frames)).format()
