"""What the load publishes, and what it does with what it is given: all by chance, from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

MS = 1_000_000  # ns

LEFT_IN_FLIGHT = 8  # messages a consumer leaves unanswered at most


@dataclass(frozen=True, slots=True)
class Order:
    """One publish."""

    topic: str
    sizes: list[int]  # bytes, one for each message
    delay_ms: int  # 0: none


class Answer(Enum):
    """What a consumer does with a message."""

    FINISH = 1
    TOUCH_AND_FINISH = 2
    REQUEUE = 3
    REQUEUE_LATER = 4
    LEAVE = 5


class Mix:
    """See above."""

    def __init__(self, seed: int, topics: list[str]) -> None:
        """The first of the topics gets four messages of five."""
        self._random = random.Random(seed)
        self._topics = topics

    def order(self, batches: bool = True, delay_unit_ms: int = 1) -> Order:
        """The next publish; a delay is a multiple of the unit, and only single messages have one."""
        chance = self._random.random()
        topic = self._topics[0] if self._random.random() < 0.8 else self._random.choice(self._topics)
        count = self._random.randint(2, 20) if batches and chance < 0.25 else 1
        sizes = [self._size() for _ in range(count)]
        return Order(topic, sizes, self.delay_ms(delay_unit_ms) if chance > 0.85 else 0)

    def delay_ms(self, unit: int = 1) -> int:
        """A delay: mostly short, some that outlast the next two restarts."""
        most = 3000 if self._random.random() < 0.3 else 300
        return max(unit, self._random.randint(20, most) // unit * unit)

    def answer(self, attempts: int) -> Answer:
        """What to do with a message; what came often is finished."""
        chance = self._random.random()
        if attempts > 5 or chance < 0.70:
            return Answer.FINISH
        if chance < 0.75:
            return Answer.TOUCH_AND_FINISH
        if chance < 0.83:
            return Answer.REQUEUE
        return Answer.REQUEUE_LATER if chance < 0.90 else Answer.LEAVE

    def chance(self, share: float) -> bool:
        """True in that share of all cases."""
        return self._random.random() < share

    def uniform(self, least: float, most: float) -> float:
        """A number between them."""
        return self._random.uniform(least, most)

    def _size(self) -> int:
        chance = self._random.random()
        if chance < 0.9:
            return self._random.randint(20, 300)
        return self._random.randint(300, 5_000 if chance < 0.99 else 100_000)
