"""When each nsqd that a client wants is dialed: at once, and after failures with growing delays.

Law: after a failure, an nsqd that nsqlookupd named is dialed again only if a question that was asked later names it, too: a
topic that is deleted meanwhile, or a node that is hidden (a tombstone), is not made again by a SUB.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from math import inf

FIRST_RETRY_S, LAST_RETRY_S = 0.1, 10.0  # doubled after each failure in a row
LASTED_S = 10.0  # a connection that lasts so long ends the row


@dataclass(slots=True)
class Retry:
    """An nsqd that is wanted."""

    at: float  # s by the caller's clock; infinite while there is a connection, or one is being made
    delay: float  # s to wait after the next failure
    named_at: float  # when nsqlookupd was asked last with an answer that named it; infinite if it is wanted in any case
    up_at: float = inf  # when the nsqd accepted the subscription; infinite while it has not
    failed_at: float = -inf

    @property
    def is_named(self) -> bool:
        """Return True if it may be dialed."""
        return self.named_at > self.failed_at


class Retries:
    """The nsqds that are wanted, by address."""

    __slots__ = ("_longest_s", "_retries")

    def __init__(self, longest_s: float = LAST_RETRY_S) -> None:
        self._longest_s = longest_s
        self._retries: dict[str, Retry] = {}

    def want(self, addresses: Mapping[str, float], connected: Set[str]) -> None:
        """Try these addresses from now on, and no others. `connected`: those that need no connection, or have one soon.

        Each comes with the time at which the question was asked whose answer named it; inf: it is wanted in any case.
        """
        for address, named_at in addresses.items():
            retry = self._retries.get(address)
            if retry is None:
                at = inf if address in connected else -inf
                self._retries[address] = Retry(at, FIRST_RETRY_S, named_at)
            else:
                retry.named_at = named_at
        for address in self._retries.keys() - addresses.keys():
            del self._retries[address]

    def take_due(self, now: float) -> str | None:
        """Return an address to be dialed now, or None. It is not due again before `fail`."""
        for address, retry in self._retries.items():
            if retry.at <= now and retry.is_named:
                retry.at = inf
                return address
        return None

    def fail(self, address: str, now: float) -> float:
        """Note that the connection failed or was lost. Returns the s until it is tried again."""
        retry = self._retries.setdefault(address, Retry(inf, FIRST_RETRY_S, inf))
        if now - retry.up_at >= LASTED_S:
            retry.delay = FIRST_RETRY_S
        retry.up_at, retry.failed_at = inf, now
        delay = retry.delay
        retry.at = now + delay
        retry.delay = min(2 * delay, self._longest_s)
        return delay

    def succeed(self, address: str, now: float) -> None:
        """Note that the connection is of use. If it lasts for LASTED_S, the next failure is the first again."""
        self._retries.setdefault(address, Retry(inf, FIRST_RETRY_S, inf)).up_at = now

    @property
    def next_at(self) -> float:
        """Return when the next address is due, by the caller's clock; infinite if none is."""
        return min((retry.at for retry in self._retries.values() if retry.is_named), default=inf)

    def is_named(self, address: str) -> bool:
        """Return True if the address, which failed, is dialed again without another question to nsqlookupd."""
        return self._retries[address].is_named

    def __contains__(self, address: str) -> bool:
        return address in self._retries

    def __repr__(self) -> str:
        return f"<Retries: {len(self._retries)} nsqds>"
