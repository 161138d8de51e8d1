"""How many bytes all clients together may make a daemon buffer: half-received requests and answers on their way out.

Whoever buffers more than FREE bytes for one connection takes the amount from the budget and gives it back when the bytes are
gone. The first FREE bytes of each connection are not counted, so small requests work however full the budget is; what they
take is bounded by the number of connections.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

FREE = 16 * 1024  # bytes a connection may hold beside the budget, for input and for output
DEFAULT_BUDGET = 256 * 1024 * 1024  # bytes: 50 bodies of the default -max-body-size
# bytes, for nsqlookupd and nsqadmin, whose requests are small and answers a few megabytes
SMALL_BUDGET = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """One look at a budget, in bytes but for `refused`."""

    limit: int
    used: int
    peak: int  # the most that was used at a time
    refused: int  # amounts that were asked for and not granted


class Budget:
    """See above. Any thread may call."""

    __slots__ = ("_limit", "_lock", "_owners", "_peak", "_refused", "_used")

    def __init__(self, limit: int = DEFAULT_BUDGET) -> None:
        self._limit = limit  # bytes
        self._lock = threading.Lock()
        self._used = 0  # the sum of what owners hold; above the limit only by `charge`, or by a single large amount
        self._owners: dict[str, int] = {}  # what each holds; never 0
        self._peak = 0
        self._refused = 0

    def take(self, size: int, owner: str) -> bool:
        """Take `size` bytes for `owner`, a peer's address or "" for a unix socket. False: there is no room, try later.

        One address gets at most half of the budget, so that a single host cannot lock out the others. Where nobody, or where
        this owner holds nothing, a larger amount is granted: a request that is allowed at all can always be completed.
        """
        with self._lock:
            if not self._has_room(size, owner):
                self._refused += 1
                return False
            self._add(size, owner)
            return True

    def charge(self, size: int, owner: str) -> None:
        """Count `size` bytes that are there already, whether there is room or not."""
        with self._lock:
            self._add(size, owner)

    def give(self, size: int, owner: str) -> None:
        """Give back `size` bytes of what was taken or charged."""
        with self._lock:
            self._used -= size
            rest = self._owners[owner] - size
            assert rest >= 0, "more was given back than taken"
            if rest:
                self._owners[owner] = rest
            else:
                del self._owners[owner]

    def fits(self, size: int, owner: str) -> bool:
        """Whether `take` would grant so much now."""
        with self._lock:
            return self._has_room(size, owner)

    def has_room(self, size: int, owner: str) -> bool:
        """Whether `hold` would succeed now; a refusal is counted, because the caller turns somebody away."""
        with self._lock:
            if self._has_room(size, owner):
                return True
            self._refused += 1
            return False

    @property
    def is_full(self) -> bool:
        """True if nothing more can be taken."""
        return self._used >= self._limit

    def figures(self) -> BudgetFigures:
        """What is used now, and the most that ever was."""
        with self._lock:
            return BudgetFigures(self._limit, self._used, self._peak, self._refused)

    def _has_room(self, size: int, owner: str) -> bool:
        if not self._used:
            return True
        if self._used + size > self._limit:
            return False
        own = self._owners.get(owner, 0)
        return not own or not owner or own + size <= self._limit // 2

    def _add(self, size: int, owner: str) -> None:
        self._used += size
        self._peak = max(self._peak, self._used)
        self._owners[owner] = self._owners.get(owner, 0) + size


class Share:
    """What one connection or request holds of a budget. Not thread-safe; its budget is."""

    __slots__ = ("_budget", "_owner", "held")

    def __init__(self, budget: Budget, owner: str) -> None:
        self._budget = budget
        self._owner = owner
        self.held = 0  # bytes counted in the budget: 0, or more than FREE

    def hold(self, size: int) -> bool:
        """Hold `size` bytes from now on, instead of what was held before. False: there is no room, and nothing changes."""
        wanted = size if size > FREE else 0
        if wanted > self.held and not self._budget.take(wanted - self.held, self._owner):
            return False
        if wanted < self.held:
            self._budget.give(self.held - wanted, self._owner)
        self.held = wanted
        return True

    def charge(self, size: int) -> None:
        """Likewise, whether there is room or not: the bytes are there already."""
        wanted = size if size > FREE else 0
        if wanted > self.held:
            self._budget.charge(wanted - self.held, self._owner)
            self.held = wanted
        else:
            self.hold(size)

    def fits(self, size: int) -> bool:
        """Whether `hold` would succeed now; a refusal is not counted, because the caller only waits."""
        return size <= max(FREE, self.held) or self._budget.fits(size - self.held, self._owner)

    def would_fit(self, size: int) -> bool:
        """Likewise; a refusal is counted, for the caller refuses somebody."""
        return size <= max(FREE, self.held) or self._budget.has_room(size - self.held, self._owner)
