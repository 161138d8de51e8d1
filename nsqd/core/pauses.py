"""All pauses of a node and their ends. The topic or channel itself has its Pause, and records it in the log.

Times are s since the epoch, and callers pass them in: a pause ends by the wall clock, also after a restart or a clock change.
"""

from nsqd.core.timing.duequeue import DueQueue
from nsqd.core.timing.pause import Pause

MOST_BY = 100  # characters, all printable, of the name of the one who paused something
Key = tuple[str, str]  # the names of the topic and the channel; "" for the channel: the topic itself


class Pauses:
    """All pauses on one node of which more is known than that they are."""

    def __init__(self) -> None:
        self.details: dict[Key, Pause] = {}  # of topics and channels that exist and are paused
        self._ends: DueQueue[Key] = DueQueue()  # exactly the pauses with an end
        self._handles: dict[Key, int] = {}  # their entries in _ends

    def remember(self, key: Key, pause: Pause) -> None:
        """Keep the details of a pause, in place of any earlier one of the same topic or channel."""
        self.forget(key)
        self.details[key] = pause
        if pause.until:
            self._handles[key] = self._ends.push(pause.until, key)

    def forget(self, key: Key) -> None:
        """Forget the pause of a topic or channel that was resumed or deleted."""
        self.details.pop(key, None)
        handle = self._handles.pop(key, None)
        if handle is not None:
            self._ends.remove(handle)

    def take_due(self, at: int, limit: int) -> list[Key]:
        """Forget up to `limit` pauses that end by `at`, the earliest first. Returns their keys; the caller resumes them."""
        due = self._ends.pop_due(at, limit)
        for key in due:
            self.forget(key)
        return due

    def check(self) -> None:
        """Raise AssertionError if an invariant of the pauses does not hold."""
        self._ends.check()
        assert (
            {key for key, pause in self.details.items() if pause.until}
            == set(self._ends.values())
            == set(self._handles)
        )

    def __repr__(self) -> str:
        return f"<Pauses: {len(self.details)} known, {len(self._handles)} end>"
