"""When each nsqd that a client wants is dialed: at once, and after failures with growing delays.

After a failure, an nsqd that nsqlookupd named is dialed again only if a later request names it, too: a SUB does not recreate a
topic that is deleted meanwhile, or one on a node that is hidden (a tombstone).
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from math import inf

FIRST_RETRY_S, LAST_RETRY_S = 0.1, 10.0  # doubled after each failure in a row
LASTED_S = 10.0  # a connection that lasts so long ends the row


@dataclass(slots=True)
class PlannedDial:
    """When an nsqd is to be dialed, which the consumer was given, or nsqlookupd has named."""

    at: float  # s by the caller's clock; infinite while there is a connection, or one is being made
    delay: float  # s to wait after the next failure
    named_at: float  # when nsqlookupd was asked last with an answer that named it; infinite if it is wanted in any case
    up_at: float = inf  # when the nsqd accepted the subscription; infinite while it has not
    failed_at: float = -inf

    @property
    def is_named(self) -> bool:
        """Return True if it may be dialed."""
        return self.named_at > self.failed_at


class DialPlan:
    """The nsqds that are wanted, by address."""

    __slots__ = ("_dials", "_longest_s")

    def __init__(self, longest_s: float = LAST_RETRY_S) -> None:
        self._longest_s = longest_s
        self._dials: dict[str, PlannedDial] = {}

    def want(self, addresses: Mapping[str, float], connected: Set[str]) -> None:
        """Dial these addresses from now on, and no others. `connected`: those that have a connection, or are being dialed.

        Each comes with the time of the request whose response named it; inf: it is wanted in any case.
        """
        for address, named_at in addresses.items():
            if address in self._dials:
                self._dials[address].named_at = named_at
            else:
                self._dials[address] = PlannedDial(inf if address in connected else -inf, FIRST_RETRY_S, named_at)
        for address in self._dials.keys() - addresses.keys():
            del self._dials[address]

    def take_due(self, now: float) -> str | None:
        """Return an address to be dialed now, or None. It is not due again before `fail`."""
        for address, dial in self._dials.items():
            if dial.at <= now and dial.is_named:
                dial.at = inf
                return address
        return None

    def fail(self, address: str, now: float) -> float:
        """Note that the connection failed or was lost. Returns the s until it is tried again."""
        dial = self._dials.setdefault(address, PlannedDial(inf, FIRST_RETRY_S, inf))
        delay = FIRST_RETRY_S if now - dial.up_at >= LASTED_S else dial.delay
        dial.up_at, dial.failed_at = inf, now
        dial.at, dial.delay = now + delay, min(2 * delay, self._longest_s)
        return delay

    def succeed(self, address: str, now: float) -> None:
        """Note that the connection is of use. If it lasts for LASTED_S, the next failure is the first again."""
        self._dials.setdefault(address, PlannedDial(inf, FIRST_RETRY_S, inf)).up_at = now

    @property
    def next_at(self) -> float:
        """Return the time at which the next address is due, by the caller's clock; infinite if none is."""
        return min((dial.at for dial in self._dials.values() if dial.is_named), default=inf)

    def is_named(self, address: str) -> bool:
        """Return True if the address, which failed, is dialed again without another request to nsqlookupd."""
        return self._dials[address].is_named

    def __contains__(self, address: str) -> bool:
        return address in self._dials
