"""Offsets of many topics, most of which are idle: the batch names those that change, and a file has the others.

Spark stores the offsets of all topics with each batch. With the option offsetsLocation a batch names a file there, which has
the positions at one time, and those that have changed since:

    {"base": "00000007-c0ffee42.json", "orders/617": {"log": "c0ffee..", "next": 17}, "v": 1}

When these are many, and few of them change in a batch, the next file is written. A file never changes.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from typing import Any

from penstock.spark.offsets import LogPosition, NodeTopic, OffsetError, decode, encode
from penstock.spark.staging import sync_directory

FEW = 64  # positions that a batch names before a file is written for them
FACTOR = 4  # as many positions as change in a batch may be named in addition
KEPT = 1000  # files: more than Spark keeps batches (spark.sql.streaming.minBatchesToRetain is 100)
BASE = "base"
_NAME = re.compile(r"\d{8,}-[0-9a-f]{8}\.json")
Positions = dict[NodeTopic, LogPosition]


class OffsetFiles:
    """Converts positions to the offsets that Spark stores, and back. It belongs to one process."""

    def __init__(self, directory: str) -> None:
        """`directory`: where the files are; "": all positions are in the offsets."""
        self._directory = directory
        self._name, self._base = "", Positions()  # the file that was read or written last

    def load(self, stored: Mapping[str, Any]) -> Positions:
        """Return the positions of offsets. Raises OffsetError."""
        named = dict(stored)
        name = named.pop(BASE, "")
        gone = [key for key, value in named.items() if value is None]
        found = {**self._file(name), **decode({key: value for key, value in named.items() if value is not None})}
        return {place: at for place, at in found.items() if str(place) not in gone} if gone else found

    def store(self, positions: Positions, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the offsets that Spark stores. `before`: those of the batch before; None: it is the first. Raises OSError."""
        begin = self.load(before) if before is not None else {}
        if before is not None and begin == positions:
            return dict(before)
        if not self._directory:
            return encode(positions)
        name = str(before.get(BASE, "")) if before is not None else ""
        named = _changes(self._file(name), positions)
        if len(named) > FEW + FACTOR * len(_changes(begin, positions) if before is not None else ()):
            name, named = self._write(positions), {}
        changed = encode({place: at for place, at in named.items() if at is not None})
        gone = {str(place): None for place, at in named.items() if at is None}
        return dict(sorted((changed | gone | ({BASE: name} if name else {})).items()))

    def _file(self, name: str) -> Positions:
        if name and name != self._name:
            path = os.path.join(self._directory, os.path.basename(name))
            try:
                with open(path, encoding="utf-8") as file:
                    self._name, self._base = name, decode(json.load(file))
            except (OSError, ValueError) as error:
                raise OffsetError(
                    f"option offsetsLocation={self._directory!r} belongs to the checkpoint: {error}"
                ) from None
        return self._base if name else {}

    def _write(self, positions: Positions) -> str:
        """Write a new file durably, remove those that no batch names, and return the name."""
        os.makedirs(self._directory, exist_ok=True)
        names = sorted(name for name in os.listdir(self._directory) if _NAME.fullmatch(name))
        # Not even a second query in the directory writes a file that is there.
        name = f"{int(names[-1].partition('-')[0]) + 1 if names else 0:08d}-{secrets.token_hex(4)}.json"
        path = os.path.join(self._directory, name)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(encode(positions), file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{path}.new", path)
        sync_directory(self._directory)
        for old in names[:-KEPT]:
            os.remove(os.path.join(self._directory, old))
        self._name, self._base = name, dict(positions)
        return name


def _changes(before: Positions, after: Positions) -> dict[NodeTopic, LogPosition | None]:
    """Return the positions that are not the same; None: the place is gone."""
    changed: dict[NodeTopic, LogPosition | None] = {place: at for place, at in after.items() if before.get(place) != at}
    return changed | dict.fromkeys(before.keys() - after.keys())
