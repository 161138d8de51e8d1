"""The data directory: locked by one process. And nsqd.dat, NSQ's file of topics, channels and pause (specs/nsq.md e5).

The commit log knows all that, too, and better: nsqd.dat is written for the tools that read it, and read only where there is no
log yet; but for `penstock.pauses`: who paused what, when, and until when stands here alone. A new file is written beside it,
synced, renamed over it, and the directory synced: NSQ leaves out the last step and loses the file in a power cut.
`penstock.ids` is the lease of message ids that versions without a log wrote into it. `penstock.crc` tells whether the topics
are as we wrote them: where somebody else has changed them, `opening.py` says what of that is ignored.
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

from nsqd.core.pauses import MOST_BY, Key, Pause
from nsqd.core.topology import ChannelEntry, Picture, TopicEntry
from penstock.protocol.names import is_valid_name
from shared.files import replace_file
from shared.log import log
from shared.version import NSQ_VERSION

FILE = "nsqd.dat"
LAST_SECOND = 253_402_300_799  # since the epoch, of the year 9999: no pause ends later


class DirectoryError(Exception):
    """The directory cannot be used; the text says why, in NSQ's words. The program exits 1."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What nsqd.dat holds."""

    topics: tuple[TopicEntry, ...] = ()
    ids: int = 1  # message ids below it may have been issued
    pauses: tuple[tuple[Key, Pause], ...] = ()  # some may be of nothing that is paused any more
    is_ours: bool = True  # False: somebody else wrote the topics


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

    def write_topology(self, picture: Picture) -> None:
        """Make the topology durable, unless one with a higher number was written."""
        with self._writing:
            if picture.number < self._number:
                return
            self._number = picture.number
            self._write(replace(self._written, topics=tuple(picture.topics), pauses=picture.pauses, is_ours=True))

    def close(self) -> None:
        """Unlock."""
        os.close(self._fd)

    def _write(self, metadata: Metadata) -> None:
        if metadata == self._written and (self.path / FILE).exists():
            return
        replace_file(self.path / FILE, _encode(metadata))
        self._written = metadata


def _encode(metadata: Metadata) -> bytes:
    topics = [_encode_topic(topic) for topic in metadata.topics]
    ours: dict[str, Any] = {"ids": metadata.ids, "crc": _crc(metadata.topics)}
    if metadata.pauses:
        ours["pauses"] = [
            {"topic": topic, "channel": channel, "by": pause.by, "at": pause.at, "until": pause.until}
            for (topic, channel), pause in metadata.pauses
        ]
    content = {"topics": topics, "version": NSQ_VERSION, "penstock": ours}
    return json.dumps(content, separators=(",", ":")).encode()


def _encode_topic(topic: TopicEntry) -> dict[str, Any]:
    channels = [{"name": channel.name, "paused": channel.paused} for channel in topic.channels]
    return {"name": topic.name, "paused": topic.paused, "channels": channels or None}


def _crc(topics: Iterable[TopicEntry]) -> int:
    """Of the topics' content, however the file is laid out."""
    return zlib.crc32(json.dumps([_encode_topic(topic) for topic in topics]).encode())


def _decode(text: bytes) -> Metadata:
    content = json.loads(text)
    topics = tuple(_decode_topic(topic) for topic in _named(content.get("topics")))
    ours = content.get("penstock", {})
    ids = ours.get("ids", 1)
    if not isinstance(ids, int) or ids < 1:
        raise ValueError(f"penstock.ids is {ids!r}")
    is_ours = "penstock" in content and ours.get("crc", _crc(topics)) == _crc(topics)  # versions before it wrote no crc
    return Metadata(topics, ids, _decode_pauses(ours.get("pauses")), is_ours)


def _decode_topic(topic: dict[str, Any]) -> TopicEntry:
    channels = tuple(ChannelEntry(c["name"], bool(c.get("paused"))) for c in _named(topic.get("channels")))
    return TopicEntry(topic["name"], bool(topic.get("paused")), channels)


def _decode_pauses(entries: Any) -> tuple[tuple[Key, Pause], ...]:
    """As far as they are as we write them; nobody shall be kept from starting by the others."""
    if entries is None:
        return ()
    listed = entries if isinstance(entries, list) else [entries]
    found = {pause[0]: pause for pause in map(_decode_pause, listed) if pause is not None}
    if len(found) < len(listed):
        log.warning("%s: %d entries of penstock.pauses are none, and ignored", FILE, len(listed) - len(found))
    return tuple(found.values())


def _decode_pause(entry: Any) -> tuple[Key, Pause] | None:
    """None: it is none of ours."""
    if not isinstance(entry, dict):
        return None
    topic, channel, by = (entry.get(key) for key in ("topic", "channel", "by"))
    at, until = (entry.get(key) for key in ("at", "until"))
    if not (isinstance(topic, str) and isinstance(channel, str) and isinstance(by, str)):
        return None
    if len(by) > MOST_BY or not by.isprintable():
        return None
    if type(at) is not int or type(until) is not int or not (0 <= at <= LAST_SECOND and 0 <= until <= LAST_SECOND):
        return None
    return (topic, channel), Pause(by, at, until)


def _named(entries: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Entries with a legal name; the others are left out with a warning, as by the original."""
    good = []
    for entry in entries or ():
        if is_valid_name(entry["name"]):
            good.append(entry)
        else:
            log.warning("skipping creation of invalid name %r in %s", entry["name"], FILE)
    return good
