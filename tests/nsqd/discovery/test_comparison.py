"""The names that an nsqlookupd lacks, by its counts: pure."""

import pytest

from nsqd.discovery.comparison import PART, Comparison, Inventory, Name

NAMES: list[Name] = [("a", None), ("b", "x"), ("b", "y")]
HAS = Inventory(NAMES)


@pytest.mark.parametrize("counts", [(1, 2), (2, 1), (0, 0)])
def test_what_is_missing_for_the_grace_is_registered_again(counts: tuple[int, int]) -> None:
    """A topic that nsqadmin is deleting is missing at the nsqlookupd for a moment before it is gone here, too."""
    comparison = Comparison(3.0)
    assert comparison.missing(HAS, counts, 15.0) == ()
    assert comparison.doubts
    assert (comparison.missing(HAS, counts, 17.9), comparison.missing(HAS, counts, 18.0)) == ((), NAMES)
    assert not comparison.doubts


def test_a_deletion_that_arrives_within_the_grace_is_not_undone() -> None:
    comparison = Comparison(3.0)
    assert comparison.missing(HAS, (1, 0), 15.0) == ()
    assert comparison.missing(Inventory(NAMES[:1]), (1, 0), 18.0) == ()
    assert not comparison.doubts
    assert comparison.missing(HAS, (1, 0), 33.0) == ()  # a new grace


def test_names_that_are_refused_are_not_all_sent_with_each_ping() -> None:
    comparison = Comparison(0.0)
    names: list[Name] = [(f"t{i}", None) for i in range(2 * PART + 1)]
    assert comparison.missing(Inventory(names), (PART, 0), 15.0) == names
    assert [len(comparison.missing(Inventory(names), (PART, 0), 30.0)) for _ in range(4)] == [PART, PART, 1, PART]
    assert comparison.missing(Inventory(names), (PART - 1, 0), 60.0) == names  # one more is missing now


def test_an_original_gets_each_name_again_in_turn() -> None:
    comparison = Comparison()
    names: list[Name] = [(f"t{i}", "c") for i in range(2 * PART + 1)]
    sent = [list(comparison.missing(Inventory(names), None, 15.0 * i)) for i in range(4)]
    assert (sent[0] + sent[1] + sent[2], sent[3]) == (names, names[:PART])
    assert comparison.missing(Inventory([]), None, 75.0) == []
    assert not comparison.doubts
