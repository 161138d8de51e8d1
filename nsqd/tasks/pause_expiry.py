"""The task that ends pauses whose time is over (nsqd/core/pauses.py), in the trio thread, between turns."""

import time
from collections.abc import Callable

import trio

from nsqd.core.broker import Broker
from nsqd.tasks.time_slices import TimeSlice
from shared.log import log

EVERY = 1.0  # s: the task runs as a second of the clock begins
AT_ONCE = 20  # pauses in a row: each may hand a backlog to a thousand channels


async def end_pauses(broker: Broker, wake: Callable[[], None], clock: Callable[[], float] = time.time) -> None:
    """End pauses on time until cancelled.

    `clock` returns s since the epoch. `wake` makes the turn that commits and serves what was resumed.
    """
    while True:
        await trio.sleep(EVERY - clock() % EVERY)
        time_slice = TimeSlice()
        while end_batch(broker, int(clock())):
            wake()
            await time_slice.yield_if_due()


def end_batch(broker: Broker, at: int) -> bool:
    """End at most AT_ONCE pauses that end by `at` (s since the epoch). Return whether there were any."""
    ended = broker.end_pauses(at, AT_ONCE)
    for topic, channel in ended:
        log.info("PAUSE: unpaused %s%s: its pause has expired", topic, f" {channel}" if channel else "")
    return bool(ended)
