"""The task that deletes queues of Disque's clients that hold nothing and are not used (nsqd/core/queues.py), between turns."""

from collections.abc import Callable
from time import monotonic_ns

import trio

from nsqd.core.queues import Queues
from nsqd.tasks.time_slices import TimeSlice

EVERY = 1.0  # s
AT_ONCE = 20  # queues in a row: each takes about 20 us


async def delete_idle_queues(queues: Queues, wake: Callable[[], None]) -> None:
    """Delete idle queues until cancelled. `wake` makes the turn that commits that."""
    while True:
        await trio.sleep(EVERY)
        time_slice = TimeSlice()
        while queues.evict_idle(monotonic_ns(), AT_ONCE):
            wake()
            await time_slice.yield_if_due()
