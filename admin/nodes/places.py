"""The URLs of nodes: plain HTTP at the address by which a node is known, or HTTPS, maybe at another port.

All pages name a node by its broadcast address and HTTP port, also if it is asked elsewhere. With -nsqd-https the nodes that
nsqlookupd names are asked by HTTPS only: a client that may register there could otherwise claim that a node has no HTTPS.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MOST = 10_000  # nodes that are remembered


@dataclass(slots=True)
class Settings:
    """The settings that can change while nsqadmin runs."""

    lookupds: tuple[str, ...] = ()


class Places:
    """The URLs of nodes, by address. The part of a URL before the path is called its base."""

    def __init__(self, given: Callable[[], Iterable[str]] = tuple, *, https_only: bool = False) -> None:
        """`given`: the addresses that the operator has configured. `https_only`: for all others."""
        self._given = given
        self._https_only = https_only
        self._bases: OrderedDict[str, str] = OrderedDict()  # "": it has no HTTPS, and is not asked

    def note_base(self, address: str, given: str) -> None:
        """Note that a node was found at an address that the operator has given with https://."""
        if given.startswith("https://"):
            self._note(address, given)

    def note_port(self, address: str, https_port: int) -> None:
        """Note the HTTPS port of a node that nsqlookupd names; 0: it has none."""
        if self._https_only:
            host = address.rpartition(":")[0]
            self._note(address, f"https://{host}:{https_port}" if 0 < https_port < 65536 else "")

    def base(self, address: str) -> str:
        """Return the base of the URL for an address; "": it must not be asked. An address may be a base itself."""
        if "://" in address:
            return address
        if address in self._given():  # whatever a node has registered
            return f"http://{address}"
        return self._bases.get(address, "" if self._https_only else f"http://{address}")

    def _note(self, address: str, base: str) -> None:
        self._bases[address] = base
        self._bases.move_to_end(address)
        if len(self._bases) > MOST:
            self._bases.popitem(last=False)
