"""Whether a batch may be committed, decided by the offsets that the table has. Pure."""

import pytest

from penstock.lake.progress import Advance, Overlap, is_done, log_id
from penstock.spark.offsets import NodeTopic
from tests.cases import each

A, B = NodeTopic("a", "1"), NodeTopic("b", "1")
NEW, MORE = Advance(A, "x", None, 3, 9), Advance(B, "y", 5, 5, 8)  # a log that the table does not have, and one up to 5


@each("at_a, at_b, done", [
    (None, 5, False), (9, 8, True), (12, 8, True),  # to be committed; committed already, or by an archive that is ahead
])  # fmt: skip
def test_a_batch_follows_or_is_there(at_a: int | None, at_b: int | None, done: bool) -> None:
    assert is_done([NEW, MORE], {log_id(A, "x"): at_a, log_id(B, "y"): at_b}.get) is done


@each("at_a, at_b", [
    (None, 8), (9, 5),  # one of two logs is there: the other archive has batches of its own
    (4, 5), (None, 6), (None, 4), (None, None), (3, 5),
])  # fmt: skip
def test_another_archive_is_refused(at_a: int | None, at_b: int | None) -> None:
    with pytest.raises(Overlap, match="another archive writes to this lake: it has"):
        is_done([NEW, MORE], {log_id(A, "x"): at_a, log_id(B, "y"): at_b}.get)


def test_what_was_lost_may_be_skipped_and_nothing_may_come_twice() -> None:
    """A batch may begin later than the table ends, where retention was faster, and never before."""
    table = {log_id(A, "x"): 5}.get
    assert not is_done([Advance(A, "x", 5, 7, 9)], table)
    with pytest.raises(Overlap):
        is_done([Advance(A, "x", 5, 4, 9)], table)


def test_a_batch_without_messages_is_not_done() -> None:
    assert not is_done([], {}.get)
    assert is_done([Advance(A, "x", None, 4, 4)], {log_id(A, "x"): 4}.get)
