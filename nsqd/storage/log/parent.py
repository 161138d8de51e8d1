"""The log that a log was restored from: the content of the record PARENT.

A restored log has an id of its own, because the lost one may have continued after the backup. Up to the end of the backup, both
have the same messages at the same offsets.

See docs/contributing/design/log.md#restored-logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct

from nsqd.core.records import PARENT

MOST_PARENTS = 100  # that a log remembers: the newest ones
_END = Struct(">IQ")  # topic, ordinal


@dataclass(frozen=True, slots=True)
class Parent:
    """A log, as far as another one continues it."""

    log_id: bytes  # 16 bytes
    position: int  # log position up to which both have the same records
    ends: Mapping[int, int]  # for each topic, by its number: the ordinal before which both have the same messages

    def pack(self) -> bytes:
        """Return the content of the record."""
        ends = [_END.pack(topic, end) for topic, end in sorted(self.ends.items())]
        return b"".join([PARENT.pack(self.log_id, self.position), *ends])


def unpack(content: bytes) -> Parent:
    """Return the parent in the content of a record PARENT."""
    log_id, position = PARENT.unpack_from(content)
    return Parent(log_id, position, dict(_END.iter_unpack(content[PARENT.size :])))
