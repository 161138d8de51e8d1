"""Response times of the nodes, and how often they fail to answer. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace

KEPT = 100  # latest times of each server
MOST = 1000  # servers; the one asked longest ago is forgotten first


@dataclass(slots=True)
class AnswerTime:
    """The answers of one server since nsqadmin began to ask it."""

    server: str  # host:port
    answers: int = 0  # of any status
    failures: int = 0  # requests without an answer
    is_failing: bool = False  # the last request had none
    p50: float = 0.0  # s, of the last KEPT answers; 0: there was none
    p99: float = 0.0


@dataclass(slots=True)
class AnswerTimes:
    """Remembers the latest response times of the MOST servers that were asked last."""

    # By URL without its path; the times are in s.
    _servers: OrderedDict[str, tuple[AnswerTime, deque[float]]] = field(default_factory=OrderedDict)

    def note(self, server: str, seconds: float, *, failed: bool = False) -> None:
        """Note an answer and its time, or that there was none. `server`: a URL without its path."""
        fresh = AnswerTime(server.partition("://")[2] or server), deque[float](maxlen=KEPT)
        known, times = self._servers.setdefault(server, fresh)
        self._servers.move_to_end(server)
        if len(self._servers) > MOST:
            self._servers.popitem(last=False)
        known.is_failing = failed
        if failed:
            known.failures += 1
        else:
            known.answers += 1
            times.append(seconds)

    def all(self) -> list[AnswerTime]:
        """Return the times of all servers: those that fail, then the slowest first."""
        found = [
            replace(known, p50=_percentile(times, 0.50), p99=_percentile(times, 0.99))
            for known, times in self._servers.values()
        ]
        return sorted(found, key=lambda one: (not one.is_failing, -one.p99, one.server))


def _percentile(times: deque[float], share: float) -> float:
    """Return the time at the nearest rank, in s; 0 if there are none."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))] if times else 0.0
