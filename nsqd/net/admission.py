"""The limits, TLS and shared memory budget that apply to connections."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NoReturn

from nsqd.net.layers import Wrap
from shared.budget import Budget
from shared.connection_limiter import ConnectionLimits


def _no_tls(*_: object) -> NoReturn:
    raise AssertionError("TLS was granted without a certificate")


@dataclass(slots=True)
class Admission:
    """The limits, the TLS wrapper, the counts of refusals and the memory budget of a node's connections."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    wrap: Wrap = _no_tls  # makes the server's side of a TLS connection
    refused: Counter[str] = field(default_factory=Counter)  # connections that were refused or closed, by reason
    budget: Budget = field(default_factory=Budget)  # shared by half-received commands and unsent output
