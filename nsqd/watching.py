"""The task that notes what topics did: each short step of those that are looked at, long ones of all."""

import time
from collections.abc import Callable

import trio

from nsqd.core.broker import Broker
from nsqd.core.observation.series import COARSE, FINE, Series
from nsqd.portions import Portions


async def note_series(broker: Broker, series: Series, clock: Callable[[], float] = time.time) -> None:
    """For ever, between turns; cancel to stop. `clock`: s since the epoch."""
    while True:
        await trio.sleep(FINE - clock() % FINE)
        at = int(clock()) // FINE * FINE
        watched = set(series.watched(at))
        everything = at % COARSE == 0
        if everything:
            series.begin({topic.number for topic in broker.topics.values()})
        portions = Portions()
        for topic in list(broker.topics.values()) if everything or watched else ():
            if topic.deleted:
                continue
            if topic.number in watched:
                series.put_fine(topic, at)
            if everything and not topic.ephemeral:
                series.put_coarse(topic, at)
            await portions.breathe()
