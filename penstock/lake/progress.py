"""How far the table has each log of each topic, and whether a batch may follow. Pure.

The table keeps for each log the offset after its last message, as an application transaction of Delta: it changes in the commit
that adds the messages. Delta's library checks neither replays nor order, so a commit is preceded by `is_done`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.lake.location import LakeError
from penstock.spark.offsets import NodeTopic

KNOWN = 1  # version of the application transaction of a topic on a node, whatever its log


class Overlap(LakeError):
    """Another archive writes to the table."""


def log_id(place: NodeTopic, log: str) -> str:
    """Return the name of the application transaction that has the next offset of a log."""
    return f"{place_id(place)}/{log}"


def place_id(place: NodeTopic) -> str:
    """Return the name of the application transaction that says that the table has messages of a topic on a node."""
    return f"penstock/{place.topic}/{place.node}"


@dataclass(frozen=True, slots=True)
class Advance:
    """The messages of one log that a batch adds: the offsets `first` up to `end`."""

    place: NodeTopic
    log: str
    # the next offset of the log in the table before the batch; None: the table does not have the log
    follows: int | None
    first: int
    end: int

    def __str__(self) -> str:
        return f"offsets {self.first} to {self.end} of {self.place}"


def is_done(advances: Iterable[Advance], next_of: Callable[[str], int | None]) -> bool:
    """Return True if the table has the batch already, and False if the batch may be committed now.

    `next_of` returns the version of an application transaction of the table. Raises Overlap if the table is neither where it
    was when the batch was planned nor at its end.
    """
    found = [(one, next_of(log_id(one.place, one.log))) for one in advances]
    if found and all(at is not None and at >= one.end for one, at in found):
        return True
    for one, at in found:
        if at != one.follows or (at is not None and one.first < at):
            has = "nothing of the log" if at is None else f"the log up to {at}"
            raise Overlap(f"another archive writes to this lake: it has {has}, and {one} came now. Stop one of the two")
    return False
