"""The log, on standard error, in NSQ's form or as JSON.

NSQ's: `[nsqd] 2026/11/20 11:42:39.719956 INFO: text`, local time, which harnesses parse. JSON: one object per line, whose keys
are ts (RFC 3339, UTC), level, program, message, and exception if there is one. Nothing logs in the per-message path except for
the line about each HTTP request, as in the original.

A peer whose bytes are quoted cannot forge a line: control characters are escaped in both forms, and a traceback is indented.
It cannot fill the disk (shared/repeats.py), and a reader that takes no more bytes stops nothing (shared/lossy_stream.py).

See docs/contributing/design/nsq-programs.md#log-lines.
"""

import logging
import math
import re
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

from shared.lossy_stream import RETRY, describe_loss, is_behind, make_lossy
from shared.repeats import Kind, Repeated, Repeats

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
_NAMES = {logging.CRITICAL: "FATAL", logging.WARNING: "WARNING"}

_LIBRARIES = ("asyncio", "httpx", "trio", "uvicorn")

# Control characters of ASCII and Latin-1, and those that Unicode takes for a line end or a change of direction.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_INDENT = "    "

log = logging.getLogger("penstock")


class NsqFormatter(logging.Formatter):
    """Formats a line as `<prefix><date> <time with microseconds> LEVEL: text`."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).strftime("%Y/%m/%d %H:%M:%S.%f")
        text = escape(_message(record))
        if record.exc_info:
            lines = self.formatException(record.exc_info).split("\n")
            text = "\n".join([text, *(_INDENT + escape(line) for line in lines)])
        return f"{self._prefix}{when} {_level(record)}: {text}"


class JsonFormatter(logging.Formatter):
    """Formats a line as a JSON object of ASCII characters."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._program = prefix.strip("[]: ")

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        line = {"ts": when, "level": _level(record), "program": self._program, "message": _message(record)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        import json

        return json.dumps(line)


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes the lines that Repeats admits to a stream, and the number of lines it left out.

    That number is written with the next line of any kind, by a timer, or at the end of the program.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._repeats = Repeats()
        self._timer: threading.Timer | None = None  # runs while lines have been left out

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless Repeats leaves it out. `handle` calls this, and holds the handler's lock."""
        now = self._clock()
        self._log_repeats(self._repeats.ended(now))
        if self._repeats.admits(record, now):
            super().emit(record)
        self._set_timer(now)

    def leave_out(self, kind: Kind) -> bool:
        """Count a line and return True, if `emit` would leave it out. For lines so frequent that making them is costly."""
        assert self.lock is not None
        with self.lock:  # `acquire` and `release` would be two calls more
            return self._repeats.leave_out(kind, self._clock())

    def close(self) -> None:
        """Write the numbers of lines left out. logging calls this at the end of the program, too."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
            self._log_repeats(self._repeats.flush())
        finally:
            self.release()
        super().close()

    def report_loss(self, lines: int) -> str:
        """Return the line about lines that the stream has dropped, for shared.lossy_stream.LossyStream."""
        return self.format(_record(logging.WARNING, describe_loss(lines))) + self.terminator

    def _set_timer(self, now: float) -> None:
        """Start the timer, unless it runs, if lines were left out or dropped."""
        wait = RETRY if is_behind(self.stream) else self._repeats.next_end - now
        if self._timer is None and wait < math.inf:
            self._timer = threading.Timer(max(0.0, wait), self._due)
            self._timer.daemon = True  # the program does not wait for it, because `close` writes the same lines
            self._timer.start()

    def _due(self) -> None:
        """Write the numbers that are due. The timer calls this in its own thread."""
        self.acquire()
        try:
            self._timer = None
            now = self._clock()
            self._log_repeats(self._repeats.ended(now))
            self.flush()  # the number of dropped lines
            self._set_timer(now)
        finally:
            self.release()

    def _log_repeats(self, repeated: list[Repeated]) -> None:
        for one in repeated:
            super().emit(_record(one.level, str(one)))


FORMATS = {"nsq": NsqFormatter, "json": JsonFormatter}


def configure(prefix: str, level: str, format: str = "nsq") -> None:
    """Send this program's log to standard error. `level` is a key of LEVELS, in any case; `format` is one of FORMATS.

    From now on nothing that is written to sys.stderr waits for its reader.
    """
    handler = LimitedHandler(sys.stderr)
    handler.setFormatter(FORMATS[format](prefix))
    make_lossy("stderr", handler.report_loss)
    handler.setStream(sys.stderr)
    log.handlers[:] = [handler]
    log.propagate = False
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # neither form shows them
    log.setLevel(LEVELS[level.lower()])
    for name in _LIBRARIES:  # errors of libraries only: a stranger's bad request is not worth a line
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(logging.ERROR)
    if format == "json":  # a program reads standard error, so a fatal exception must have the same form
        sys.excepthook = _log_the_end


def leave_out(kind: Kind) -> bool:
    """Count a line of this kind as a repetition and return True, if the log leaves it out at the moment."""
    handler = log.handlers[0] if log.handlers else None
    return isinstance(handler, LimitedHandler) and handler.leave_out(kind)


def write(level: int, kind: Kind, *arguments: object) -> None:
    """Log a line that a peer can cause at will. log.log looks for its caller, and makes a record even of what is left out."""
    if log.isEnabledFor(level) and not leave_out(kind):
        log.handle(logging.LogRecord(log.name, level, *kind, arguments, None))


def escape(text: str) -> str:
    """Return `text` on one line: each control character as Python would write it, such as `\\n`."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def level_name() -> str:
    """Return the current level, as a key of LEVELS."""
    return next((name for name, level in LEVELS.items() if level >= log.getEffectiveLevel()), "fatal")


def _record(level: int, text: str) -> logging.LogRecord:
    return logging.LogRecord(log.name, level, "", 0, "%s", (text,), None)


def _message(record: logging.LogRecord) -> str:
    return record.getMessage().rstrip("\n")  # uvicorn ends some of its messages with a newline


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname)


def _log_the_end(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    """Log the exception that ends the program, as sys.excepthook."""
    log.critical("%s: %s", kind.__name__, error, exc_info=(kind, error, at))
