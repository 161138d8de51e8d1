"""The random publishes of the load, and its answers to messages, from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

MS = 1_000_000  # ns

LEFT_IN_FLIGHT = 8  # the most messages that a consumer leaves unanswered


@dataclass(frozen=True, slots=True)
class Order:
    """One publish to a topic, of one message or several."""

    topic: str
    sizes: list[int]  # bytes, one for each message
    delay_ms: int  # 0: no delay


class Answer(Enum):
    """The answer of a consumer to a message."""

    FINISH = 1
    TOUCH_AND_FINISH = 2
    REQUEUE = 3
    REQUEUE_LATER = 4
    LEAVE = 5


class Mix:
    """A source of random orders and answers."""

    def __init__(self, seed: int, topics: list[str]) -> None:
        """Begin with a seed; the first of the topics gets four messages of five."""
        self._random = random.Random(seed)
        self._topics = topics

    def order(self, batches: bool = True, delay_unit_ms: int = 1) -> Order:
        """Return the next publish; a delay is a multiple of the unit, and only single messages have one."""
        chance = self._random.random()
        topic = self._topics[0] if self._random.random() < 0.8 else self._random.choice(self._topics)
        count = self._random.randint(2, 20) if batches and chance < 0.25 else 1
        sizes = [self._size() for _ in range(count)]
        return Order(topic, sizes, self.delay_ms(delay_unit_ms) if chance > 0.85 else 0)

    def delay_ms(self, unit: int = 1) -> int:
        """Return a delay: mostly a short one, but some outlast the next two restarts."""
        most = 3000 if self._random.random() < 0.3 else 300
        return max(unit, self._random.randint(20, most) // unit * unit)

    def answer(self, attempts: int) -> Answer:
        """Choose the answer to a message; one that came more than five times is finished."""
        chance = self._random.random()
        if attempts > 5 or chance < 0.70:
            return Answer.FINISH
        if chance < 0.75:
            return Answer.TOUCH_AND_FINISH
        if chance < 0.83:
            return Answer.REQUEUE
        return Answer.REQUEUE_LATER if chance < 0.90 else Answer.LEAVE

    def chance(self, share: float) -> bool:
        """Return True in that share of all calls."""
        return self._random.random() < share

    def uniform(self, least: float, most: float) -> float:
        """Return a random number between the two."""
        return self._random.uniform(least, most)

    def _size(self) -> int:
        chance = self._random.random()
        if chance < 0.9:
            return self._random.randint(20, 300)
        return self._random.randint(300, 5_000 if chance < 0.99 else 100_000)
