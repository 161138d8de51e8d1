"""Who paused a topic or a channel, when, and until when. Whether it is paused the topic or channel itself knows.

Times are s since the epoch, and come in: a pause ends by the clock on the wall, over restarts too, also where that is set.
"""

from dataclasses import dataclass

from nsqd.core.timing.duequeue import DueQueue

MOST_BY = 100  # characters, all printable, of who paused something
Key = tuple[str, str]  # the topic's name, the channel's; "": it is the topic itself


@dataclass(frozen=True, slots=True)
class Pause:
    """What is known of one."""

    by: str = ""  # who; "": nobody said so
    at: int = 0  # when it was paused; 0: not known
    until: int = 0  # 0: until somebody resumes it


NOT_KNOWN = Pause()


class Pauses:
    """Of a broker."""

    def __init__(self) -> None:
        self.known: dict[Key, Pause] = {}  # of topics and channels that are there, and paused
        self._ends: DueQueue[Key] = DueQueue()  # of all and only those with an end
        self._handles: dict[Key, int] = {}  # their entries

    def keep(self, key: Key, pause: Pause) -> None:
        """It is paused, or once more; what was known before is forgotten."""
        self.forget(key)
        self.known[key] = pause
        if pause.until:
            self._handles[key] = self._ends.push(pause.until, key)

    def forget(self, key: Key) -> None:
        """It is not paused, or not there, any more."""
        self.known.pop(key, None)
        handle = self._handles.pop(key, None)
        if handle is not None:
            self._ends.remove(handle)

    def take_due(self, at: int, limit: int) -> list[Key]:
        """Forget up to `limit` whose time is over, the earliest first: they are to be resumed."""
        due = self._ends.pop_due(at, limit)
        for key in due:
            self.forget(key)
        return due

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        self._ends.check()
        assert (
            {key for key, pause in self.known.items() if pause.until} == set(self._ends.values()) == set(self._handles)
        )

    def __repr__(self) -> str:
        return f"<Pauses: {len(self.known)} known, {len(self._handles)} end>"
