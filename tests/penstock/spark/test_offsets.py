"""How far queries have read: encoding, clipping and splitting. No Spark, no node."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.offsets import At, OffsetError, Place, There, clipped, decode, encode, ends, spans

A, B = Place("a", "1"), Place("b.c", "22")
places = st.builds(Place, st.sampled_from(["a", "b", "c#ephemeral"]), st.sampled_from(["1", "2"]))
offsets = st.dictionaries(places, st.builds(At, st.just("x"), st.integers(0, 100)), max_size=5)


@given(offsets)
def test_what_is_encoded_is_decoded(given_offsets: dict[Place, At]) -> None:
    told = encode(given_offsets)
    assert decode(json.loads(json.dumps(told))) == given_offsets
    assert list(told)[:-1] == sorted(told.keys() - {"v"})  # Spark compares the text


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({}, "version None"),
        ({"v": 2}, "version 2"),
        ({"v": 1, "index": 3}, "not of this source: 'index'"),
        ({"v": 1, "a/1": {"next": 3}}, "not of this source"),
        ({"v": 1, "a/1": {"log": "x", "next": "many"}}, "not of this source"),
    ],
)
def test_a_foreign_checkpoint_is_refused(told: dict[str, object], why: str) -> None:
    with pytest.raises(OffsetError, match=why):
        decode(told)


def test_who_does_not_answer_stays_and_who_is_new_begins_at_the_earliest() -> None:
    start = {A: At("x", 7)}
    there = {B: There("h:1", "y", 3, 9, 100)}
    end = ends(start, there)
    assert end == {A: At("x", 7), B: At("y", 9)}
    (span,) = spans(start, end, {B: 3})
    assert (span.place, span.log, span.first, span.end) == (B, "y", 3, 9)


def test_another_log_is_read_from_its_beginning() -> None:
    (span,) = spans({A: At("x", 7)}, {A: At("y", 5)}, {A: 2})
    assert (span.log, span.first, span.end) == ("y", 2, 5)
    assert spans({A: At("x", 7)}, {A: At("x", 5)}, {}) == []  # start beyond end: nothing


@given(offsets, offsets, st.integers(1, 300))
def test_clipping_gives_no_more_than_was_asked_for_and_never_goes_back(
    start: dict[Place, At], more: dict[Place, At], most: int
) -> None:
    end = dict(start)
    for place, at in more.items():
        before = start.get(place)
        end[place] = At("x", at.next + (before.next if before is not None else 0))
    cut = clipped(start, end, {}, most)
    taken = sum(span.end - span.first for span in spans(start, cut, {}))
    everything = sum(span.end - span.first for span in spans(start, end, {}))
    assert taken == min(most, everything)
    for place, at in cut.items():
        assert start.get(place, At("x", 0)).next <= at.next <= end[place].next
    assert cut.keys() >= start.keys()


@given(offsets, st.integers(0, 20))
def test_parts_are_the_whole(end: dict[Place, At], least: int) -> None:
    parts = spans({}, end, {}, least)
    for place, at in end.items():
        mine = [part for part in parts if part.place == place]
        numbers = [number for part in mine for number in range(part.first, part.end)]
        assert numbers == list(range(at.next))
    total = sum(at.next for at in end.values())
    if total >= least:
        assert len(parts) >= min(least, total) or not total
