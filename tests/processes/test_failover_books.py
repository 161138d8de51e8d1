"""The books of rounds of failovers find losses, and duplicates without an explanation."""

from __future__ import annotations

from collections import Counter

from tests.cases import each
from tests.processes.cluster_load import Books, Outcome
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


def test_what_is_lost_and_what_comes_twice() -> None:
    books = Books()
    books.answered(0, 2, "t", [b"a", b"b", b"c"], Outcome.ACKNOWLEDGED)
    books.came_last("t", b"id of a", b"a")
    books.came_live("t", b"id of a", b"a")
    books.came_last("other", b"id of a", b"d")  # ids are those of a topic
    assert books.lost == {b"b", b"c"}
    assert (books.twice, books.duplicates) == ([], 0)
    books.came_live("t", b"id of a", b"a")
    books.came_last("t", b"id of a", b"a")
    assert (books.twice, books.duplicates) == ([], 2)
    books.came("t", b"id of a", b"b")
    books.came("t", b"another id", b"a")
    assert len(books.twice) == 2  # one id of two contents, and one content with two ids


def books(publisher: int, before: Delivery, now: Delivery) -> DuplicateBooks:
    """Return books in which a message was delivered twice."""
    made = DuplicateBooks()
    made.note("t", b"id", b"content", publisher, before)
    made.note("t", b"id", b"content", publisher, now)
    return made


def at(kind: str, node: int, since: float, until: float = float("inf")) -> Disturbance:
    return Disturbance(kind, frozenset({node}), since, until)


FIRST, THERE, HERE = Delivery(0, 99), Delivery(1, 110), Delivery(0, 110)
STOPPED = at(STOP, 0, 100)
MOMENT = Delivery(1, 109.7)  # a moment before the node that returns delivers it again
BACK = at(RETURN, 0, 108, 112)


@each(
    "publisher, before, now, disturbances, counted, reason",
    [
        (0, Delivery(0, 99, False), THERE, [at(KILL, 0, 100)], {}, UNANSWERED),
        (0, FIRST, HERE, [at(RESTART, 0, 100, 101)], {}, UNREAD),
        (0, FIRST, HERE, [at(KILL, 0, 100)], {}, IN_FLIGHT),
        (0, FIRST, THERE, [at(KILL, 0, 100)], {}, LAST_MOMENTS),
        (2, FIRST, THERE, [at(KILL, 0, 100)], {}, OF_PROMOTED_LOG),
        (0, FIRST, THERE, [STOPPED, at(KILL, 1, 120)], {}, FORGOTTEN),
        (0, FIRST, THERE, [STOPPED], {}, ""),
        (0, Delivery(1, 99), HERE, [at(KILL, 2, 100)], {}, ""),
        # a disturbance of another node, much later, over, or of a node that does not deliver what it does not own
        (0, FIRST, THERE, [at(KILL, 1, 101, 104)], {(1, "ready_again"): 5}, ""),
        (0, FIRST, THERE, [at(KILL, 0, 160, 163)], {(1, "ready_again"): 5}, ""),
        (0, FIRST, THERE, [at(KILL, 0, 50, 53)], {(1, "ready_again"): 5}, ""),
        (0, FIRST, THERE, [at(KILL, 1, 105, 115)], {(1, "ready_again"): 5}, ""),
        # salvaged messages are counted by their node
        (0, FIRST, THERE, [STOPPED], {(1, "salvaged"): 1}, "counted as salvaged"),
        (0, FIRST, THERE, [STOPPED], {(0, "salvaged"): 1}, ""),
        (0, FIRST, THERE, [], {(1, "salvaged"): 1}, ""),
        # a node that returns may not know of its new leader yet
        (0, MOMENT, HERE, [BACK], {(0, "untold"): 1}, "counted as untold"),
        (0, MOMENT, HERE, [], {(0, "untold"): 1}, ""),
        (0, MOMENT, HERE, [BACK], {}, ""),
        (0, MOMENT, HERE, [at(RETURN, 0, 90, 95)], {(0, "untold"): 1}, ""),
    ],
)
def test_why_a_message_came_twice(
    publisher: int,
    before: Delivery,
    now: Delivery,
    disturbances: list[Disturbance],
    counted: dict[tuple[int, str], int],
    reason: str,
) -> None:
    counts, wrong = books(publisher, before, now).explained(disturbances, counted)
    assert counts == ({reason: 1} if reason else {})
    assert len(wrong) == (not reason)
    assert not wrong or f"node {before.node}" in wrong[0]


def test_a_count_explains_as_many_duplicates_as_it_says() -> None:
    made = books(0, FIRST, THERE)
    made.note("t", b"another", b"other content", 0, FIRST)
    made.note("t", b"another", b"other content", 0, THERE)
    counts, wrong = made.explained([STOPPED], {(1, "ready_again"): 1, (2, "untold"): 1})
    assert (counts, len(wrong)) == ({"counted as ready_again": 1}, 1)
    counts, wrong = made.explained([STOPPED], {(1, "ready_again"): 1, (0, "untold"): 1})
    assert (counts, wrong) == ({"counted as ready_again": 1, "counted as untold": 1}, [])
    made = DuplicateBooks()
    for _ in range(3):
        made.came_last("t", b"id", b"content")
    counts, wrong = made.explained([], {(0, "moved_all"): 1, (0, "untold"): 9})
    assert (counts, len(wrong)) == ({"kept messages, counted as moved_all": 1}, 1), "it must have moved"
    assert made.duplicates == 2


def test_what_a_job_worker_and_a_consumer_got_is_known_by_id_and_publisher() -> None:
    made = DuplicateBooks()
    made.answered(1, 2, "t", [b"1.x", b"1.y", b"1.z"], Outcome.ACKNOWLEDGED)
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
    for run, log_id, ready_again, given_up in (
        (10, "a", 2, 1),
        (0, "", 0, 0),  # the round begins
        (10, "a", 5, 1),
        (10, "b", 4, 1),  # another log
        (11, "b", 1, 0),  # another run
        (11, "", 9, 9),  # it is about to serve
    ):
        if not run:
            counts.begin_round()
        failovers, led = {"possible_duplicates": {"ready_again": ready_again}}, [{"log_id": log_id}] if log_id else []
        counts.add(1, run, {"led": led, "failovers": failovers, "copies": {"replies_given_up": given_up}})
    counts.add(1, 12, {})
    assert (counts.counted, counts.given_up) == (Counter({(1, "ready_again"): 8}), 1)
    assert "median 2.0 s, longest 9.0 s of 3" in times([9.0, 1.0, 2.0])
    assert "not measured" in times([])
