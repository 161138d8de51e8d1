"""The data directory, which one process locks, and nsqd.dat, NSQ's file of topics, channels and what is paused.

The commit log holds the same, and more reliably: nsqd.dat is written for the tools that read it. It is read where no log
exists yet, and where another program has written it, for example to provision topics: `penstock.crc` shows whether the topics
are as this program wrote them, and `opening.py` adds those that are new. Each write replaces the whole file durably; NSQ does
not sync the directory and loses the file in a power cut. Where another node has made the directory of a lost one,
`penstock.ids` is the message id below which that node may have issued ids.

See docs/contributing/design/nsq-programs.md#nsqddat.
"""

import fcntl
import json
import os
import threading
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nsqd.core.topology import ChannelEntry, TopicEntry, TopologySnapshot
from penstock.protocol.names import is_valid_name
from shared.files import replace_file
from shared.log import log
from shared.version import NSQ_VERSION

FILE, DAMAGED = "nsqd.dat", "nsqd.dat.damaged"


class DirectoryError(Exception):
    """The directory cannot be used. The text says why, in NSQ's words, and the program exits with status 1."""


class LockError(DirectoryError):
    """The directory cannot be locked: it does not exist, or another process has it."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of the file nsqd.dat, decoded."""

    topics: tuple[TopicEntry, ...] = ()
    ids: int = 1  # message ids below this may have been issued
    is_own: bool = True  # False: another program wrote the topics


class DataDirectory:
    """A data directory that this process has locked. `close` unlocks it."""

    def __init__(self, path: str) -> None:
        """Lock the directory `path` ("" is the working directory). Raises DirectoryError."""
        self.path = Path(path or ".").resolve()
        self._writing = threading.Lock()  # writes come from the trio thread and from worker threads
        self._written = Metadata()  # the content of the file
        self._number = 0  # number of the topology that was written last
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            why = f"{self.path} - {(error.strerror or str(error)).lower()}: it must be a directory that exists"
            raise LockError(f"failed to lock data-path: {why}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            why = f"cannot flock directory {self.path} - {(error.strerror or '').lower()}"
            raise LockError(f"failed to lock data-path: {why} (possibly in use by another instance of nsqd)") from None

    def load(self) -> Metadata:
        """Read nsqd.dat; the result is empty if the directory is new. Raises DirectoryError for an invalid file.

        Snapshots are numbered from 0 again.
        """
        self._number = 0
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

    def rename_damaged(self) -> str:
        """Rename nsqd.dat, which cannot be read, and return its new name. Raises DirectoryError."""
        try:
            os.replace(self.path / FILE, self.path / DAMAGED)
        except OSError as error:
            raise DirectoryError(f"failed to load metadata - {error}") from None
        return DAMAGED

    def write_topology(self, snapshot: TopologySnapshot) -> None:
        """Make the topology durable, unless one with a higher number was written."""
        with self._writing:
            if snapshot.number < self._number:
                return
            self._number = snapshot.number
            metadata = replace(self._written, topics=tuple(snapshot.topics), is_own=True)
            if metadata != self._written or not (self.path / FILE).exists():
                replace_file(self.path / FILE, encode(metadata))
                self._written = metadata

    def close(self) -> None:
        """Unlock the directory by closing its descriptor."""
        os.close(self._fd)


def encode(metadata: Metadata) -> bytes:
    """Return the content of nsqd.dat, JSON with the keys of NSQ and one of our own, `penstock`."""
    topics = [_encode_topic(topic) for topic in metadata.topics]
    own = {"ids": metadata.ids, "crc": _crc(metadata.topics)}
    content = {"topics": topics, "version": NSQ_VERSION, "penstock": own}
    return json.dumps(content, separators=(",", ":")).encode()


def _encode_topic(topic: TopicEntry) -> dict[str, Any]:
    channels = [{"name": channel.name, "paused": channel.paused} for channel in topic.channels]
    return {"name": topic.name, "paused": topic.paused, "channels": channels or None}


def _crc(topics: Iterable[TopicEntry]) -> int:
    """Return a CRC-32 of the topics' content, which does not depend on the file's layout."""
    return zlib.crc32(json.dumps([_encode_topic(topic) for topic in topics]).encode())


def _decode(text: bytes) -> Metadata:
    content = json.loads(text)
    topics = tuple(_decode_topic(topic) for topic in _named(content.get("topics")))
    own = content.get("penstock", {})
    ids = own.get("ids", 1)
    if not isinstance(ids, int) or ids < 1:
        raise ValueError(f"penstock.ids is {ids!r}")
    return Metadata(topics, ids, own.get("crc") == _crc(topics))


def _decode_topic(topic: dict[str, Any]) -> TopicEntry:
    channels = tuple(ChannelEntry(c["name"], bool(c.get("paused"))) for c in _named(topic.get("channels")))
    return TopicEntry(topic["name"], bool(topic.get("paused")), channels)


def _named(entries: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the entries with a legal name. The others are left out with a warning, as in the original nsqd."""
    good = []
    for entry in entries or ():
        if is_valid_name(entry["name"]):
            good.append(entry)
        else:
            log.warning("skipping creation of invalid name %r in %s", entry["name"], FILE)
    return good
