"""The books of rounds of failovers tell which duplicate is not explained."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.processes.cluster_load import Fate
from tests.processes.failover_books import (
    FORGOTTEN,
    IN_FLIGHT,
    KILL,
    LAST_MOMENTS,
    OF_PROMOTED_LOG,
    RESTART,
    RETURN,
    UNANSWERED,
    UNREAD,
    Counts,
    Delivery,
    Disturbance,
    DuplicateBooks,
    times,
)

STOP = "a stop"


def books(publisher: int, before: Delivery, now: Delivery) -> DuplicateBooks:
    """Return books in which a message has come twice."""
    made = DuplicateBooks()
    made.note("t", b"id", b"content", publisher, before)
    made.note("t", b"id", b"content", publisher, now)
    return made


def test_a_duplicate_without_a_disturbance_near_it_is_not_explained() -> None:
    made = books(0, Delivery(0, 100), Delivery(1, 110))
    for far in (
        Disturbance(KILL, frozenset({1}), 101, 104),  # another node
        Disturbance(KILL, frozenset({0}), 160, 163),  # much later
        Disturbance(KILL, frozenset({0}), 50, 53),  # over
        Disturbance(KILL, frozenset({1}), 105, 115),  # a node that was killed does not deliver what it does not own
    ):
        counts, wrong = made.explained([far], {(1, "ready_again"): 5})
        assert (counts, len(wrong)) == ({}, 1)
    assert "node 0" in wrong[0]


@pytest.mark.parametrize(
    ("publisher", "before", "now", "disturbances", "reason"),
    [
        (0, Delivery(0, 99, False), Delivery(1, 110), [Disturbance(KILL, frozenset({0}), 100)], UNANSWERED),
        (0, Delivery(0, 99), Delivery(0, 110), [Disturbance(RESTART, frozenset({0}), 100, 101)], UNREAD),
        (0, Delivery(0, 99), Delivery(0, 110), [Disturbance(KILL, frozenset({0}), 100)], IN_FLIGHT),
        (0, Delivery(0, 99), Delivery(1, 110), [Disturbance(KILL, frozenset({0}), 100)], LAST_MOMENTS),
        (2, Delivery(0, 99), Delivery(1, 110), [Disturbance(KILL, frozenset({0}), 100)], OF_PROMOTED_LOG),
        (
            0, Delivery(0, 99), Delivery(1, 110),
            [Disturbance(STOP, frozenset({0}), 100), Disturbance(KILL, frozenset({1}), 120)], FORGOTTEN,
        ),
        (0, Delivery(0, 99), Delivery(1, 110), [Disturbance(STOP, frozenset({0}), 100)], ""),
        (0, Delivery(1, 99), Delivery(0, 110), [Disturbance(KILL, frozenset({2}), 100)], ""),
    ],
)  # fmt: skip
def test_what_no_node_counts(
    publisher: int, before: Delivery, now: Delivery, disturbances: list[Disturbance], reason: str
) -> None:
    counts, wrong = books(publisher, before, now).explained(disturbances, {})
    assert counts == ({reason: 1} if reason else {})
    assert len(wrong) == (not reason)


def test_a_count_explains_as_many_duplicates_as_it_says() -> None:
    made = books(0, Delivery(0, 99), Delivery(1, 110))
    made.note("t", b"another", b"other content", 0, Delivery(0, 99))
    made.note("t", b"another", b"other content", 0, Delivery(1, 110))
    stop = [Disturbance(STOP, frozenset({0}), 100)]
    counts, wrong = made.explained(stop, {(1, "ready_again"): 1, (2, "untold"): 1})
    assert (counts, len(wrong)) == ({"counted as ready_again": 1}, 1)
    counts, wrong = made.explained(stop, {(1, "ready_again"): 1, (0, "untold"): 1})
    assert (counts, wrong) == ({"counted as ready_again": 1, "counted as untold": 1}, [])


def test_what_a_node_has_salvaged_is_counted_by_that_node() -> None:
    made = books(0, Delivery(0, 99), Delivery(1, 110))
    cut = [Disturbance("a partition", frozenset({0}), 100)]
    assert made.explained(cut, {(1, "salvaged"): 1}) == ({"counted as salvaged": 1}, [])
    for disturbances, counted in ((cut, {(0, "salvaged"): 1}), ([], {(1, "salvaged"): 1})):
        assert len(made.explained(disturbances, counted)[1]) == 1


def test_a_node_that_returns_may_not_know_of_its_new_leader_yet() -> None:
    made = books(0, Delivery(1, 109.7), Delivery(0, 110))
    back = Disturbance(RETURN, frozenset({0}), 108, 112)
    assert made.explained([back], {(0, "untold"): 1}) == ({"counted as untold": 1}, [])
    for others, counted in (([], {(0, "untold"): 1}), ([back], {}), ([Disturbance(RETURN, back.nodes, 90, 95)], {})):
        assert len(made.explained(others, counted)[1]) == 1


def test_a_message_that_was_kept_twice_must_have_moved() -> None:
    made = DuplicateBooks()
    for _ in range(3):
        made.came_last("t", b"id", b"content")
    counts, wrong = made.explained([], {(0, "moved_all"): 1, (0, "untold"): 9})
    assert (counts, len(wrong)) == ({"kept messages, counted as moved_all": 1}, 1)
    assert made.duplicates == 2


def test_what_a_job_worker_and_a_consumer_got_is_known_by_id_and_publisher() -> None:
    made = DuplicateBooks()
    made.answered(1, 2, "t", [b"1.x", b"1.y", b"1.z"], Fate.ACKNOWLEDGED)
    made.was_killed(1)
    made.finished_at(0, "t", b"0001000000000007", b"1.x")
    made.worked_at(2, b"%d" % ((1 << 48) + 7), b"1.y", is_deleted=True)
    assert made.again == []
    assert len(made.waits) == 1  # until the first one
    assert made.never_came_live() == [b"1.z"]
    made.worked_at(1, b"%d" % ((1 << 48) + 7), b"1.y", is_deleted=True)
    assert [(one.publisher, one.before.node, one.now.node) for one in made.again] == [(1, 2, 1)]


def test_counts_of_each_run_and_log_of_a_node_are_added() -> None:
    counts = Counts()

    def add(run: int, log_id: str, ready_again: int, given_up: int) -> None:
        led = [{"log_id": log_id}] if log_id else []
        failovers = {"possible_duplicates": {"ready_again": ready_again}}
        counts.add(1, run, {"led": led, "failovers": failovers, "copies": {"replies_given_up": given_up}})

    add(10, "a", 2, 1)
    counts.begin_round()
    add(10, "a", 5, 1)
    add(10, "b", 4, 1)  # another log
    add(11, "b", 1, 0)  # another run
    add(11, "", 9, 9)  # it is about to serve
    counts.add(1, 12, {})
    assert (counts.counted, counts.given_up) == (Counter({(1, "ready_again"): 8}), 1)


def test_times_are_told_by_their_median_and_the_longest() -> None:
    assert "median 2.0 s, longest 9.0 s of 3" in times([9.0, 1.0, 2.0])
    assert "not measured" in times([])
