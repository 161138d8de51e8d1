"""The log, on standard error, in NSQ's form or as JSON.

NSQ's: `[nsqd] 2026/11/20 11:42:39.719956 INFO: text`, local time. Harnesses parse it (specs/nsq.md e4), so the form is part
of the interface. JSON: one object a line, its keys always ts (RFC 3339, UTC), level, program, message, and exception if
there is one. One logger a program; nothing logs in the per-message path.

What a peer sent may be quoted, and cannot forge a line: control characters are escaped in both forms, and a traceback, which
has many lines in NSQ's form, is indented. A peer cannot fill the disk either: shared/repeats.py bounds how often each line is
written.
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

from shared.repeats import Repeated, Repeats

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
_NAMES = {logging.CRITICAL: "FATAL", logging.WARNING: "WARNING"}

_LIBRARIES = ("asyncio", "httpx", "trio", "uvicorn")

# ASCII's, Latin-1's, and what Unicode takes for the end of a line or for a change of direction.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_INDENT = "    "

log = logging.getLogger("penstock")


class NsqFormatter(logging.Formatter):
    """`<prefix><date> <time with microseconds> LEVEL: text`."""

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
    """A JSON object a line, of ASCII characters."""

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
    """Writes to a stream what Repeats admits, and how many lines it left out.

    The next line of any kind, a timer or the end of the program writes that number, whichever comes first.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._repeats = Repeats()
        self._timer: threading.Timer | None = None  # runs while lines have been left out

    def emit(self, record: logging.LogRecord) -> None:
        """Called by `handle`, which holds the handler's lock."""
        now = self._clock()
        self._tell(self._repeats.ended(now))
        if self._repeats.admits(record, now):
            super().emit(record)
        elif self._timer is None:
            self._set_timer(now)

    def close(self) -> None:
        """Called by logging at the end of the program, too."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
            self._tell(self._repeats.flush())
        finally:
            self.release()
        super().close()

    def _set_timer(self, now: float) -> None:
        self._timer = threading.Timer(max(0.0, self._repeats.next_end - now), self._due)
        self._timer.daemon = True  # the program need not wait for it: `close` writes the same lines
        self._timer.start()

    def _due(self) -> None:
        """Write what is due. The timer calls this in its own thread."""
        self.acquire()
        try:
            self._timer = None
            now = self._clock()
            self._tell(self._repeats.ended(now))
            if self._repeats.next_end < math.inf:
                self._set_timer(now)
        finally:
            self.release()

    def _tell(self, repeated: list[Repeated]) -> None:
        for one in repeated:
            super().emit(logging.LogRecord(log.name, one.level, "", 0, "%s", (one,), None))


FORMATS = {"nsq": NsqFormatter, "json": JsonFormatter}


def configure(prefix: str, level: str, format: str = "nsq") -> None:
    """Send this program's log to standard error. `level` is a key of LEVELS, in any case, `format` one of FORMATS."""
    handler = LimitedHandler(sys.stderr)
    handler.setFormatter(FORMATS[format](prefix))
    log.handlers[:] = [handler]
    log.propagate = False
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # neither form tells them
    log.setLevel(LEVELS[level.lower()])
    for name in _LIBRARIES:  # of theirs only what we must know: a stranger's bad request is no news
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(logging.ERROR)
    if format == "json":  # a machine reads standard error: what ends the program is a line like all others
        sys.excepthook = _log_the_end


def escape(text: str) -> str:
    """`text` on one line: each control character as Python would write it, e.g. `\\n`."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def level_name() -> str:
    """The level in force, as a key of LEVELS."""
    return next(name for name, number in LEVELS.items() if number == log.level)


def _message(record: logging.LogRecord) -> str:
    return record.getMessage().rstrip("\n")  # uvicorn ends some of its own so


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname)


def _log_the_end(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    """What sys.excepthook is called with: nobody caught it, and the program ends."""
    log.critical("%s: %s", kind.__name__, error, exc_info=(kind, error, at))
