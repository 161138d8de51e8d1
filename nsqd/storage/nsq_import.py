"""Taking over the data directory of an NSQ nsqd: once, at the first start there, all of it or nothing.

A marker file tells how far it is. Should the process die while it reads, the next start throws the log away and begins anew;
the originals are as they were. Once everything is in the log, and synced, they are moved aside; should it die then, the next
start goes on with that. What NSQ itself has set aside (`.bad`) it had read, up to the damage or the end: it is moved, not read.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from nsqd.core.broker import Broker
from nsqd.core.topology import ChannelEntry, TopicEntry
from nsqd.storage.diskqueue import Queue, QueuedMessage, QueueError, find_queues
from shared.files import replace_file, sync_directory
from shared.log import log

MARKER = "nsq-import"
ASIDE = "imported-from-nsq"
READING, MOVING = b"reading\n", b"moving\n"
BATCH, BATCH_BYTES = 1000, 1024 * 1024  # messages and bytes of a group
TOLD = 1_000_000  # messages between two lines of progress


class NsqImport:
    """See above."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marker = path / MARKER
        self.queues: list[Queue] = []
        self.left: list[
            str
        ] = []  # names of NSQ's files beside a log: whoever went back to NSQ must not lose what came there
        self.taken: list[tuple[Queue, int]] = []  # and how many messages each had

    def prepare(self) -> bool:
        """Before the log is opened. True if there is something to take over.

        Raises QueueError, OSError; then nothing has changed.
        """
        marker = self._marker.read_bytes() if self._marker.exists() else b""
        if marker == MOVING:
            self._move()
            return False
        logs = list((self._path / "log").glob("*.log")) if (self._path / "log").is_dir() else []
        if logs and marker != READING:
            self.left = sorted(path.name for path in self._path.glob("*.diskqueue.*.dat"))
            if self.left:
                log.warning(
                    "IMPORT: there is a log in %s already: %d files of NSQ's queues are not taken over, e.g. %s",
                    self._path, len(self.left), self.left[0],
                )  # fmt: skip
            return False
        self.queues = find_queues(self._path)
        if not self.queues and marker == READING:
            raise QueueError(
                f"it was interrupted, and NSQ's files are gone: put them back, or remove {MARKER} and log to begin with nothing"
            )
        if not self.queues:
            return False
        replace_file(self._marker, READING)
        for file in logs:
            file.unlink()
        return True

    def topology(self, known: Iterable[TopicEntry]) -> list[TopicEntry]:
        """What nsqd.dat knows, and what only has files."""
        found = {topic.name: topic for topic in known}
        for queue in self.queues:
            topic = found.setdefault(queue.topic, TopicEntry(queue.topic, False, ()))
            if queue.channel and queue.channel not in [channel.name for channel in topic.channels]:
                found[queue.topic] = replace(topic, channels=(*topic.channels, ChannelEntry(queue.channel, False)))
        return list(found.values())

    def run(self, broker: Broker, of_channels: bool, commit: Callable[[], None]) -> None:
        """Publish what channels have taken over, or what their topics still have. Topics and channels exist.

        `commit` ends a turn and begins one, or raises what went wrong.
        """
        count = 0
        for queue in (queue for queue in self.queues if bool(queue.channel) is of_channels):
            before = count
            for batch in _batches(queue):
                topic = broker.topics[queue.topic]
                only = topic.channels[queue.channel] if queue.channel else None
                topic.take_in([(one.timestamp, one.body) for one in batch], only)
                commit()
                if (count + len(batch)) // TOLD > count // TOLD:
                    log.info("IMPORT: %d messages so far", count + len(batch))
                count += len(batch)
            where = f"channel {queue.channel} of topic {queue.topic}" if queue.channel else f"topic {queue.topic}"
            self.taken.append((queue, count - before))
            log.info("IMPORT: %s: %d messages", where, count - before)
            for path, at, size in queue.unreadable:
                log.error(
                    "IMPORT: %s: %d bytes from %d on are no messages; all else was taken", path.name, size - at, at
                )

    def finish(self) -> None:
        """All of it is in the log, and synced."""
        replace_file(self._marker, MOVING)
        self._move()
        log.info("IMPORT: done; the files of NSQ are in %s", self._path / ASIDE)

    def _move(self) -> None:
        aside = self._path / ASIDE
        aside.mkdir(mode=0o700, exist_ok=True)
        for path in sorted(self._path.glob("*.diskqueue.*")):
            os.replace(path, aside / path.name)
        metadata = self._path / "nsqd.dat"
        if metadata.exists() and not (aside / "nsqd.dat").exists():
            shutil.copy2(metadata, aside / "nsqd.dat")
        sync_directory(aside)
        self._marker.unlink()
        sync_directory(self._path)


def _batches(queue: Queue) -> Iterator[list[QueuedMessage]]:
    batch: list[QueuedMessage] = []
    size = 0
    for message in queue.messages():
        if batch and (len(batch) >= BATCH or size + len(message.body) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.body)
    if batch:
        yield batch
