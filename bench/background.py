"""Work in a thread during a block of code: load, or sampling."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Call `work` in a thread while the block runs. The event is set when the block ends; the thread is waited for then."""
    is_over = threading.Event()
    thread = threading.Thread(target=work, args=(is_over,))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
