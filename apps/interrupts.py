"""SIGINT and SIGTERM as a file that a selector can wait for, so that a program ends between two pieces of work.

Only the first signal is noted. The second one has its default effect, for users who do not want to wait for a blocked
write.
"""

import signal
import socket
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context manager for the main thread. It becomes readable, and `received` True, when a signal arrives."""

    def __init__(self) -> None:
        self.received = False
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}

    def fileno(self) -> int:
        """Return the file descriptor that a selector waits for."""
        return self._reader.fileno()

    def _note(self, number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        self.received = True
        self._writer.send(b"!")  # never read, so the file stays readable

    def __enter__(self) -> "Interrupts":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()
