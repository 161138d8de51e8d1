"""Parts do the work of a node in its cluster. Cluster has a table of them, and gives each the frames that it takes.

A new frame is a line of FrameKind and a part that takes it; nothing else knows its kind.
"""

from __future__ import annotations

from collections.abc import Collection

from nsqd.cluster.link import Link
from nsqd.core.broker import Broker
from nsqd.core.message.epoch import Epoch
from nsqd.protocols.peer.frames import FrameKind


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
        """Note that a log has another leader, by a greater epoch."""

    def attached(self, broker: Broker) -> None:
        """Note an adopted log, within the turn in which its topics begin to be attached."""

    def detached(self, broker: Broker) -> None:
        """Note that an adopted log leaves the node's topics."""

    def figures(self) -> object:
        """Return its value in the answer to /cluster, which JSON can encode."""

    def tick(self, now: int) -> None:
        """Do what is due at `now` (monotonic ns). It is called several times a second, after Cluster.tick."""
