"""The addresses that a node dials to join its cluster and to stay in it, and when it dials each of them.

See docs/contributing/design/cluster-protocol.md#connections.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from nsqd.cluster.wire.link import Link
from shared.values import SECOND

MOST_FOUND = 64  # addresses that were found and not given
MOST_BUSY = 32  # addresses that are being dialed at a time
_LASTING = 5 * SECOND  # ns: after a connection that lasted so long, the first pause is short again
_FIRST_PAUSE, _LONGEST_PAUSE = SECOND // 2, 30 * SECOND  # ns between two dials of an address


@dataclass(slots=True)
class _Dial:
    """An address that may be dialed."""

    due: int = 0  # monotonic ns
    pause: int = _FIRST_PAUSE  # after the next failure
    link: Link | None = None  # the connection that was made to it
    is_busy: bool = False  # a connection is being made, or exists
    nonce: bytes = b""  # of this node in the last handshake there
    number: int = -1  # of the node that last proved its identity there; -1: none has


class Dials:
    """The addresses that one node may dial."""

    def __init__(self, own: str, seeds: Iterable[str], random: Callable[[int], bytes]) -> None:
        """`own`: this node's address, which is never dialed; `seeds`: addresses of other nodes (-cluster-peer).

        `random`: returns the given number of random bytes.
        """
        self._own = own
        self._random = random
        self._seeds = [address for address in seeds if address != own]
        self._found: list[str] = []  # addresses of nodes that nsqlookupd knows
        self.is_searching = False  # nsqlookupd is asked for them, and has not responded yet
        self._dials: dict[str, _Dial] = {}

    def set_found(self, addresses: Iterable[str]) -> None:
        """Note addresses of other nodes that were found, in place of those found before; at most MOST_FOUND count."""
        self.is_searching = False
        self._found = [address for address in addresses if address != self._own][:MOST_FOUND]

    def meet(self, address: str) -> None:
        """Dial an address from now on, as if it had been given at the start. The latest MOST_FOUND count."""
        if address not in self._seeds and address != self._own:
            self._seeds = [*self._seeds, address][-MOST_FOUND:]

    def take_due(self, members: Iterable[str], linked: Collection[str], now: int) -> str | None:
        """Return an address to dial now, or None. `begin` or `fail` must follow.

        `members`: the addresses of the other members; `linked`: of those with a connection.
        """
        busy = [dial.link for dial in self._dials.values() if dial.is_busy]
        if sum(link is None or link.peer is None for link in busy) >= MOST_BUSY:
            return None
        wanted = dict.fromkeys([*self._seeds, *self._found, *members])
        for address in [one for one, dial in self._dials.items() if one not in wanted and not dial.is_busy]:
            del self._dials[address]
        for address in wanted:
            dial = self._dials.setdefault(address, _Dial())
            if not dial.is_busy and dial.due <= now and address not in linked:
                dial.is_busy = True
                return address
        return None

    def begin(self, address: str, link: Link) -> None:
        """Note the connection that was made to an address."""
        dial = self._dials[address]
        dial.link, dial.nonce = link, link.handshake.nonce

    def fail(self, address: str, now: int) -> None:
        """Note that no connection could be made, or that it did not last: the address is dialed again after a pause."""
        dial = self._dials[address]
        jitter = int.from_bytes(self._random(2)) / 65536  # nodes must not dial each other in step
        dial.is_busy, dial.link, dial.due = False, None, now + int(dial.pause * (0.5 + jitter))
        dial.pause = min(2 * dial.pause, _LONGEST_PAUSE)

    def end(self, link: Link, own: int, now: int) -> None:
        """Note the end of a connection, which this node may have dialed. `own`: its number."""
        for address, dial in self._dials.items():
            if dial.nonce and dial.nonce == link.handshake.peer_nonce:
                dial.number = own  # this node has dialed itself, under another name
            if dial.link is link:
                if link.handshake.has_proof and link.handshake.peer is not None:
                    dial.number = link.handshake.peer.number
                if now - link.begun > _LASTING and link.peer is not None:
                    dial.pause = _FIRST_PAUSE
                self.fail(address, now)
                return

    def numbers_given(self) -> set[int]:
        """Return the numbers of the nodes that proved their identity at the seeds and found addresses; -1: at one, none has."""
        return {self._number_at(address) for address in (*self._seeds, *self._found)}

    def _number_at(self, address: str) -> int:
        dial = self._dials.get(address, _Dial())
        peer = dial.link.peer if dial.link is not None else None
        return peer.number if peer is not None else dial.number
