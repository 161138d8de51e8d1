"""The line in the log about an answer, as the original writes it."""

from __future__ import annotations

import logging

from shared.log import leave_out, log
from shared.process.listen import display

# of lines about answers, see shared.repeats
_KINDS = {level: (__file__, level, "%s") for level in (logging.DEBUG, logging.INFO)}

Client = tuple[str, int] | None  # address and port; None: a unix socket


class _Line:
    """A request's line in the log, as the original writes it. It is formatted only if the log writes it."""

    __slots__ = ("_client", "_method", "_status", "_target", "_took")

    def __init__(self, status: int, method: str, target: bytes, client: Client, took: int) -> None:
        self._status = status
        self._method = method
        self._target = target
        self._client = client
        self._took = took

    def __str__(self) -> str:
        remote = display(*self._client) if self._client else "@"
        return f"{self._status} {self._method} {self._target.decode('latin-1')} ({remote}) {go_duration(self._took)}"


def leaves_out_answer(level: int) -> bool:
    """Return True if the log leaves out the line about an answer now, and count it. If not, `write_answer` writes the line."""
    return not log.isEnabledFor(level) or leave_out(_KINDS[level])


def write_answer(level: int, status: int, method: str, target: bytes, client: Client, took: int) -> None:
    """Log a request. `target` is its path and query, `took` the time from the request to the end of its answer in ns."""
    line = _Line(status, method, target, client, took)
    # Like log.info, which would look for its caller on the stack: that costs as much as everything else here.
    log.handle(logging.LogRecord(log.name, level, *_KINDS[level], (line,), None))


def go_duration(ns: int) -> str:
    """Return a duration as Go prints a time.Duration: 12.3µs, 1m0.5s."""
    if ns < 1_000:
        return f"{ns}ns"
    if ns < 1_000_000:
        return _decimal(ns, 3) + "µs"
    if ns < 1_000_000_000:
        return _decimal(ns, 6) + "ms"
    minutes, rest = divmod(ns, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + _decimal(rest, 9) + "s"


def _decimal(number: int, places: int) -> str:
    """Return `number` divided by 10 to the power of `places`, in decimal, without trailing zeros."""
    whole, rest = divmod(number, 10**places)
    return f"{whole}.{rest:0{places}}".rstrip("0").rstrip(".")
