"""Count wrong credentials by their senders, so that no client guesses without end. Pure: the time comes in by a clock.

After `most` wrong credentials within `within` seconds a key has to wait until that time is over. Other keys do not wait, and
memory is bounded: the key that failed longest ago is forgotten first. The caller decides what waits: passwords, which take long
to compare, are not compared; tokens always are, because they cannot be guessed, and a wrong one ends the connection.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable

MOST_FAILURES = 20  # of one address in FAILURES_WITHIN
FAILURES_WITHIN = 10.0  # s
MOST_KEYS = 10_000


class Failures:
    """The recent failures, by key, such as an address."""

    def __init__(
        self,
        clock: Callable[[], float],
        most: int = MOST_FAILURES,
        within: float = FAILURES_WITHIN,
        most_keys: int = MOST_KEYS,
    ) -> None:
        """`clock`: monotonic s. `most`, `within`: see above; `most_keys` are remembered."""
        self._clock = clock
        self._most = most
        self._within = within
        self._most_keys = most_keys
        # by key: how many, and when the first of them was (s); the key that failed last is the last one
        self._failed: dict[Hashable, tuple[int, float]] = {}

    def wait(self, key: Hashable) -> float:
        """Return the seconds for which this key has to wait, or 0."""
        count, since = self._failed.get(key, (0, 0.0))
        return max(0.0, since + self._within - self._clock()) if count >= self._most else 0.0

    def note(self, key: Hashable) -> bool:
        """Count a failure. Returns True if it reaches the limit, which belongs in the log.

        Call it before a comparison that takes long, and `take_back` if that succeeds: of many at once each is counted.
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
        """Take back one call of `note`."""
        count, since = self._failed.get(key, (0, 0.0))
        if count > 1:
            self._failed[key] = count - 1, since
        else:
            self._failed.pop(key, None)

    def __len__(self) -> int:
        return len(self._failed)


def network_of(address: str) -> str:
    """Return the key of an address: the IPv4 address, or the /64 network of IPv6, which one owner has as a whole."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:  # of a socket that accepts both
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
