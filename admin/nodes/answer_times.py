"""How long the nodes take to answer nsqadmin, and how often they do not. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

KEPT = 100  # latest times of each server
MOST = 1000  # servers; the one asked longest ago is forgotten first


@dataclass(slots=True)
class _Server:
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    answers: int = 0
    failures: int = 0
    is_failing: bool = False


@dataclass(frozen=True, slots=True)
class AnswerTime:
    """What is known of one server since nsqadmin began to ask it."""

    server: str  # host:port
    answers: int  # of any status
    failures: int  # questions without an answer
    is_failing: bool  # the last question had none
    p50: float  # s, of the last KEPT answers; 0: there was none
    p99: float


@dataclass(slots=True)
class AnswerTimes:
    """Remembers how fast each server answered lately, for MOST servers that were asked last."""

    _servers: OrderedDict[str, _Server] = field(default_factory=OrderedDict)

    def note(self, server: str, seconds: float, *, failed: bool = False) -> None:
        """Note an answer and its time, or that there was none. `server`: a URL without its path."""
        known = self._servers.setdefault(server, _Server())
        self._servers.move_to_end(server)
        if len(self._servers) > MOST:
            self._servers.popitem(last=False)
        known.is_failing = failed
        if failed:
            known.failures += 1
            return
        known.answers += 1
        known.seconds.append(seconds)

    def all(self) -> list[AnswerTime]:
        """Return the times of all servers, the slowest first."""
        found = [
            AnswerTime(
                server.partition("://")[2] or server,
                one.answers,
                one.failures,
                one.is_failing,
                _percentile(one.seconds, 0.50),
                _percentile(one.seconds, 0.99),
            )
            for server, one in self._servers.items()
        ]
        return sorted(found, key=lambda one: (not one.is_failing, -one.p99, one.server))


def _percentile(seconds: deque[float], share: float) -> float:
    """Return the time at the nearest rank, in s; 0 if there are none."""
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))] if seconds else 0.0
