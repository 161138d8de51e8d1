"""Parts do the work of a node in its cluster. Cluster has a table of them, and gives each the frames that it takes.

A new frame is a line of FrameKind and a part that takes it; nothing else knows its kind.
"""

from __future__ import annotations

from collections.abc import Collection

from nsqd.cluster.wire.frames import FrameKind
from nsqd.cluster.wire.link import Link
from nsqd.core.broker import Broker
from nsqd.core.message.epoch import Epoch


class Part:
    """One part. What it overrides is called in the reactor's thread, for all parts in the order in which they were added."""

    takes: Collection[int] = ()  # the kinds of frames that `receive` is given
    shown_as = ""  # the key in /cluster under which `figures` are shown; "": it has none

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        """Take a frame of a node that is connected. `now` is in monotonic ns. Raises PeerError."""
        raise NotImplementedError

    def admitted(self, link: Link) -> None:
        """Send a node that is connected now what it must know."""

    def closed(self, link: Link) -> None:
        """Note that a connection to a node is gone."""

    def led(self, log_id: bytes, epoch: Epoch) -> None:
        """Handle that a log has another leader, by a greater epoch."""

    def fenced(self, log_id: bytes, epoch: Epoch) -> None:
        """Note that another run or node leads a log that this node has led: nothing more of it is delivered here."""

    def won(self, log_id: bytes, number: int, is_clean: bool) -> None:
        """Note that this node has won an election: it is to lead a log, by an epoch with that number.

        `is_clean`: its replica has all acknowledged messages.
        """

    def called_off(self, log_id: bytes) -> None:
        """Handle that this node is not to lead a log after all: its leader is back, or another node is a candidate as well."""

    def configured(self) -> None:
        """Note that this node knows now how the topics of the cluster are configured."""

    def whole(self, log_id: bytes, number: int) -> None:
        """Handle that the candidate with that number for a log of which this node has stepped down has all of it."""

    def log_closed(self, log_id: bytes) -> None:
        """Note that a log is closed, and that this node has that durably."""

    def log_removable(self, log_id: bytes) -> None:
        """Note that so have enough nodes, of a log that this one has closed: its files may go."""

    def attached(self, broker: Broker) -> None:
        """Note a promoted log, within the turn in which its topics begin to be attached."""

    def detached(self, broker: Broker) -> None:
        """Note that a promoted log leaves the node's topics."""

    def has_unserved_log(self) -> bool:
        """Return True if this node has a copy of a log that it may serve later: messages in it are not found yet."""
        return False

    def figures(self) -> object:
        """Return its value in the answer to /cluster, which JSON can encode."""

    def pump(self, now: int) -> None:
        """Continue after frames came, or when the network has taken the output. Queued frames are sent afterwards."""

    def tick(self, now: int) -> None:
        """Do what is due at `now` (monotonic ns). It is called several times a second, after Cluster.tick."""
