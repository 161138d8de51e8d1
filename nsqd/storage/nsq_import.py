"""Take over the data directory of an NSQ nsqd (data_import.py).

Files that NSQ itself has renamed (`.bad`) were read by NSQ up to the corruption or the end: they are moved and not read.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from nsqd.core.broker import Broker
from nsqd.core.topology import ChannelEntry, TopicEntry
from nsqd.storage.data_import import DataImport, report_unreadable
from nsqd.storage.diskqueue import DiskQueue, QueuedMessage, find_queues
from shared.log import log

MARKER = "nsq-import"
ASIDE = "imported-from-nsq"
BATCH, BATCH_BYTES = 1000, 1024 * 1024  # messages and bytes in a group, at most
PROGRESS_EVERY = 1_000_000  # messages between two progress lines in the log


class NsqImport(DataImport):
    """The import of NSQ's disk queues: their messages are published to topics and channels."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, MARKER, ASIDE, "NSQ", "NSQ's queues")
        self.queues: list[DiskQueue] = []
        self.taken: list[tuple[DiskQueue, int]] = []  # queues that were taken over, and how many messages each had

    def _files(self) -> list[Path]:
        return sorted(self._path.glob("*.diskqueue.*.dat"))

    def _find(self) -> bool:
        self.queues = find_queues(self._path)
        return bool(self.queues)

    def topology(self, known: Iterable[TopicEntry]) -> list[TopicEntry]:
        """Return the topics of nsqd.dat, and those topics and channels that only have files."""
        found = {topic.name: topic for topic in known}
        for queue in self.queues:
            topic = found.setdefault(queue.topic, TopicEntry(queue.topic, False, ()))
            if queue.channel and queue.channel not in [channel.name for channel in topic.channels]:
                found[queue.topic] = replace(topic, channels=(*topic.channels, ChannelEntry(queue.channel, False)))
        return list(found.values())

    def run(self, broker: Broker, of_channels: bool, commit: Callable[[], None]) -> None:
        """Publish the messages that channels have taken over, or those that the topics still have.

        `of_channels` chooses the former. The topics and channels exist already. `commit` ends a turn and begins the next, or
        raises the error that occurred.
        """
        count = 0
        for queue in (queue for queue in self.queues if bool(queue.channel) is of_channels):
            before = count
            for batch in _batches(queue):
                topic = broker.topics[queue.topic]
                only = topic.channels[queue.channel] if queue.channel else None
                topic.append_past([(one.timestamp, one.body) for one in batch], only)
                commit()
                if (count + len(batch)) // PROGRESS_EVERY > count // PROGRESS_EVERY:
                    log.info("IMPORT: imported %d messages so far", count + len(batch))
                count += len(batch)
            where = f"channel {queue.channel} of topic {queue.topic}" if queue.channel else f"topic {queue.topic}"
            self.taken.append((queue, count - before))
            log.info("IMPORT: %s: %d messages", where, count - before)
            report_unreadable(queue.unreadable, "messages")

    def _archive_files(self, archive: Path) -> None:
        for path in sorted(self._path.glob("*.diskqueue.*")):
            path.replace(archive / path.name)
        metadata = self._path / "nsqd.dat"
        if metadata.exists() and not (archive / "nsqd.dat").exists():
            shutil.copy2(metadata, archive / "nsqd.dat")


def _batches(queue: DiskQueue) -> Iterator[list[QueuedMessage]]:
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
