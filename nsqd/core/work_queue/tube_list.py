"""The tubes by name as clients see them, whether they have been made or not: who is there, and what was counted.

A tube is shown while it has jobs, or somebody uses or watches it; `default` always is once a client has come.
"""

from collections import Counter

from nsqd.core.work_queue.worker import DEFAULT, Names


class Users:
    """How many workers use and watch a tube."""

    __slots__ = ("using", "watching")

    def __init__(self) -> None:
        self.using = 0
        self.watching = 0

    def __repr__(self) -> str:
        return f"<Users: {self.using} use, {self.watching} watch>"


class TubeList:
    """See above. One of a node."""

    __slots__ = ("counters", "names", "timeouts", "users")

    def __init__(self) -> None:
        self.timeouts = 0  # reservations of all tubes that ended by themselves, ever
        self.names = Names()  # of the tubes that are shown
        self.counters: dict[str, Counter[str]] = {}  # by tube that is shown: successful deletes, pauses
        self.users: dict[str, Users] = {}  # by tube that somebody uses or watches

    def show(self, name: str) -> None:
        """Show the tube of that name from now on."""
        if name not in self.counters:
            self.names.add(name)
            self.counters[name] = Counter()

    def hide(self, name: str) -> None:
        """Show the tube, which has no jobs, no longer, unless somebody is there."""
        if name in self.counters and name not in self.users and name != DEFAULT:
            self.names.remove(name)
            del self.counters[name]

    def use(self, name: str) -> None:
        """One worker more uses the tube."""
        self._come(name).using += 1

    def watch(self, name: str) -> None:
        """One worker more watches the tube."""
        self._come(name).watching += 1

    def _come(self, name: str) -> Users:
        self.show(name)
        return self.users.setdefault(name, Users())

    def leave(self, name: str) -> bool:
        """One worker fewer uses the tube. Returns True if nobody is there any more."""
        self.users[name].using -= 1
        return self._is_left(name)

    def ignore(self, name: str) -> bool:
        """One worker fewer watches the tube. Returns True if nobody is there any more."""
        self.users[name].watching -= 1
        return self._is_left(name)

    def _is_left(self, name: str) -> bool:
        users = self.users[name]
        if users.using or users.watching:
            return False
        del self.users[name]
        return True

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert len(set(self.names)) == len(self.names)
        assert set(self.names) == set(self.counters) >= set(self.users)
        assert all(users.using or users.watching for users in self.users.values())

    def __repr__(self) -> str:
        return f"<TubeList: {len(self.names)} tubes, {len(self.users)} of them with users>"
