"""How many jobs of each queue came from other nodes lately, and from which: what Disque calls the import of a queue."""

from collections import deque
from dataclasses import dataclass, field

from shared.values import SECOND

WINDOW = 5 * SECOND  # ns that count, as in Disque
_MOST_SLOTS = 6  # that a window touches, each a second


@dataclass(slots=True)
class _Import:
    """The jobs of one queue that other nodes have lent to clients of this one."""

    lenders: dict[int, int] = field(default_factory=dict)  # node number -> when its last job came, monotonic ns
    # number of a second (monotonic), and jobs that came in it
    slots: deque[list[int]] = field(default_factory=lambda: deque(maxlen=_MOST_SLOTS))
    last: int = 0  # monotonic ns


class Imports:
    """All queues whose jobs came from other nodes within the window. `now` is monotonic ns."""

    def __init__(self) -> None:
        self._queues: dict[str, _Import] = {}  # the longest without a job first

    def count(self, queue: str, lender: int, now: int) -> None:
        """Count a job of the queue that another node, the lender, has lent."""
        self._forget_old(now)
        found = self._queues.pop(queue) if queue in self._queues else _Import()
        self._queues[queue] = found
        found.last = found.lenders[lender] = now
        second = now // SECOND
        if not found.slots or found.slots[-1][0] != second:
            found.slots.append([second, 0])
        found.slots[-1][1] += 1

    def _forget_old(self, now: int) -> None:
        while self._queues:
            name, found = next(iter(self._queues.items()))
            if found.last + WINDOW > now:
                return
            del self._queues[name]

    def rate(self, queue: str, now: int) -> int:
        """Return the number of jobs that come in a second, rounded up; 0: none came within the window."""
        found = self._queues.get(queue)
        slots = [slot for slot in found.slots if (slot[0] + 1) * SECOND + WINDOW > now] if found is not None else []
        if found is None or found.last + WINDOW <= now or not slots:
            return 0
        seconds = max(1, now // SECOND - slots[0][0] + 1)
        return -(-sum(count for _, count in slots) // seconds)

    def lenders(self, queue: str, now: int) -> list[int]:
        """Return the numbers of the nodes whose jobs came within the window."""
        found = self._queues.get(queue)
        if found is None:
            return []
        found.lenders = {number: at for number, at in found.lenders.items() if at + WINDOW > now}
        return sorted(found.lenders)

    def names(self, now: int) -> list[str]:
        """Return the queues whose jobs came within the window."""
        self._forget_old(now)
        return list(self._queues)

    def __repr__(self) -> str:
        return f"<Imports of {len(self._queues)} queues>"
