"""The books of rounds of failovers find losses, and duplicates without an explanation."""

from tests.cases import each
from tests.processes.cluster_load import Books, Outcome
from tests.processes.failover_books import (
    ANY_NODE,
    COUNTED,
    KILL,
    NOT_COUNTED,
    PAUSE,
    RESTART,
    RETURN,
    Counts,
    Delivery,
    Disturbance,
    Duplicate,
    DuplicateBooks,
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


def at(kind: str, node: int, since: float, until: float = float("inf")) -> Disturbance:
    return Disturbance(kind, frozenset({node}), since, until)


FIRST, THERE, HERE = Delivery(0, 99), Delivery(1, 110), Delivery(0, 110)
STOPPED = at(STOP, 0, 100)
MOMENT = Delivery(1, 109.7)  # a moment before the node that returns delivers it again
BACK = at(RETURN, 0, 108, 112)


@each("publisher, before, now, disturbances, kind", [
    (0, Delivery(0, 99, False), THERE, [STOPPED], NOT_COUNTED), (0, FIRST, HERE, [at(RESTART, 0, 100, 101)], NOT_COUNTED),
    (0, FIRST, HERE, [at(KILL, 0, 100)], NOT_COUNTED), (2, FIRST, THERE, [STOPPED], NOT_COUNTED),
    (0, FIRST, THERE, [STOPPED, at(KILL, 1, 120)], NOT_COUNTED), (0, FIRST, THERE, [STOPPED], COUNTED),
    # a disturbance of another node, much later, over, or of a node that does not deliver what it does not own
    (0, Delivery(1, 99), HERE, [at(KILL, 2, 100)], ""), (0, FIRST, THERE, [at(KILL, 1, 101, 104)], ""),
    (0, FIRST, THERE, [at(KILL, 0, 160, 163)], ""), (0, FIRST, THERE, [at(KILL, 0, 50, 53)], ""),
    (0, FIRST, THERE, [at(KILL, 1, 105, 115)], ""), (0, FIRST, THERE, [], ""),
    # a node that returns may not know of its new leader yet
    (0, MOMENT, HERE, [BACK], COUNTED), (0, MOMENT, HERE, [], ""), (0, MOMENT, HERE, [at(RETURN, 0, 90, 95)], ""),
    # one that was paused does; a job that any node may have lent
    (0, MOMENT, HERE, [at(PAUSE, 0, 108, 112)], ""), (0, FIRST, THERE, [at(PAUSE, 0, 100)], COUNTED),
    (2, Delivery(ANY_NODE, 99), THERE, [STOPPED], NOT_COUNTED), (2, Delivery(ANY_NODE, 90), THERE, [STOPPED], ""),
])  # fmt: skip
def test_why_a_message_came_twice(
    publisher: int, before: Delivery, now: Delivery, disturbances: list[Disturbance], kind: str
) -> None:
    assert Duplicate(publisher, b"id", before, now).kind(disturbances) == kind


def test_a_count_explains_as_many_duplicates_as_it_says() -> None:
    made = DuplicateBooks()
    for name in (b"one", b"another"):
        for delivery in (FIRST, THERE):
            made.note("t", name, b"content of " + name, 0, delivery)
    assert made.explained([STOPPED], 2) == ({COUNTED: 2}, [])
    _, (wrong,) = made.explained([STOPPED], 1)
    assert "another' was finished at node 0" in wrong
    assert len(made.explained([], 2)[1]) == 2
    made = DuplicateBooks()
    for _ in range(2):
        made.came_last("t", b"id", b"content")
    assert [len(made.explained([], counted)[1]) for counted in (0, 1)] == [1, 0]


def test_what_a_job_worker_and_a_consumer_got_is_known_by_id_and_publisher() -> None:
    made = DuplicateBooks()
    made.answered(1, 2, "t", [b"1.x", b"1.y", b"1.z"], Outcome.ACKNOWLEDGED)
    made.finished_at(0, "t", b"0001000000000007", b"1.x")
    made.worked_at(Delivery(2, 110), b"%d" % ((1 << 48) + 7), b"1.y")
    assert made.again == []
    assert made.never_came_live() == [b"1.z"]
    made.worked_at(Delivery(1, 99), b"%d" % ((1 << 48) + 7), b"1.y")  # the reply of a paused node comes late
    assert [(one.publisher, one.before.node, one.now.node) for one in made.again] == [(1, 1, 2)]


def test_counts_of_each_run_and_log_of_a_node_are_added() -> None:
    counts = Counts()
    for run, log_id, ready_again in ((10, "a", 2), (10, "a", 5), (10, "b", 4), (11, "b", 1), (11, "", 9)):
        failovers, led = {"possible_duplicates": {"ready_again": ready_again}}, [{"log_id": log_id}] if log_id else []
        counts.add(1, run, {"led": led, "failovers": failovers})
    counts.add(1, 12, {})
    assert counts.counted == 10
