"""The durable state of batches: the part that a log which begins with the tail of another one keeps, and after a restart."""

from nsqd.core.batches.table import BatchState, BatchTable, FollowUp, NamedBatch, pack_batch, pack_follow_up
from nsqd.core.message.attributes import Attributes
from nsqd.core.records import RecordKind

MEMBER = Attributes((("batch", "b"),)).pack(0)


def table() -> BatchTable:
    """Return a batch with members 5 to 8 and 10 of topic 1, 3 of topic 2, and two follow-ups."""
    found = BatchTable()
    for name in ("b", "other"):
        found.apply(RecordKind.BATCH, pack_batch(NamedBatch(name, 7, 7), BatchState.OPEN))
        for number in (0, 1):
            found.apply(RecordKind.FOLLOW_UP, pack_follow_up(name, number, FollowUp("t", b"x", Attributes())))
    for topic, first, count in ((1, 5, 2), (1, 7, 2), (1, 10, 1), (2, 3, 1)):
        found.note_published(MEMBER, topic, first, count, 8)
    return found


def test_members_that_follow_each_other_are_one_run() -> None:
    found = table()
    assert [list(spans) for spans in found.known["b"].members.values()] == [[5, 9, 10, 11], [3, 4]]
    assert (found.known["b"].count, found.spans, found.known["b"].changed) == (6, 3, 8)
    assert list(found.known["b"].ordinals()) == [(1, 5), (1, 6), (1, 7), (1, 8), (1, 10), (2, 3)]


def test_a_tail_has_its_own_members_and_follow_ups() -> None:
    found = table()
    found.keep_tail({1: 7, 3: 0}, {("b", 1)})
    assert list(found.known) == ["b"]
    assert [*found.known["b"].ordinals()] == [(1, 7), (1, 8), (1, 10)]
    assert (found.known["b"].count, found.spans, list(found.known["b"].follow_ups)) == (3, 2, [1])


def test_topics_that_are_gone_have_no_members() -> None:
    found = table()
    found.drop_topic(1)
    found.keep_topics([1])
    assert (found.known["b"].members, found.spans, found.known["b"].count) == ({}, 0, 6)


def test_a_dump_leaves_out_what_has_gone_since_it_began() -> None:
    found = table()
    records = found.dump()
    first = [next(records), next(records)]
    found.apply(RecordKind.BATCH, pack_batch(found.known["b"], BatchState.FORGOTTEN))
    del found.known["other"].follow_ups[0]
    again = BatchTable()
    for kind, content in [*first, *records]:
        again.apply(kind, content)
    assert [(name, list(batch.follow_ups)) for name, batch in again.known.items()] == [("b", [0]), ("other", [1])]
