"""The task that notes what topics and channels did, step by step."""

import time
from collections.abc import Callable

import trio

from nsqd.core.broker import Broker
from nsqd.core.observation.series import FINE, Series
from nsqd.tasks.time_slices import TimeSlice


async def note_series(broker: Broker, series: Series, clock: Callable[[], float] = time.time) -> None:
    """Note the steps between turns until cancelled. `clock` returns s since the epoch."""
    while True:
        await trio.sleep(FINE - clock() % FINE)
        at = int(clock()) // FINE * FINE
        time_slice = TimeSlice()
        for _ in series.record(list(broker.topics.values()), at):
            await time_slice.yield_if_due()
