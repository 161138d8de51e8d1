"""The limits of an identity's use of a node, at once and a second, in the auth file. Pure.

    limits = { connections = 100, messages = 5000, bytes = 10000000, in_flight = 1000, output = 1000000, topics = 100 }

An unnamed quantity has no limit. Nodes count by name; see nsqd/protocols/account.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

MOST = 10**15  # of any of them: more is a mistake


class LimitsError(ValueError):
    """The table has an error, which the text names."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one entry; 0: there is none."""

    connections: int = 0  # over TCP, at once
    messages: int = 0  # published, a second
    bytes: int = 0  # of their bodies, a second
    in_flight: int = 0  # messages and reserved jobs, over all connections
    output: int = 0  # bytes in the output buffers of all connections
    topics: int = 0  # made since the start of nsqd, that exist

    @property
    def has_rates(self) -> bool:
        """Return whether publishing is limited."""
        return self.messages > 0 or self.bytes > 0

    def given(self) -> dict[str, int]:
        """Return the limits that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value}


NONE = Limits()
_NAMES = tuple(one.name for one in fields(Limits))


def read_limits(value: object) -> Limits:
    """Return the limits that a table of the auth file gives. Raises LimitsError."""
    if not isinstance(value, dict) or not value:
        raise LimitsError(f"limits is a table of {', '.join(_NAMES)}")
    for name, number in value.items():
        if name not in _NAMES:
            raise LimitsError(f"limits: {name!r} is not known: use {', '.join(_NAMES)}")
        if type(number) is not int or not 0 < number <= MOST:  # a bool is an int, too
            raise LimitsError(f"limits: {name} is a whole number from 1 to {MOST}")
    return Limits(**value)
