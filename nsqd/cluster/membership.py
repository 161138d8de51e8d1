"""Who belongs to the cluster, as far as this node was told, and who is silent.

What nodes tell of a member is merged by its latest word: that of the greatest incarnation. Merging the same words in any order,
any number of times, gives the same members; so nodes that hear each other in the end agree.

A member is suspected when no byte came from it for a time, by the clock of the one who listens. If the listener itself stood
still, it listened to nobody: it reads first what waits, and silence counts anew from then on.

See docs/design/cluster.md#membership.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from nsqd.protocols.peer.node_identity import NodeIdentity

LEAST_SUSPICION = 3_000_000_000  # ns


class Standing(IntEnum):
    """What a node is to the cluster. Of two words about one incarnation, the greater standing is the later one."""

    MEMBER = 0
    LEFT = 1  # it said that it leaves for good
    FORGOTTEN = 2  # an operator said that it will not come back


@dataclass(frozen=True, slots=True)
class Member:
    """The latest word about a node."""

    node: NodeIdentity
    standing: Standing = Standing.MEMBER

    def is_later_than(self, other: Member) -> bool:
        """Return True if this word replaces the other one about the same node number."""
        return self._order() > other._order()

    def _order(self) -> tuple[object, ...]:
        node = self.node
        place = node.address, node.http, node.zone
        return node.incarnation, self.standing, node.log_id, node.epoch, node.log_format, *place


class Membership:
    """The members of the cluster as one node knows them. All times are monotonic ns of this node."""

    def __init__(self, own: NodeIdentity, suspect_after: int) -> None:
        """`suspect_after`: the silence in ns after which a member is suspected (-takeover-after). Raises ValueError."""
        if suspect_after < LEAST_SUSPICION:
            raise ValueError("a silence of less than 3 s may be between two heartbeats")
        self.own = own
        self.words: dict[int, Member] = {
            own.number: Member(own)
        }  # the latest word about each node number, also of those gone
        self._suspect_after = suspect_after
        self._heard: dict[int, int] = {}  # when a byte came from each node, or its present run was first told of
        self._back_by: dict[int, int] = {}  # until when a node that announced a restart is waited for
        self._checked = 0  # time of the last check; 0: none yet
        self._suspected: set[int] = set()

    @property
    def members(self) -> list[NodeIdentity]:
        """Return the members by their numbers, this node included."""
        return [word.node for _, word in sorted(self.words.items()) if word.standing is Standing.MEMBER]

    @property
    def suspected(self) -> frozenset[int]:
        """Return the numbers of the members that were silent for too long."""
        return frozenset(self._suspected)

    def merge(self, words: Iterable[Member], now: int) -> list[Member]:
        """Take over what somebody tells of nodes. Returns the words that are news, which the others are to be told.

        A run of a node that was not known before is as if it had been heard now: what was suspected was the run before.
        """
        news = {}
        for word in words:
            number = word.node.number
            known = self.words.get(number)
            if number == self.own.number or (known is not None and not word.is_later_than(known)):
                continue
            if known is None or known.node != word.node:
                self._back_by.pop(number, None)
                self.heard(number, now)
            if word.standing is not Standing.MEMBER:
                self._suspected.discard(number)
            self.words[number] = news[number] = word
        return list(news.values())

    def contradiction(self, words: Iterable[Member]) -> Member | None:
        """Return a word about this node's number that is later than this node's own: another run has it, or it is gone."""
        own = self.words[self.own.number]
        return next((word for word in words if word.node.number == self.own.number and word.is_later_than(own)), None)

    def heard(self, number: int, now: int) -> None:
        """Note that bytes came from the present run of a node."""
        self._heard[number] = now
        self._suspected.discard(number)

    def announced(self, number: int, back_by: int) -> None:
        """Note that the present run of a node stops, and that another will be back by a time: until then nobody suspects it."""
        self._back_by[number] = back_by

    def is_going(self, number: int) -> bool:
        """Return True if the present run of a node is silent for too long, or has announced that it stops."""
        return number in self._suspected or number in self._back_by

    def must_read_first(self, now: int) -> bool:
        """Return True if this node stood still since the last check: it must read its peers before it judges or delivers."""
        return self._checked > 0 and now - self._checked > self._suspect_after // 2

    def check_silence(self, now: int) -> list[int]:
        """Return the numbers of the members that are suspected from now on. Call it several times in `suspect_after`.

        After a time in which nobody checked, every silence begins anew.
        """
        if self.must_read_first(now):
            self._heard = dict.fromkeys(self._heard, now)
        self._checked = now
        late = now - self._suspect_after
        silent = [number for number, at in self._heard.items() if at <= late and self._is_awaited(number, now)]
        news = sorted(set(silent) - self._suspected)
        self._suspected.update(news)
        return news

    def _is_awaited(self, number: int, now: int) -> bool:
        """Return True if a node should be heard: it is a member, and not in an announced restart."""
        word = self.words.get(number)
        return word is not None and word.standing is Standing.MEMBER and self._back_by.get(number, now) <= now
