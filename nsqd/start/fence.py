"""A running node learns that another node leads its log now, and opens its directory again.

The daemon closes all connections and the log. Then it is built again, with another log, on the same listening sockets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from nsqd.options import NsqdOptions
from nsqd.start.front_ends import open_in_cluster
from nsqd.start.opening import Opened
from nsqd.storage.directory import DataDirectory
from shared.log import log
from shared.process.daemon import wait_for_stop
from shared.values import SECOND

if TYPE_CHECKING:
    from nsqd.start.listeners import Listeners
    from nsqd.storage.log.epochs import Epoch

ASK_AGAIN = 1.0  # s until other nodes are asked again how much of the log the leader has


@dataclass(frozen=True, slots=True)
class Fence:
    """The reason to open the directory again: another node leads this node's log."""

    log_id: bytes
    epoch: Epoch  # of the leader
    listeners: Listeners  # at which connections wait until the node serves again
    in_flight: int  # how many messages clients had


async def open_patiently(
    options: NsqdOptions,
    directory: DataDirectory,
    listeners: Listeners,
    signals: AsyncIterator[int],
    fence: Fence | None = None,
) -> Opened | None:
    """Open the data directory. If another node leads its log, as `fence` or cluster.json says, begin one that succeeds it.

    Waits until a node reports how much of the log the leader has; after -unclean-after all unfinished messages go into
    the new one, so that they are delivered even if the leader has lost them. Returns None after SIGINT or SIGTERM. Raises
    DirectoryError.
    """
    if not options.cluster_address:
        return open_in_cluster(options, directory, listeners)
    from nsqd.cluster.promotion.duplicates import UNFINISHED
    from nsqd.cluster.replication.rejoin import LeaderSilentError

    is_known, gives_up_at = False, trio.current_time() + options.unclean_after / SECOND
    while True:
        is_last_try = trio.current_time() >= gives_up_at
        try:
            leaders = {fence.log_id: fence.epoch} if fence else {}
            opened = open_in_cluster(options, directory, listeners, leaders, is_last_try)
            opened.possible_duplicates[UNFINISHED] += fence.in_flight if fence else 0
            return opened
        except LeaderSilentError as error:
            if not is_known:
                log.error("CLUSTER: this node cannot continue: %s", error)
            is_known = True
        with trio.move_on_after(ASK_AGAIN):
            await wait_for_stop(signals, lambda: None)
            return None
