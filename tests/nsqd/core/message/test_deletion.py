"""For which copies of a log a deletion holds."""

from nsqd.core.message.deletion import LogDeletions
from nsqd.core.message.epoch import Epoch

A, B, C = Epoch(1, 0, b"a" * 8), Epoch(101, 1, b"b" * 8), Epoch(1, 0, b"c" * 8)


def test_a_deletion_holds_for_copies_that_diverged_at_its_point_and_for_no_others() -> None:
    deletions = LogDeletions(A, 50, ())
    assert deletions.holds_for([(A, 0), (B, 50)])
    assert deletions.holds_for([(A, 0), (B, 50), (Epoch(201, 2, b"d" * 8), 70)])
    deletions = LogDeletions(A, 50, ())
    assert not deletions.holds_for([(A, 0), (B, 49)]), "it has less"
    assert not deletions.holds_for([(A, 0), (B, 51)]), "it has more"
    assert not deletions.holds_for([(C, 0), (B, 50)])
    assert not deletions.holds_for([(A, 0)]), "no node has promoted it"
    assert not deletions.holds_for([])
