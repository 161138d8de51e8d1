"""The tubes by name as clients see them, whether they have been created or not: their users and their counters.

A tube is shown while it has jobs, or while any worker uses or watches it. `default` is always shown once a client has come.
"""

from collections import Counter

from nsqd.core.work_queue.worker import DEFAULT, Names

OWN = "#"  # names of tubes begin so that the node keeps for itself: clients can name no tube so, and are shown none


class Users:
    """The numbers of workers that use and watch one tube."""

    __slots__ = ("using", "watching")

    def __init__(self) -> None:
        self.using = 0
        self.watching = 0

    def __repr__(self) -> str:
        return f"<Users: {self.using} use, {self.watching} watch>"


class TubeList:
    """All tubes of a node that clients see. A node has one list."""

    __slots__ = ("counters", "expired", "names", "timeouts", "users")

    def __init__(self) -> None:
        self.timeouts = 0  # reservations of all tubes that timed out since the start
        self.expired = 0  # jobs of all tubes that went at the end of their time to live since the start
        self.names = Names()  # names of the tubes that are shown
        self.counters: dict[str, Counter[str]] = {}  # of these tubes, and of the node's own: successful deletes, pauses
        self.users: dict[str, Users] = {}  # by name of a tube that any worker uses or watches

    def show(self, name: str) -> None:
        """Show the tube of this name from now on."""
        if name not in self.counters:
            if not name.startswith(OWN):
                self.names.add(name)
            self.counters[name] = Counter()

    def hide(self, name: str) -> None:
        """Stop showing a tube without jobs, unless it is `default` or a worker uses or watches it."""
        if name in self.counters and name not in self.users and name != DEFAULT:
            if not name.startswith(OWN):
                self.names.remove(name)
            del self.counters[name]

    def use(self, name: str) -> None:
        """Count one more worker that uses the tube."""
        self._users_of(name).using += 1

    def watch(self, name: str) -> None:
        """Count one more worker that watches the tube."""
        self._users_of(name).watching += 1

    def _users_of(self, name: str) -> Users:
        self.show(name)
        return self.users.setdefault(name, Users())

    def leave(self, name: str) -> bool:
        """Count one worker less that uses the tube. Return True if no worker uses or watches it now."""
        self.users[name].using -= 1
        return self._is_left(name)

    def ignore(self, name: str) -> bool:
        """Count one worker less that watches the tube. Return True if no worker uses or watches it now."""
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
        shown = {name for name in self.counters if not name.startswith(OWN)}
        assert set(self.names) == shown
        assert set(self.counters) >= set(self.users)
        assert all(users.using or users.watching for users in self.users.values())

    def __repr__(self) -> str:
        return f"<TubeList: {len(self.names)} tubes, {len(self.users)} of them with users>"
