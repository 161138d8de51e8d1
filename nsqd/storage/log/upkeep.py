"""The upkeep of an open log that serves a broker: checkpoints, syncs by time, and a limit to the memory that frames take."""

from collections.abc import Callable

from nsqd.core.broker import Broker
from nsqd.storage.log.cache import Cache
from nsqd.storage.log.checkpoint import Checkpoints
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.syncer import Syncer

COUNT_EVERY = 1_000_000_000  # ns between counts of the memory that waiting messages take


class LogUpkeep:
    """The periodic work on a log that serves a broker. For the reactor's thread."""

    def __init__(
        self,
        broker: Broker,
        store: LogStore,
        syncer: Syncer,
        cache: Cache,
        checkpoints: Checkpoints,
        monotonic: Callable[[], int],
        issues_ids: bool = True,
    ) -> None:
        """Begin the upkeep: from now on a checkpoint may follow each commit. `monotonic`: a clock in ns.

        `issues_ids`: messages are published into the log.
        """
        self._issues_ids = issues_ids
        self.checkpoints = checkpoints
        self._broker = broker
        self._store = store
        self._syncer = syncer
        self._cache = cache
        self._monotonic = monotonic
        self._count_at = 0  # when to count again (monotonic ns)
        cache.on_read = broker.read_completed
        store.after_commit = checkpoints.turn

    def timer(self, due: bool) -> None:
        """Do what is due by time. Call it every second or more often.

        `due`: sync records that no reply waits for.
        """
        self._syncer.timer(due)
        now = self._monotonic()
        if now >= self._count_at:
            self._count_at = now + COUNT_EVERY
            self._cache.share(self._broker.waiting_bytes)

    def finish(self) -> None:
        """Leave a checkpoint when the node stops, and give back the message ids that were leased and not issued."""
        self.checkpoints.finish()
        if self._issues_ids:
            self._store.return_ids(self._broker.ids.next)
