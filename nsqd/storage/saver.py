"""Write the topology when it has changed, and remember whether the disk accepts writes."""

from collections.abc import Callable

import trio

from nsqd.core.broker import Broker
from nsqd.core.topology import TopologySnapshot, snapshot
from nsqd.storage.directory import DataDirectory
from shared.log import log

# the pause after a write is this many times as long as the write: the creation of ten thousand topics must not keep a core busy
REST = 9
RETRY = 1.0  # s until a write that failed is tried again


class Health:
    """Whether the last write of metadata succeeded, as /ping and /readyz report. Any thread may use it."""

    def __init__(self) -> None:
        self.failure = ""  # the error of the last write; "": it succeeded

    def tried(self, write: Callable[..., None], *arguments: object) -> bool:
        """Call `write`. If it raises OSError, log the error and return False."""
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
        """Return OK, or NOK and the reason for it."""
        return f"NOK - {self.failure}" if self.failure else "OK"


class Saver:
    """Writes the topology in a worker thread when it has changed. One write covers all changes in the meantime."""

    def __init__(self, broker: Broker, directory: DataDirectory, health: Health, nursery: trio.Nursery) -> None:
        self._broker, self._directory, self._health, self._nursery = broker, directory, health, nursery
        self._writing = False  # True: a task is writing
        self._changed = False  # True: there was a change since the task took its snapshot
        self._number = 0  # number of the last snapshot

    def topology_changed(self) -> None:
        """Start a write, because topics or channels were created, deleted or paused. Trio thread only."""
        self._changed = True
        if not self._writing:
            self._writing = True
            self._nursery.start_soon(self._write)

    async def _write(self) -> None:
        while self._changed:
            self._changed = False
            began = trio.current_time()
            snapshot = self.current_topology()
            await trio.to_thread.run_sync(self.save, snapshot)
            await trio.sleep((trio.current_time() - began) * REST)
            if self._health.failure:
                self._changed = True
                await trio.sleep(RETRY)
        self._writing = False

    def current_topology(self) -> TopologySnapshot:
        """Return the topology as it is now. Trio thread only."""
        self._number += 1
        return TopologySnapshot(self._number, snapshot(self._broker))

    def save(self, snapshot: TopologySnapshot) -> None:
        """Make the snapshot durable, unless a later one is. Any thread may call this."""
        self._health.tried(self._directory.write_topology, snapshot)
