"""How nsq_to_nsq and nsq_to_http choose the destination of the next request: round-robin, hostpool or epsilon-greedy.

The rules are go-hostpool's, which the originals use. The module is pure: the time (`now`, monotonic seconds) and random
numbers come in.

* round-robin: one destination after another, whether they work or not.
* hostpool: one after another of those that are alive. A destination whose request failed is dead, and is tried again
  after FIRST_RETRY_S, then after twice that time, up to LAST_RETRY_S. If all are dead, all are taken for alive.
* epsilon-greedy: as hostpool for a share of the requests, which decays from 30 % to 1 %. The others go to a random
  destination, weighted by the reciprocal of its recent response time.

Deliberate differences from go-hostpool: response times count in fractions of a millisecond, where go-hostpool takes
anything below one for unknown; and when all destinations are dead, each is tried in turn, not the first one twice.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

FIRST_RETRY_S, LAST_RETRY_S = 30.0, 900.0
FIRST_EPSILON, LAST_EPSILON, EPSILON_DECAY = 0.3, 0.01, 0.9
BUCKETS = 120  # go-hostpool's number
WINDOW_S = 300.0  # all buckets together
BUCKET_S = WINDOW_S / BUCKETS
MODES = ("round-robin", "hostpool", "epsilon-greedy")


class Destinations(Protocol):
    """The choice of the next destination, which depends on the results of earlier requests."""

    def choose(self, now: float, free: Collection[str]) -> str | None:
        """Return one of the `free` destinations, or None if it is better to wait for one that is busy."""

    def mark(self, name: str, worked: bool, seconds: float, now: float) -> None:
        """Record that a request to `name` worked or failed, after `seconds`."""


def check_mode(mode: str) -> str:
    """Return the reason why the value of -mode is invalid, or ""."""
    return "" if mode in MODES else f"expected one of {', '.join(MODES)}"


def destinations(mode: str, names: Sequence[str], random: Callable[[], float]) -> Destinations:
    """Return the choice that `mode`, one of MODES, names. `random` returns numbers from 0 (included) to 1 (excluded)."""
    if mode == "round-robin":
        return RoundRobin(names)
    return EpsilonGreedy(names, random) if mode == "epsilon-greedy" else HostPool(names)


class RoundRobin:
    """One destination after another. As in the originals, the second one is the first to be chosen."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._last = 0  # index of the destination chosen last

    def choose(self, now: float, free: Collection[str]) -> str | None:
        """Return the next destination that is free."""
        for step in range(1, len(self._names) + 1):
            index = (self._last + step) % len(self._names)
            if self._names[index] in free:
                self._last = index
                return self._names[index]
        return None

    def mark(self, name: str, worked: bool, seconds: float, now: float) -> None:
        """Do nothing: this choice does not depend on the past."""


@dataclass(slots=True)
class _Host:
    """A destination of a HostPool: whether requests to it work, and how long they took."""

    name: str
    dead: bool = False
    retry_at: float = 0.0  # monotonic s; meaningful while it is dead
    retry_delay: float = FIRST_RETRY_S  # s from the last attempt to retry_at
    counts: list[int] = field(default_factory=lambda: [0] * BUCKETS)  # requests that worked, by bucket
    sums: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)  # their ms together

    def may_be_tried(self, now: float) -> bool:
        return not self.dead or self.retry_at < now

    def try_again(self, now: float) -> None:
        """Count an attempt on a dead destination: the next one follows after twice the time."""
        if self.dead:
            self.retry_delay = min(2 * self.retry_delay, LAST_RETRY_S)
            self.retry_at = now + self.retry_delay


class HostPool:
    """Round-robin over the destinations that are alive."""

    def __init__(self, names: Sequence[str]) -> None:
        self._hosts = [_Host(name) for name in names]
        self._by_name = {host.name: host for host in self._hosts}
        self._next = 0  # index at which the next search begins

    def choose(self, now: float, free: Collection[str]) -> str | None:
        """Return the next free destination that is alive or due for a retry; None if all such are busy."""
        count = len(self._hosts)
        order = [(self._next + step) % count for step in range(count)]
        candidates = [index for index in order if self._hosts[index].may_be_tried(now)]
        if not candidates:
            self._revive()
            candidates = order
        for index in candidates:
            host = self._hosts[index]
            if host.name in free:
                host.try_again(now)
                self._next = (index + 1) % count
                return host.name
        return None

    def mark(self, name: str, worked: bool, seconds: float, now: float) -> None:
        """Record the result of a request. A failure of a dead destination changes nothing: its next retry is planned."""
        host = self._by_name[name]
        if not worked and not host.dead:
            host.retry_delay = FIRST_RETRY_S
            host.retry_at = now + FIRST_RETRY_S
        host.dead = not worked

    def _revive(self) -> None:
        for host in self._hosts:
            host.dead = False
        self._next = 0


class EpsilonGreedy(HostPool):
    """A HostPool that mostly chooses by response time. `random` returns numbers from 0 (included) to 1 (excluded)."""

    def __init__(self, names: Sequence[str], random: Callable[[], float]) -> None:
        super().__init__(names)
        self.epsilon = FIRST_EPSILON  # the share of requests that explore
        self._random = random
        self._bucket = 0  # index of the current bucket
        self._bucket_ends = float("-inf")  # monotonic s

    def choose(self, now: float, free: Collection[str]) -> str | None:
        """Return a random destination, weighted by speed, or explore as HostPool does."""
        self._advance(now)
        if self._random() < self.epsilon:
            self.epsilon = max(LAST_EPSILON, self.epsilon * EPSILON_DECAY)
            return super().choose(now, free)
        known = [host for host in self._hosts if host.name in free and host.may_be_tried(now)]
        weights = {host.name: 1 / ms for host in known if (ms := self.response_ms(host.name)) > 0}
        if not weights:
            return super().choose(now, free)
        name = self._pick(weights)
        self._by_name[name].try_again(now)
        return name

    def mark(self, name: str, worked: bool, seconds: float, now: float) -> None:
        """Record the result of a request, and how long it took if it worked."""
        super().mark(name, worked, seconds, now)
        self._advance(now)
        if worked:
            host = self._by_name[name]
            host.counts[self._bucket] += 1
            host.sums[self._bucket] += seconds * 1000

    def response_ms(self, name: str) -> float:
        """Return the weighted sum of the buckets' averages in ms, in which later buckets weigh more; 0 if nothing is known.

        A bucket without a request counts as the one before it.
        """
        host, total, last = self._by_name[name], 0.0, 0.0
        for step in range(1, BUCKETS + 1):
            at = (self._bucket + step) % BUCKETS
            if host.counts[at]:
                last = host.sums[at] / host.counts[at]
            total += last * step / BUCKETS
        return total

    def _pick(self, weights: dict[str, float]) -> str:
        left = self._random() * sum(weights.values())
        for name, weight in weights.items():
            left -= weight
            if left <= 0:
                return name
        return name  # the sum was rounded

    def _advance(self, now: float) -> None:
        """Clear the buckets that have begun since the last call."""
        if self._bucket_ends == float("-inf"):
            self._bucket_ends = now + BUCKET_S
        if now < self._bucket_ends:
            return
        begun = 1 + int((now - self._bucket_ends) / BUCKET_S)
        self._bucket_ends += begun * BUCKET_S
        for _ in range(min(begun, BUCKETS)):
            self._bucket = (self._bucket + 1) % BUCKETS
            for host in self._hosts:
                host.counts[self._bucket], host.sums[self._bucket] = 0, 0.0
