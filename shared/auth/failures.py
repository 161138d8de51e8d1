"""Count wrong proofs by who has shown them, so that nobody guesses without end. Pure: the time comes in by a clock.

Law: after `most` wrong proofs within `within` seconds a key has to wait until that time is over. Others are not held up, and
what is kept is bounded: who failed longest ago is forgotten first. What waiting means, the caller says: a password, which takes
long to look at, is not looked at; a token always is, for it cannot be guessed, and a wrong one ends the connection.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable

MOST_FAILURES = 20  # of one address in FAILURES_WITHIN
FAILURES_WITHIN = 10.0  # s
MOST_KEYS = 10_000


class Failures:
    """The wrong proofs of late, by a key: an address, or whatever else is held to the limit."""

    def __init__(
        self,
        clock: Callable[[], float],
        most: int = MOST_FAILURES,
        within: float = FAILURES_WITHIN,
        most_keys: int = MOST_KEYS,
    ) -> None:
        """`clock`: monotonic s. The others are as in the module's law; `most_keys` are remembered."""
        self._clock = clock
        self._most = most
        self._within = within
        self._most_keys = most_keys
        # by key: how many, and when the first of them was (s); the key that failed last is the last one
        self._failed: dict[Hashable, tuple[int, float]] = {}

    def wait(self, key: Hashable) -> float:
        """Return the seconds for which this key has to wait; 0: it need not."""
        count, since = self._failed.get(key, (0, 0.0))
        return max(0.0, since + self._within - self._clock()) if count >= self._most else 0.0

    def note(self, key: Hashable) -> bool:
        """Count a wrong proof. Returns True if the limit is reached by it: the log is to tell.

        Call it before a proof is compared that takes long, and `take_back` if it was right: of many at once each is counted.
        """
        now = self._clock()
        count, since = self._failed.pop(key, (0, now))
        if since + self._within <= now:
            count, since = 0, now
        if len(self._failed) >= self._most_keys:
            del self._failed[next(iter(self._failed))]
        self._failed[key] = count + 1, since
        return count + 1 == self._most

    def take_back(self, key: Hashable) -> None:
        """Take back what `note` has counted."""
        count, since = self._failed.get(key, (0, 0.0))
        if count > 1:
            self._failed[key] = count - 1, since
        else:
            self._failed.pop(key, None)

    def __len__(self) -> int:
        return len(self._failed)

    def __repr__(self) -> str:
        return f"<Failures of {len(self)}>"


def network_of(address: str) -> str:
    """Return what counts as one address: an IPv4 address, or the /64 network of IPv6 that one owner has as a whole."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:  # of a socket that accepts both
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
