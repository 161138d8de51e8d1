"""How far queries have read: encoding, clipping and splitting. No Spark, no node."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.offsets import (
    PROMOTED,
    REPLICA,
    LogPosition,
    NodeTopic,
    OffsetError,
    TopicRange,
    clipped,
    decode,
    encode,
    ends,
    holder_for,
    is_behind,
    moved,
    old_log,
    older_logs,
    packed,
    spans,
)
from tests.cases import each

A, B = NodeTopic("a", "1"), NodeTopic("b.c", "22")
places = st.builds(NodeTopic, st.sampled_from(["a", "b", "c#ephemeral"]), st.sampled_from(["1", "2"]))
offsets = st.dictionaries(places, st.builds(LogPosition, st.just("x"), st.integers(0, 100)), max_size=5)


@given(offsets)
def test_what_is_encoded_is_decoded(given_offsets: dict[NodeTopic, LogPosition]) -> None:
    stored = encode(given_offsets)
    assert decode(json.loads(json.dumps(stored))) == given_offsets
    assert list(stored)[:-1] == sorted(stored.keys() - {"v"})  # Spark compares the text


@each("stored, why", [
    ({}, "version None"), ({"v": 2}, "version 2"), ({"v": 1, "index": 3}, "not of this source: 'index'"),
    ({"v": 1, "a/1": {"next": 3}}, "not of this source"),
    ({"v": 1, "a/1": {"log": "x", "next": "many"}}, "not of this source"),
])  # fmt: skip
def test_a_foreign_checkpoint_is_refused(stored: dict[str, object], why: str) -> None:
    with pytest.raises(OffsetError, match=why):
        decode(stored)


def test_who_is_new_or_has_another_log_is_read_from_the_beginning() -> None:
    start = {A: LogPosition("x", 7)}
    ranges = {B: TopicRange("h:1", "y", 3, 9)}
    end = ends(start, ranges)
    assert end == {A: LogPosition("x", 7), B: LogPosition("y", 9)}
    (span,) = spans(start, end, {B: 3})
    assert (span.place, span.log, span.first, span.end) == (B, "y", 3, 9)
    (span,) = spans({A: LogPosition("x", 7)}, {A: LogPosition("y", 5)}, {A: 2})
    assert (span.log, span.first, span.end) == ("y", 2, 5)
    assert spans({A: LogPosition("x", 7)}, {A: LogPosition("x", 5)}, {}) == []  # start beyond end: nothing


@given(offsets, st.integers(1, 9))
def test_packed_spans_are_the_same_in_few_groups(end: dict[NodeTopic, LogPosition], most: int) -> None:
    whole = spans({}, end, {})
    groups = packed(whole, most)
    assert [span for group in groups for span in group] == whole
    assert len(groups) <= most
    assert all(groups)


def test_a_restored_log_is_read_from_where_its_parent_was_left() -> None:
    """The node was restored twice: y ended at 9 when x was made of it, and z at 5 when y was."""
    ranges = {A: TopicRange("h:1", "x", 2, 20, (("z", 5), ("y", 9)))}
    end = {A: LogPosition("x", 20)}
    for at, moves in (("y", 9), True), (("y", 10), False), (("z", 5), True), (("z", 6), False), (("w", 1), False):
        start = {A: LogPosition(*at)}
        assert moved(start, end, ranges) == ({A: LogPosition("x", at[1])} if moves else start)
        assert ranges[A].continues(start[A]) is moves
        assert moved(start, end, {}) == moved(start, {}, ranges) == start, "nothing is known of the node"
    # a batch that was planned when the node had been restored once
    assert moved({A: LogPosition("z", 5)}, {A: LogPosition("y", 9)}, ranges) == {A: LogPosition("y", 5)}
    assert moved({A: LogPosition("z", 5)}, {A: LogPosition("y", 10)}, ranges) == {A: LogPosition("z", 5)}


@given(offsets, offsets, st.integers(1, 300))
def test_clipping(start: dict[NodeTopic, LogPosition], more: dict[NodeTopic, LogPosition], most: int) -> None:
    end = dict(start)
    for place, at in more.items():
        before = start.get(place)
        end[place] = LogPosition("x", at.next + (before.next if before is not None else 0))
    cut = clipped(start, end, {}, most)
    taken = sum(span.end - span.first for span in spans(start, cut, {}))
    everything = sum(span.end - span.first for span in spans(start, end, {}))
    assert taken == min(most, everything)
    for place, at in cut.items():
        assert start.get(place, LogPosition("x", 0)).next <= at.next <= end[place].next
    assert cut.keys() >= start.keys()


@given(offsets, st.integers(0, 20))
def test_parts_are_the_whole(end: dict[NodeTopic, LogPosition], least: int) -> None:
    parts = spans({}, end, {}, least)
    for place, at in end.items():
        mine = [part for part in parts if part.place == place]
        numbers = [number for part in mine for number in range(part.first, part.end)]
        assert numbers == list(range(at.next))
    total = sum(at.next for at in end.values())
    if total >= least:
        assert len(parts) >= min(least, total) or not total


# the log "old" of a node that was lost, up to 20 at its new leader; the node has published into "new" from 20 on since then
AT_NEW_LEADER = TopicRange("new_leader", "old", 0, 20, (), PROMOTED)
RETURNED = TopicRange("node", "new", 20, 30, (("old", 25),))


def test_a_reader_finishes_the_old_log_before_it_goes_on_in_the_new_one() -> None:
    before, drained, beyond = LogPosition("old", 7), LogPosition("old", 20), LogPosition("old", 23)
    assert is_behind(before, None)
    assert is_behind(before, RETURNED)
    assert not is_behind(drained, RETURNED)
    assert not is_behind(beyond, RETURNED), "the new log has the end that its new leader lacks"
    assert not is_behind(LogPosition("new", 22), RETURNED)
    assert old_log(before, None, [RETURNED, AT_NEW_LEADER]) == AT_NEW_LEADER
    assert old_log(drained, None, [AT_NEW_LEADER]) is None
    longer = TopicRange("third", "old", 0, 24, (), REPLICA)
    left = old_log(before, RETURNED, [longer])
    assert left.next == 20, "what follows is the new log's"


def test_a_reader_that_missed_whole_logs_of_a_node_reads_them_in_turn() -> None:
    """The node was lost three times: "old" ended at 20, "middle" has 20 to 25, "late" 25 to 30."""
    now = TopicRange("node", "now", 30, 40, (("old", 20), ("middle", 25), ("late", 30)))
    middle = TopicRange("new_leader", "middle", 20, 27, (("old", 20),), PROMOTED)
    drained = LogPosition("old", 20)
    assert is_behind(drained, now)
    assert older_logs(LogPosition("old", 7), now) == ["old", "middle", "late"]
    assert older_logs(drained, now) == ["old", "middle", "late"]
    assert older_logs(LogPosition("middle", 25), now) == ["middle", "late"]
    assert older_logs(drained, None) == older_logs(drained, TopicRange("node", "other", 0, 9)) == ["old"]
    left = old_log(LogPosition("middle", 20), now, [AT_NEW_LEADER, middle])
    assert (left.log, left.next) == ("middle", 25), "the node took its end from there into the next log"
    assert old_log(LogPosition("middle", 7), now, [middle]) is None, "the old log is first"


def test_a_message_is_read_from_its_owner_before_a_replica_and_where_it_is() -> None:
    replica = TopicRange("a replica", "old", 0, 20, (), REPLICA)
    assert holder_for(LogPosition("old", 19), [replica, AT_NEW_LEADER]) == AT_NEW_LEADER
    assert holder_for(LogPosition("old", 19), [RETURNED, replica]) == replica
    assert holder_for(LogPosition("old", 20), [replica, AT_NEW_LEADER, RETURNED]) == RETURNED
    assert holder_for(LogPosition("old", 25), [replica, AT_NEW_LEADER, RETURNED]) is None, "the parent ends there"
    assert holder_for(LogPosition("new", 29), [RETURNED]) == RETURNED
    assert holder_for(LogPosition("other", 0), [replica, AT_NEW_LEADER, RETURNED]) is None
