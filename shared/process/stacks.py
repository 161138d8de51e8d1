"""The stacks of all threads and trio tasks, for an operator whose daemon hangs or spins: as text, and sampled as a profile."""

import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from types import FrameType

import trio

MOST_TASKS = 500  # tasks shown in full: each takes 20 us in the trio thread
INTERVAL = 0.01  # s between two samples
DEEPEST = 200  # calls of a sampled stack that are kept


class Sampler:
    """A profile that looks at the stacks of all threads a hundred times a second, from `start` to `stop`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Start to sample, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling. This takes as long as one sample, some microseconds."""
        self._stop.set()
        self._thread.join()

    def folded(self) -> str:
        """Return a line per stack seen: `thread;outermost;..;innermost count`, the input of flame graph tools."""
        return "".join(f"{stack} {count}\n" for stack, count in self._counts.most_common())

    def _run(self) -> None:
        own = threading.get_ident()
        while not self._stop.wait(INTERVAL):  # no frame is kept: one that refers to itself would never be freed
            self._counts.update(
                ";".join([name, *_calls(frame)]) for ident, name, frame in _thread_frames() if ident != own
            )


def threads_text() -> str:
    """Return the stack of each Python thread, the innermost call last. Any thread may call it."""
    return "\n".join(
        f"thread {name} ({ident}):\n{''.join(traceback.extract_stack(frame).format())}"
        for ident, name, frame in _thread_frames()
    )


def tasks_text() -> str:
    """Return the stacks of at most MOST_TASKS trio tasks. Only the trio thread may call it."""
    tasks = list(_tasks(trio.lowlevel.current_root_task()))
    parts = [f"task {task.name}:\n{''.join(_await_lines(task))}" for task in tasks[:MOST_TASKS]]
    if len(tasks) > MOST_TASKS:
        parts.append(f"and {len(tasks) - MOST_TASKS} tasks more\n")
    return "\n".join(parts)


def _thread_frames() -> Iterator[tuple[int, str, FrameType]]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield ident, names.get(ident, "?"), frame


def _calls(frame: FrameType | None) -> list[str]:
    """Return the functions of a stack, the outermost first."""
    calls: list[str] = []
    while frame is not None and len(calls) < DEEPEST:
        calls.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return calls[::-1]


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
