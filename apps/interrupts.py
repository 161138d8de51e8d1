"""SIGINT and SIGTERM as something a selector can wait for: a program ends between two pieces of work, not inside one.

Only the first signal is noted; the second has its default effect, for whoever will not wait for a blocked write.
"""

import signal
import socket
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context manager, in the main thread. Readable, and `seen`, once one of the signals came."""

    def __init__(self) -> None:
        self.seen = False
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}

    def fileno(self) -> int:
        """For selectors."""
        return self._reader.fileno()

    def _note(self, number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        self.seen = True
        self._writer.send(b"!")  # never read: the file stays readable

    def __enter__(self) -> "Interrupts":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()
