"""What a connection meets before it meets the broker: limits, TLS, and the memory that all connections share."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NoReturn

from nsqd.net.acceptor import ConnectionLimits
from nsqd.net.layers import Wrap
from shared.budget import Budget


def _no_tls(*_: object) -> NoReturn:
    raise AssertionError("TLS was granted without a certificate")


@dataclass(slots=True)
class Edge:
    """See above."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    wrap: Wrap = _no_tls  # the server's side of a TLS connection
    refused: Counter[str] = field(default_factory=Counter)  # what was not let in, or thrown out, by reason
    budget: Budget = field(default_factory=Budget)  # of half-received commands and unsent output
