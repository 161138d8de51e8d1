"""The data directory: locked by one process. And nsqd.dat, NSQ's file of topics, channels and pause (specs/nsq.md e5).

The commit log knows all that, too, and better: nsqd.dat is written for the tools that read it, and read only where there is no
log yet. A new file is written beside it, synced, renamed over it, and the directory synced: NSQ leaves out the last step and
loses the file in a power cut. `penstock.ids` is the lease of message ids that versions without a log wrote into it.
"""

import fcntl
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nsqd.core.topology import ChannelEntry, TopicEntry
from penstock.protocol.names import is_valid_name
from shared.files import replace_file
from shared.log import log
from shared.version import NSQ_VERSION

FILE = "nsqd.dat"


class DirectoryError(Exception):
    """The directory cannot be used; the text says why, in NSQ's words. The program exits 1."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What nsqd.dat holds."""

    topics: tuple[TopicEntry, ...] = ()
    ids: int = 1  # message ids below it may have been issued


class Directory:
    """The locked data directory. `close` unlocks it."""

    def __init__(self, path: str) -> None:
        """Lock `path` ("" is the working directory). Raises DirectoryError."""
        self.path = Path(path or ".").resolve()
        self._writing = threading.Lock()  # writes come from the trio thread and from worker threads
        self._written = Metadata()  # what the file holds
        self._number = 0  # of the topology written last
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise DirectoryError(
                f"failed to lock data-path: {self.path} - {why}: it must be a directory that exists"
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            why = f"cannot flock directory {self.path} - {(error.strerror or '').lower()}"
            raise DirectoryError(
                f"failed to lock data-path: {why} (possibly in use by another instance of nsqd)"
            ) from None

    def load(self) -> Metadata:
        """What was written last; nothing if the directory is new. Raises DirectoryError for a file that is not ours."""
        try:
            text = (self.path / FILE).read_bytes()
        except FileNotFoundError:
            return self._written
        except OSError as error:
            raise DirectoryError(f"failed to load metadata - {error}") from None
        try:
            self._written = _decode(text)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DirectoryError(f"failed to load metadata - {self.path / FILE}: {error}") from None
        return self._written

    def write_topics(self, number: int, topics: Sequence[TopicEntry]) -> None:
        """Make the topology durable, unless one with a higher number was written."""
        with self._writing:
            if number < self._number:
                return
            self._number = number
            self._write(replace(self._written, topics=tuple(topics)))

    def close(self) -> None:
        """Unlock."""
        os.close(self._fd)

    def _write(self, metadata: Metadata) -> None:
        if metadata == self._written and (self.path / FILE).exists():
            return
        replace_file(self.path / FILE, _encode(metadata))
        self._written = metadata


def _encode(metadata: Metadata) -> bytes:
    topics = [
        {
            "name": topic.name,
            "paused": topic.paused,
            "channels": [{"name": channel.name, "paused": channel.paused} for channel in topic.channels] or None,
        }
        for topic in metadata.topics
    ]
    content = {"topics": topics, "version": NSQ_VERSION, "penstock": {"ids": metadata.ids}}
    return json.dumps(content, separators=(",", ":")).encode()


def _decode(text: bytes) -> Metadata:
    content = json.loads(text)
    topics = tuple(_decode_topic(topic) for topic in _named(content.get("topics")))
    ids = content.get("penstock", {}).get("ids", 1)
    if not isinstance(ids, int) or ids < 1:
        raise ValueError(f"penstock.ids is {ids!r}")
    return Metadata(topics, ids)


def _decode_topic(topic: dict[str, Any]) -> TopicEntry:
    channels = tuple(ChannelEntry(c["name"], bool(c.get("paused"))) for c in _named(topic.get("channels")))
    return TopicEntry(topic["name"], bool(topic.get("paused")), channels)


def _named(entries: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Entries with a legal name; the others are left out with a warning, as by the original."""
    good = []
    for entry in entries or ():
        if is_valid_name(entry["name"]):
            good.append(entry)
        else:
            log.warning("skipping creation of invalid name %r in %s", entry["name"], FILE)
    return good
