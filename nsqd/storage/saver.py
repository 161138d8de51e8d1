"""Writing the topology down when it has changed, and knowing whether the disk lets us.

Both are called from the trio thread, `save` and `tried` from worker threads too.
"""

from collections.abc import Callable

import trio

from nsqd.core.broker import Broker
from nsqd.core.topology import Picture, pauses_to_keep, snapshot
from nsqd.storage.directory import Directory
from shared.log import log

REST = 9  # times as long as a write took: ten thousand topics being created shall not keep a core busy with it
RETRY = 1.0  # s until a write that failed is tried again


class Health:
    """Whether the last write of metadata went well: what /ping and /readyz tell. (any thread)"""

    def __init__(self) -> None:
        self.failure = ""  # of the last write; "" if it went well

    def tried(self, write: Callable[..., None], *arguments: object) -> bool:
        """Do a write; False, and it is logged, if the world did not let us."""
        try:
            write(*arguments)
        except OSError as error:
            self.failure = str(error)
            log.error("failed to persist metadata - %s", error)
            return False
        self.failure = ""
        return True

    @property
    def text(self) -> str:
        """OK, or NOK and why."""
        return f"NOK - {self.failure}" if self.failure else "OK"


class Saver:
    """Writes the topology down when it has changed, in a worker thread, once for all changes meanwhile."""

    def __init__(self, broker: Broker, directory: Directory, health: Health, nursery: trio.Nursery) -> None:
        self._broker = broker
        self._directory = directory
        self._health = health
        self._nursery = nursery
        self._writing = False  # a task is at it
        self._changed = False  # since the task took its picture
        self._taken = 0  # pictures taken

    def topology_changed(self) -> None:
        """Topics or channels came, went or were paused. (trio thread)"""
        self._changed = True
        if not self._writing:
            self._writing = True
            self._nursery.start_soon(self._write)

    async def _write(self) -> None:
        while self._changed:
            self._changed = False
            began = trio.current_time()
            picture = self.take()
            await trio.to_thread.run_sync(self.save, picture)
            await trio.sleep((trio.current_time() - began) * REST)
            if self._health.failure:
                self._changed = True
                await trio.sleep(RETRY)
        self._writing = False

    def take(self) -> Picture:
        """The topology as it is now. (trio thread)"""
        self._taken += 1
        return Picture(self._taken, snapshot(self._broker), pauses_to_keep(self._broker))

    def save(self, picture: Picture) -> None:
        """Make it durable, unless a later one is. (any thread)"""
        self._health.tried(self._directory.write_topology, picture)
