"""Look after the auth file, and end connections whose rights have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import trio

from nsqd.protocols.conversation import Conversation
from nsqd.tasks.time_slices import TimeSlice

if TYPE_CHECKING:
    from shared.auth.keyring import Keyring

EVERY = 0.5  # s


async def watch_rights(keyring: Keyring, peers: Callable[[], Iterable[Conversation]], wake: Callable[[], None]) -> None:
    """Read the file when it has changed, and let all connections look again who their clients are, until cancelled.

    `peers` returns the ends of all connections; `wake` makes the turn that sends what they have to say.
    """
    while True:
        await trio.sleep(EVERY)
        if not await trio.to_thread.run_sync(keyring.reload_if_changed):
            continue
        time_slice = TimeSlice()
        for peer in list(peers()):
            peer.rights_changed()
            await time_slice.yield_if_due()
        wake()
