"""Functions on spans (first, end) of a sequence, where `end` is excluded."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def without(first: int, end: int, holes: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of first..end that are in no hole. The holes must be ascending and disjoint."""
    for start, stop in holes:
        if stop <= first or start >= end:
            continue
        if first < start:
            yield first, start
        first = stop
    if first < end:
        yield first, end


def united(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ascending spans that may overlap into disjoint ones."""
    found: list[tuple[int, int]] = []
    for first, end in spans:
        if found and first < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found


def runs(ordinals: Iterable[int]) -> list[tuple[int, int]]:
    """Join ordinals, which may be in any order but not twice there, into ascending spans."""
    found: list[tuple[int, int]] = []
    for ordinal in sorted(ordinals):
        if found and ordinal == found[-1][1]:
            found[-1] = found[-1][0], ordinal + 1
        else:
            found.append((ordinal, ordinal + 1))
    return found


def overlap(spans: list[tuple[int, int]], others: list[tuple[int, int]]) -> int:
    """Count the ordinals that are in both lists, each of which must be ascending and disjoint."""
    total = place = 0
    for first, end in others:
        while place < len(spans) and spans[place][1] <= first:
            place += 1
        at = place
        while at < len(spans) and spans[at][0] < end:
            total += min(end, spans[at][1]) - max(first, spans[at][0])
            at += 1
    return total


def remove(entries: dict[int, T], first: int, end: int) -> None:
    """Remove the entries whose ordinals are in first..end."""
    ordinals = range(first, end) if end - first < len(entries) else [one for one in entries if first <= one < end]
    for ordinal in ordinals:
        entries.pop(ordinal, None)
