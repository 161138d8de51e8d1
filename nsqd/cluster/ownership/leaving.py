"""How a node leaves the cluster permanently: it transfers its logs to nodes that have all of them, and announces that it left.

The node takes no publishes and delivers nothing more. It waits until its clients have nothing in flight, but no longer than
half of the limit. Then it steps down: for each log it asks one follower that has everything to become the leader, by a usual
election, and another one if that takes too long. When every log has another leader, it announces that it has left. A log that
is not transferred within the limit stays its own: there is a failover as from a lost node. Without a connection to another
node it does not leave either: none would know.

It does not leave as long as its disk may have the only copy of messages: of a log with a leader that may lack a part of it, or
of a log whose leader is lost, or may be, because it is not connected. A leader compares each replica with its log, and what it
lacks is salvaged, and transferred too.

Nothing here does input or output, or reads a clock.

    TRANSFER  the sender led a log by an epoch, and has stepped down: its id, and the epoch. The receiver is to lead the log

See docs/contributing/design/cluster-protocol.md#leaving.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from struct import Struct
from typing import Any, Protocol

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.facts import Keep
from nsqd.cluster.membership.leader_frames import checked_epoch
from nsqd.cluster.ownership.elections import Elections
from nsqd.cluster.wire.fields import unpack_struct
from nsqd.cluster.wire.frames import FrameKind, encode
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.part import Part
from nsqd.core.message.epoch import Epoch

ASK_AGAIN = 5_000_000_000  # ns after which another follower is asked
ASKED_FOR = 10_000_000_000  # ns for which a node that was asked tries to begin an election
MOST_ASKED = 1000  # logs that a node is asked to lead at a time
_TRANSFER = Struct(">16s14s")


class LeavingState(StrEnum):
    """The state of a node that leaves."""

    STAYING = "staying"  # it was not asked to leave
    WAITING = "waiting"  # for messages in flight
    TRANSFERRING = "handing over"
    TELLING = "telling"  # it announces that it has left: all its logs have other leaders
    LEFT = "left"
    # this node still leads a log, may have the only copy of messages, or is connected to no other node
    GAVE_UP = "gave up"


class LeavingNode(Protocol):
    """What leaving needs of the node, its clients and its logs: nsqd.cluster.departure.Departure."""

    def hold(self) -> None:
        """Take no publishes, and deliver nothing more."""

    def in_flight(self) -> int:
        """Return the number of messages in flight that a client can still finish."""

    def whole_followers(self) -> Mapping[bytes, Sequence[int]]:
        """Return the nodes that have all of a log durably, the best first, by the ids of the logs that this node copies."""

    def promoting(self) -> Iterable[bytes]:
        """Return the logs that this node is promoting and has not announced yet."""

    def unsettled(self) -> Iterable[bytes] | None:
        """Return the other logs of which this node may have messages that the leaders lack. None: that is not known yet."""

    def transfer(self, log_id: bytes) -> None:
        """Note that another node is asked to lead a log: later records of this node may not reach it."""

    def end(self, leaving: Leaving) -> None:
        """End the process: `leaving` is over."""


class Leaving(Part):
    """The leaving of one node. All times are monotonic ns."""

    def __init__(self, cluster: Cluster, keep: Keep, elections: Elections, node: LeavingNode) -> None:
        self.state = LeavingState.STAYING
        self._keep, self._elections, self._node = keep, elections, node
        self._fenced: list[bytes] = []  # own logs that another node leads now, without a part of them
        self._unsettled: Iterable[bytes] | None = None  # as the node said at the last tick
        self.left_behind: list[bytes] = []  # logs that are whole here, and whose leaders are lost, or not connected
        self._cluster = cluster
        self._limit = self._begun = 0  # ns; when it began
        self._in_flight = 0
        self.to_transfer: list[bytes] = []  # logs that are still to be transferred
        self._own: set[bytes] = set()  # those of them that others know as this node's
        self._whole: dict[bytes, set[int]] = {}  # by log id: the nodes that had all of it since no messages are taken
        self._asked: dict[bytes, tuple[int, int]] = {}  # by log id: the node that was asked last, and when

    def begin(self, limit: int, now: int) -> None:
        """Begin to leave, within `limit` ns. Nothing changes if the node leaves already."""
        if not self._cluster.is_leaving:
            self._cluster.is_leaving = True
            self.state, self._limit, self._begun = LeavingState.WAITING, limit, now
            self._find_led()
            self._node.hold()

    def tick(self, now: int) -> None:
        if self.state not in (LeavingState.WAITING, LeavingState.TRANSFERRING):
            return
        logs = self._node.whole_followers()
        self._in_flight, self.left_behind = self._node.in_flight(), self._elections.leaderless()
        self._unsettled = self._node.unsettled()
        self._find_led()
        for log_id, whole in logs.items():
            self._whole.setdefault(log_id, set()).update(whole)
        if self.state is LeavingState.WAITING and (not self._in_flight or now - self._begun >= self._limit // 2):
            self.state = LeavingState.TRANSFERRING
        if self.state is LeavingState.TRANSFERRING:
            if not self.to_transfer and self._end():
                return
            for log_id, whole in logs.items():
                if self._is_own(log_id):
                    self._transfer(log_id, whole, now)
        if now - self._begun >= self._limit:
            self._give_up()

    def whole(self, log_id: bytes, number: int) -> None:
        self._whole.setdefault(log_id, set()).add(number)

    def _find_led(self) -> None:
        """Find the logs that this node leads, opened or not, and those that it is promoting; and the leaders of the others."""
        leaders = self._cluster.leaders
        own = [log_id for log_id in leaders.held if self._is_own(log_id)]
        for log_id in self._own.difference(own, leaders.closed):
            leader = leaders.epochs.get(log_id)
            if leader is not None and leader.node not in self._whole.get(log_id, ()):
                self._fenced.append(log_id)
        self._own = set(own)
        self.to_transfer = [*own, *(log_id for log_id in self._node.promoting() if log_id not in self._own)]

    def _is_own(self, log_id: bytes) -> bool:
        leaders = self._cluster.leaders
        epoch = leaders.epochs.get(log_id)
        return epoch is not None and epoch.node == self._cluster.own.number and log_id not in leaders.closed

    def _transfer(self, log_id: bytes, whole: Sequence[int], now: int) -> None:
        """Ask one of the nodes that have all of a log to lead it, unless one was just asked."""
        asked, at = self._asked.get(log_id, (-1, 0))
        links = self._cluster.links
        able = [number for number in whole if number in links]
        if not able or (asked in links and now - at < ASK_AGAIN):
            return
        number = next((other for other in able if other > asked), able[0])  # in turn
        self._asked[log_id] = number, now
        self._node.transfer(log_id)
        self._cluster.step_down(log_id, number)
        links[number].send_first(pack_transfer(log_id, self._cluster.leaders.epochs[log_id]))

    def _give_up(self) -> None:
        self.state = LeavingState.GAVE_UP
        self._node.end(self)

    @property
    def lacking(self) -> list[bytes]:
        """Return the logs that another node leads, of which it may lack what this node has."""
        return [*self._fenced, *sorted(self._unsettled or ())]

    def _end(self) -> bool:
        """End, if nothing is only here, or a log has got a leader without a part of it. Returns False to wait."""
        if self._fenced:
            self._give_up()
        elif self._unsettled is None or self.lacking or self.left_behind or not self._cluster.links:
            return False
        else:
            self.state = LeavingState.TELLING
            self._cluster.leave()
            self._keep(self._left)
        return True

    def _left(self, is_kept: bool) -> None:
        """End: the others know it, whether it could be written here or not."""
        self.state = LeavingState.LEFT
        self._node.end(self)

    def figures(self) -> dict[str, Any]:
        asked = [(log_id.hex(), self._asked.get(log_id, (None, 0))[0]) for log_id in self.to_transfer]
        return {
            "state": self.state.value,
            "in_flight": self._in_flight,
            "logs": [{"log_id": log_id, "asked": number} for log_id, number in asked],
            "lacking": [log_id.hex() for log_id in self.lacking],
            "leaderless": [log_id.hex() for log_id in self.left_behind],
        }


class Transfers(Part):
    """The logs that other nodes ask this one to lead, because they leave."""

    takes = (FrameKind.TRANSFER,)

    def __init__(self, cluster: Cluster, elections: Elections) -> None:
        self._cluster, self._elections = cluster, elections
        self._asked: dict[bytes, tuple[Epoch, int]] = {}  # by log id: the epoch that ends, and until when it is tried
        self._now = 0  # time of the last tick

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        log_id, epoch = unpack_transfer(content)
        is_leader = epoch.node == link.node.number and self._is_leader(log_id, epoch)
        if is_leader and len(self._asked) < MOST_ASKED and not self._cluster.is_leaving:
            self._asked[log_id] = epoch, self._now + ASKED_FOR

    def _is_leader(self, log_id: bytes, epoch: Epoch) -> bool:
        return self._cluster.leaders.leader(log_id) == epoch

    def tick(self, now: int) -> None:
        """Begin elections where that is possible. Call it several times a second, before Elections.tick."""
        self._now = now
        for log_id, (epoch, until) in list(self._asked.items()):
            if now >= until or not self._is_leader(log_id, epoch) or self._cluster.is_leaving:
                del self._asked[log_id]
                continue
            try:
                self._elections.promote(log_id)
            except (KeyError, ValueError):  # the replica is being opened, or the leader's update was not handled yet
                continue
            del self._asked[log_id]


def pack_transfer(log_id: bytes, epoch: Epoch) -> bytes:
    """Return the frame that asks the receiver to lead a log which the sender led by `epoch`."""
    return encode(FrameKind.TRANSFER, _TRANSFER.pack(log_id, epoch.pack()))


def unpack_transfer(content: bytes) -> tuple[bytes, Epoch]:
    """Return the id of the log, and the epoch by which the sender led it. Raises PeerError."""
    log_id, epoch = unpack_struct(FrameKind.TRANSFER, _TRANSFER, content)
    return log_id, checked_epoch(epoch)
