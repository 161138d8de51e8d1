"""A sampling profiler: it looks at the stacks of all threads a hundred times a second, at little cost."""

import sys
import threading
from collections import Counter
from types import FrameType

INTERVAL = 0.01  # s
DEEPEST = 200  # calls of a stack that are kept


class Sampler:
    """One profile, from `start` to `stop`."""

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
        while not self._stop.wait(INTERVAL):
            self._counts.update(_stacks())


def _stacks() -> list[str]:
    """Return the stack of each thread but this one. It keeps no frame: one that refers to itself would never be freed."""
    own = threading.get_ident()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [
        ";".join([names.get(ident, "?"), *_calls(frame)])
        for ident, frame in sys._current_frames().items()
        if ident != own
    ]


def _calls(frame: FrameType | None) -> list[str]:
    """Return the functions of a stack, the outermost first."""
    calls: list[str] = []
    while frame is not None and len(calls) < DEEPEST:
        code = frame.f_code
        calls.append(f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}")
        frame = frame.f_back
    return calls[::-1]
