"""Requests that are being answered, each with its sender: when the right to it ends, its connection is closed.

A backup, a long poll and a large answer take longer than a token may still be valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

LOOK_EVERY = 0.5  # s, while there are any


class Ends(Protocol):
    """The part of a request's exchange that this module needs (shared/http/exchange.py)."""

    def abort(self) -> None:
        """Close the connection of the request at once."""


class UnderWay:
    """The requests that have begun, and have not ended. Lives in the HTTP thread."""

    def __init__(self, epoch: Callable[[], int]) -> None:
        """`epoch` returns another number when rights may have changed."""
        self._epoch = epoch
        self._seen = epoch()
        self._still_may: WeakKeyDictionary[Ends, Callable[[], bool]] = WeakKeyDictionary()
        self._timer: asyncio.TimerHandle | None = None  # None: there is no request

    def add(self, exchange: Ends, still_may: Callable[[], bool]) -> None:
        """Add a request until its exchange is freed. `still_may`: its sender has the right. It must not refer to it."""
        self._still_may[exchange] = still_may
        if self._timer is None:
            self._seen = self._epoch()
            self._start()

    def look(self) -> None:
        """End the requests whose senders have lost their rights, if rights have changed since the last call."""
        epoch = self._epoch()
        if epoch == self._seen:
            return
        self._seen = epoch
        for exchange, still_may in list(self._still_may.items()):
            if not still_may():
                exchange.abort()

    def _start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.look()
        if self._still_may:
            self._start()
