"""The task that notes what topics did: short steps of the topics that are being watched, long steps of all."""

import time
from collections.abc import Callable

import trio

from nsqd.core.broker import Broker
from nsqd.core.observation.series import COARSE, FINE, Series
from nsqd.time_slices import TimeSlice


async def note_series(broker: Broker, series: Series, clock: Callable[[], float] = time.time) -> None:
    """Note the steps between turns until cancelled. `clock` returns s since the epoch."""
    while True:
        await trio.sleep(FINE - clock() % FINE)
        at = int(clock()) // FINE * FINE
        watched = set(series.topics_in_use(at))
        everything = at % COARSE == 0
        if everything:
            series.begin({topic.number for topic in broker.topics.values()})
        portions = TimeSlice()
        for topic in list(broker.topics.values()) if everything or watched else ():
            if topic.deleted:
                continue
            if topic.number in watched:
                series.put_fine(topic, at)
            if everything and not topic.ephemeral:
                series.put_coarse(topic, at)
            await portions.breathe()
