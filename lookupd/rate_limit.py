"""The rate at which the connections of one address may send commands that register nothing.

These are PING, UNREGISTER, and REGISTER of something that is registered already or exceeds a limit. Pure; `now` is in
seconds. Invariant: an honest nsqd never reaches the limit, because it sends PING every 15 s; a flood gets RATE, a fraction of
a core. 200 connections that sent PING without end kept a new nsqd waiting for more than 5 s, and nsqd gives up after 1 s.
"""

from __future__ import annotations

RATE = 10_000  # commands per second; one took 2 to 4 us
BURST = 50_000  # commands: an nsqd that deletes all its topics and channels at once
LONGEST = 1.0  # s: the longest pause
MOST_REMEMBERED = 4_096  # addresses


class RateLimit:
    """The commands that each address has spent, like a leaky bucket; remembers at most MOST_REMEMBERED addresses."""

    def __init__(self) -> None:
        # By address: commands spent (up to BURST are free), and when that was.
        self._spent: dict[str, tuple[float, float]] = {}

    def pause(self, host: str, commands: int, now: float) -> float:
        """Count `commands` for the host, and return how long (s) the connection must pause before its next ones."""
        spent, at = self._spent.get(host, (0.0, now))
        spent = max(0.0, spent - (now - at) * RATE) + commands
        if len(self._spent) >= MOST_REMEMBERED and host not in self._spent:
            self._forget(now)
        self._spent[host] = spent, now
        return min(max(0.0, spent - BURST) / RATE, LONGEST)

    def _forget(self, now: float) -> None:
        """Forget the addresses that have nothing left to work off, or else the one that was silent for longest."""
        whole = [host for host, (spent, at) in self._spent.items() if spent <= (now - at) * RATE]
        for host in whole or [min(self._spent, key=lambda one: self._spent[one][1])]:
            del self._spent[host]

    def __len__(self) -> int:
        return len(self._spent)
