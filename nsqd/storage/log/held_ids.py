"""The message ids that a log holds: those of messages that a reader has not finished or the topic retains.

A log may hold ids of several node numbers: it was restored for another node, or its node had another number before. Each
segment says under which number the messages in it were published, and within a topic their ids ascend. So two records of each
topic and number are read.
"""

from __future__ import annotations

from itertools import chain

from nsqd.core.message.frame import message_id, split
from nsqd.core.message.id_ranges import NO_END, IdRange
from nsqd.core.message.ids import SEQUENCE
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.files import SegmentFiles
from nsqd.storage.log.locations import read_publishes
from nsqd.storage.log.store import LogStore
from nsqd.storage.stored_extent import Location


def held_ids(store: LogStore, disk: Disk, files: SegmentFiles, own: int, next_id: int) -> list[IdRange]:
    """Return the ranges of ids that the log holds or may issue, by node number. Raises OSError.

    `own`: the number under which the node issues ids; `next_id`: the sequence of the next one.
    """
    found: dict[int, list[int]] = {own: [next_id]}  # ids as numbers, lowest and highest of each topic, by node number
    for topic in store.logged():
        for node, (first, last) in _ends(store, files, topic).items():
            ids = _ids_in(disk, files, topic, first) + (_ids_in(disk, files, topic, last) if last != first else [])
            found.setdefault(node, []).extend([min(ids), max(ids)] if ids else [0, next_id - 1])
    return [IdRange(node, min(ids), NO_END if node == own else max(ids) + 1) for node, ids in sorted(found.items())]


def _ends(store: LogStore, files: SegmentFiles, topic: int) -> dict[int, tuple[Location, Location]]:
    """Return the locations of the topic's first and last messages that are unfinished or retained, by node number."""
    found: dict[int, tuple[Location, Location]] = {}
    if (sequence := store.find_sequence(topic)) is None:
        return found
    for stored in sorted(chain(sequence.all_retained(), sequence.live()), key=lambda stored: stored.first):
        for location in stored.locations:
            node = files.at(location[0]).node
            first, _ = found.get(node, (location, location))
            found[node] = first, location
    return found


def _ids_in(disk: Disk, files: SegmentFiles, topic: int, location: Location) -> list[int]:
    """Return the sequences of the topic's messages in a location; none if they are corrupt or missing. Raises OSError."""
    try:
        data, found = read_publishes(disk, files.at(location[0]), location, topic)
    except FileNotFoundError:
        return []
    return [
        int(message_id(frame), 16) & SEQUENCE
        for published in found
        if published is not None
        for frame in split(data, published[4], published[5], published[1], published[2])
    ]
