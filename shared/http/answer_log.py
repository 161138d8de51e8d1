"""The line in the log about an answer, as the original writes it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from shared.log import leave_out, log
from shared.process.listen import display
from shared.values import format_duration

# of lines about answers, see shared.repeats
_KINDS = {level: (__file__, level, "%s") for level in (logging.DEBUG, logging.INFO)}

Client = tuple[str, int] | None  # address and port; None: a unix socket


@dataclass(slots=True)
class _Line:
    """A request's line in the log, as the original writes it. It is formatted only if the log writes it."""

    status: int
    method: str
    target: bytes
    client: Client
    took: int  # ns

    def __str__(self) -> str:
        remote = display(*self.client) if self.client else "@"
        return f"{self.status} {self.method} {self.target.decode('latin-1')} ({remote}) {format_duration(self.took)}"


def leaves_out_answer(level: int) -> bool:
    """Return True if the log leaves out the line about an answer now, and count it. If not, `write_answer` writes the line."""
    return not log.isEnabledFor(level) or leave_out(_KINDS[level])


def write_answer(level: int, status: int, method: str, target: bytes, client: Client, took: int) -> None:
    """Log a request. `target` is its path and query, `took` the time from the request to the end of its answer in ns."""
    line = _Line(status, method, target, client, took)
    # Like log.info, which would look for its caller on the stack: that costs as much as everything else here.
    log.handle(logging.LogRecord(log.name, level, *_KINDS[level], (line,), None))
