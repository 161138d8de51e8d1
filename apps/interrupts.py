"""Signals that a program handles between two pieces of work: as a file that a selector can wait for, and as a queue."""

from __future__ import annotations

import select
import signal
import socket
from contextlib import suppress
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WISHES = (signal.SIGUSR1, signal.SIGUSR2)  # for something else than the end


class Interrupts:
    """A context manager for the main thread. It becomes readable, and `received` True, when SIGINT or SIGTERM arrives.

    Only the first one is noted. The second has its default effect, for users who do not want to wait for a blocked write.
    """

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

    def __enter__(self) -> Interrupts:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()


class SignalQueue:
    """A context manager for the main thread that notes signals, and ends the wait for them."""

    def __init__(self) -> None:
        self._noted: list[int] = []
        self._reader, self._writer = socket.socketpair()
        for each in (self._reader, self._writer):
            each.setblocking(False)

    def __enter__(self) -> SignalQueue:
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in (*STOPS, *WISHES, signal.SIGCHLD):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.set_wakeup_fd(-1)
        for number in (*STOPS, *WISHES):
            signal.signal(number, signal.SIG_IGN)  # the program ends now

    def wait(self, seconds: float) -> list[int]:
        """Return the signals that came, after `seconds` at most."""
        select.select([self._reader], [], [], seconds)
        with suppress(BlockingIOError):  # none came
            self._reader.recv(4096)
        noted, self._noted = self._noted, []
        return noted

    def wake(self) -> None:
        """End the wait. Any thread may call this."""
        with suppress(BlockingIOError):  # enough bytes have been sent to end it
            self._writer.send(b"\0")

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append(number)
