"""Log lines in NSQ's form: `[nsqd] 2026/11/20 11:42:39.719956 INFO: text`, local time, on standard error.

Harnesses parse them (specs/nsq.md e4), so the form is part of the interface. One logger a program; nothing logs in the
per-message path.
"""

import logging
import sys
from datetime import datetime

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
_NAMES = {logging.CRITICAL: "FATAL", logging.WARNING: "WARNING"}

_LIBRARIES = ("asyncio", "httpx", "trio", "uvicorn")

log = logging.getLogger("penstock")


class NsqFormatter(logging.Formatter):
    """`<prefix><date> <time with microseconds> LEVEL: text`."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).strftime("%Y/%m/%d %H:%M:%S.%f")
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"{self._prefix}{when} {_NAMES.get(record.levelno, record.levelname)}: {text}"


def configure(prefix: str, level: str) -> None:
    """Send this program's log to standard error. `level` is a key of LEVELS, in any case."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(NsqFormatter(prefix))
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(LEVELS[level.lower()])
    for name in _LIBRARIES:  # of theirs only what we must know: a stranger's bad request is no news
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(logging.ERROR)


def level_name() -> str:
    """The level in force, as a key of LEVELS."""
    return next(name for name, number in LEVELS.items() if number == log.level)


def is_level(text: str) -> str:
    """An option check: what is wrong with `text` as a level, or ""."""
    return "" if text.lower() in LEVELS else f"want one of {', '.join(LEVELS)}"
