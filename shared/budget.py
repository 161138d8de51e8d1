"""How many bytes all clients together may make a daemon buffer: half-received requests and unsent answers.

Code that buffers more than FREE bytes for one connection reserves the amount in the budget, and releases it when the
bytes are gone. The first FREE bytes of each connection are not counted, so small requests work even if the budget is
used up; the number of connections bounds them.

See docs/contributing/design/security.md#sizes-and-times.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

FREE = 16 * 1024  # bytes that a connection may hold outside the budget, for input and for output
DEFAULT_BUDGET = 256 * 1024 * 1024  # bytes: 50 bodies of the default -max-body-size
# Bytes, for nsqlookupd and nsqadmin, whose requests are small and whose answers have a few megabytes.
SMALL_BUDGET = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """A snapshot of a budget, in bytes except for `refused`."""

    limit: int
    used: int
    peak: int  # the most that was used at any time
    refused: int  # number of requests for bytes that were not granted


class Budget:
    """The bytes that all connections together may hold. Any thread may call it."""

    __slots__ = ("_limit", "_lock", "_owners", "_peak", "_refused", "_used")

    def __init__(self, limit: int = DEFAULT_BUDGET) -> None:
        self._limit = limit  # bytes
        self._lock = threading.Lock()
        self._used = 0  # the sum of what owners hold; exceeds the limit only through `charge`, or a single large amount
        self._owners: dict[str, int] = {}  # bytes that each owner holds; holds no zeros
        self._peak = 0
        self._refused = 0

    def reserve(self, size: int, owner: str) -> bool:
        """Reserve `size` bytes for `owner`, a peer's address or "" for a unix socket. Returns False if there is no room now.

        One address gets at most half of the budget, so that a single host cannot lock out the others. An owner that
        holds nothing may reserve more than half, and if the budget is unused, any amount is granted: so a request that is
        allowed at all can always be completed.
        """
        with self._lock:
            if not self._has_room(size, owner):
                self._refused += 1
                return False
            self._add(size, owner)
            return True

    def charge(self, size: int, owner: str) -> None:
        """Count `size` bytes that are in memory already, even if there is no room."""
        with self._lock:
            self._add(size, owner)

    def release(self, size: int, owner: str) -> None:
        """Release `size` bytes that were reserved or charged."""
        with self._lock:
            self._used -= size
            rest = self._owners[owner] - size
            assert rest >= 0, "more was released than reserved"
            if rest:
                self._owners[owner] = rest
            else:
                del self._owners[owner]

    def fits(self, size: int, owner: str, *, is_counted: bool) -> bool:
        """Return whether `reserve` would grant `size` bytes now. `is_counted`: a refusal is counted."""
        with self._lock:
            fits = self._has_room(size, owner)
            self._refused += is_counted and not fits
            return fits

    @property
    def is_full(self) -> bool:
        """True if all bytes of the budget are in use."""
        return self._used >= self._limit

    def figures(self) -> BudgetFigures:
        """Return the limit, the bytes in use, the most that were in use, and the number of refusals."""
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
    """The bytes that one connection or request holds of a budget. A Share is not thread-safe; the budget is."""

    __slots__ = ("_budget", "_owner", "held")

    def __init__(self, budget: Budget, owner: str) -> None:
        self._budget = budget
        self._owner = owner
        self.held = 0  # bytes counted in the budget: 0, or more than FREE

    def hold(self, size: int) -> bool:
        """Hold `size` bytes instead of what was held before. Returns False, and changes nothing, if there is no room."""
        wanted = size if size > FREE else 0
        if wanted > self.held and not self._budget.reserve(wanted - self.held, self._owner):
            return False
        if wanted < self.held:
            self._budget.release(self.held - wanted, self._owner)
        self.held = wanted
        return True

    def charge(self, size: int) -> None:
        """Hold `size` bytes instead of what was held before, even if there is no room: the bytes are in memory already."""
        wanted = size if size > FREE else 0
        if wanted > self.held:
            self._budget.charge(wanted - self.held, self._owner)
            self.held = wanted
        else:
            self.hold(size)

    def fits(self, size: int, *, is_counted: bool = False) -> bool:
        """Return whether `hold` would succeed now. `is_counted`: a refusal is counted, the client is rejected."""
        return size <= max(FREE, self.held) or self._budget.fits(size - self.held, self._owner, is_counted=is_counted)
