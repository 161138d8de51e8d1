"""The in-sync followers. A change is a record of the log, and takes effect once enough copies of the log have it.

So after the leader is lost, any copy of the log shows which nodes had all acknowledged messages. Pure: the leader's side of
copying reports the state of the followers, and writes the record that `wanted` returns.

See docs/contributing/design/cluster-protocol.md#in-sync-replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nsqd.storage.log.followers import MOST, Followers


class InSync:
    """The in-sync followers, and the change that is not in effect yet."""

    def __init__(self, stated: Followers, position: int, patience: int, leader: int = -1) -> None:
        """Begin with the record in the log. No follower is in sync until enough copies have the log up to `position`, its end.

        `patience`: ns for which a follower may be out of sync before it is removed; `leader`: number of the node
        that leads the log. If it has promoted the log, the log may name it: it is no longer a follower.
        """
        self._leader = leader
        self.stated = stated  # the latest record's content
        self.named: frozenset[int] = frozenset()  # numbers of the in-sync nodes
        self.fewest = 0  # the smallest number of copies that publishes ask for, as the last record that holds states it
        self._before: frozenset[int] = frozenset()  # those that counted before the change
        self._position: int | None = position  # where the record of the change ends; None: it holds
        self._patience = patience
        self._missed: dict[int, int] = {}  # since when a named follower is out of sync, monotonic ns

    @property
    def counting(self) -> frozenset[int]:
        """Return the numbers of the in-sync nodes, without those that a pending change removes."""
        return self.named & frozenset(self.stated.numbers)

    @property
    def is_confirmed(self) -> bool:
        """Return True if the latest record holds."""
        return self._position is None

    def wanted(
        self,
        caught_up: Collection[int],
        expected: Collection[int],
        needed: Collection[int],
        copies: tuple[int, int],
        now: int,
    ) -> Followers | None:
        """Return the next record for the log. None if nothing changes, or a change is pending.

        `caught_up`: followers that have everything and keep up; `expected`: nodes that have announced a restart; `needed`: the
        assigned followers, if all of them count already: the others do not have to be named. `copies`: the smallest and the
        largest number that publishes asked for, (0, 1) if none did.
        """
        if self._position is not None:
            return None
        for number in self.named:
            if number in caught_up or number in expected:
                self._missed.pop(number, None)
            else:
                self._missed.setdefault(number, now)
        kept = {one for one in self.named if now - self._missed.get(one, now) < self._patience}
        numbers = kept | set(caught_up)
        if needed and self.named >= set(needed):
            numbers &= set(needed)
        fewest = min(filter(None, (copies[0], self.stated.fewest)), default=0)
        wanted = Followers(tuple(sorted(numbers)[:MOST]), fewest, max(copies[1], self.stated.most))
        return wanted if wanted != self.stated else None

    def change(self, stated: Followers, position: int) -> None:
        """Note that the log states something else, in a record that ends at `position`."""
        self._before, self.stated, self._position = self.named, stated, position
        for number in self._missed.keys() - set(stated.numbers):
            del self._missed[number]

    def confirm(self, durable: int, replicas: Mapping[int, int]) -> bool:
        """Let the change hold if it may. Returns True if it holds from now on.

        `durable`: the position up to which the log is durable at its leader; `replicas`: the same for the followers whose
        replica is complete and within reach.
        """
        if self._position is None or durable < self._position:
            return False
        concerned = [replicas[one] for one in {*self._before, *self.stated.numbers} if one in replicas]
        having = sum(position >= self._position for position in concerned)
        if having < min(self.stated.most - 1, len(concerned)):
            return False
        self.named = frozenset(self.stated.numbers) - {self._leader}
        self.fewest, self._position = self.stated.fewest, None
        return True
