"""How fast the connections of one address may send commands to nsqlookupd that register nothing: PING, UNREGISTER, REGISTER of
what is registered or beyond a limit.

Pure; `now` is s. Law: honest nsqd never meet it, for they send PING each 15 s; a flood gets RATE, a fraction of a core. 200
connections that sent PING without end kept a new nsqd waiting for more than 5 s, and nsqd gives up after 1 s.
"""

from __future__ import annotations

RATE = 10_000  # commands/s; one took 2 to 4 us
BURST = 50_000  # commands: an nsqd that deletes all its topics and channels at once
LONGEST = 1.0  # s of a pause
MOST_REMEMBERED = 4_096  # addresses


class Pace:
    """What each address has spent lately; at most MOST_REMEMBERED addresses."""

    def __init__(self) -> None:
        self._spent: dict[str, tuple[float, float]] = {}  # by address: commands, at most BURST are free; when that was

    def pause(self, host: str, commands: int, now: float) -> float:
        """So many such commands were served: how long (s) the connection must pause before its next ones."""
        spent, at = self._spent.get(host, (0.0, now))
        spent = max(0.0, spent - (now - at) * RATE) + commands
        if len(self._spent) >= MOST_REMEMBERED and host not in self._spent:
            self._forget(now)
        self._spent[host] = spent, now
        return min(max(0.0, spent - BURST) / RATE, LONGEST)

    def _forget(self, now: float) -> None:
        """Addresses whose burst is whole again; or the one that was silent for longest."""
        whole = [host for host, (spent, at) in self._spent.items() if spent <= (now - at) * RATE]
        for host in whole or [min(self._spent, key=lambda one: self._spent[one][1])]:
            del self._spent[host]

    def __len__(self) -> int:
        return len(self._spent)
