"""The books of a simulated cluster: which messages a log has that was made of another one's tail."""

import pytest

from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.records import SegmentHeader
from shared.topic_config import Durability
from tests.simulation.books import Books, Publish
from tests.simulation.damage import DamagedRun

EPOCH = Epoch(1, 2, b"eightby!")
OLD, NEW, OTHER = b"o" * 16, b"n" * 16, b"x" * 16


def books_after(generation: int, former: bytes = OLD) -> tuple[Books, Publish, Publish]:
    """Return the books after a log was succeeded from 500 on, and a message before and one after that.

    Both are in the first segment of the new log, which has this generation; `former`: the log in which the first one was.
    """
    books = Books()
    before, behind = (books.publish(2, log_id, "topic", Durability.OS, 1, 0) for log_id in (former, OLD))
    before.position, behind.position = 400, 600
    files = [
        SegmentHeader(2, generation, NEW, 300, EPOCH).encode() + before.body + behind.body,
        SegmentHeader(2, 0, NEW, 700, EPOCH).encode(),
        b"no segment",
    ]
    books.moved(OLD, NEW, 500, 2, files)
    return books, before, behind


def test_only_messages_after_the_common_point_move() -> None:
    _, before, behind = books_after(0)
    assert (behind.log_id, behind.former, behind.others) == (NEW, [OLD], [])
    assert (before.log_id, before.former, before.others) == (OLD, [], [])


def test_a_rewritten_segment_with_the_common_point_is_in_both_logs() -> None:
    _, before, behind = books_after(1)
    assert (behind.log_id, behind.former, behind.others) == (NEW, [OLD], [])
    assert (before.log_id, before.former, before.others) == (OLD, [], [NEW])
    _, before, _ = books_after(1, OTHER)
    assert (before.log_id, before.former, before.others) == (OTHER, [], [])


def test_a_finish_that_is_lost_with_the_new_log_is_a_reason_only_if_that_log_has_the_message() -> None:
    for generation in (0, 1):
        books, before, _ = books_after(generation)
        before.done = 10, 2
        books.upset([NEW], 20)  # the new log's leader is lost with the FIN
        if generation:
            books.given(b"an id", before.body, 2, 30)
            assert books.counts["delivered again: its leader died"] == 1
        else:
            with pytest.raises(AssertionError, match="for no reason"):
                books.given(b"an id", before.body, 2, 30)


def test_a_finish_in_the_new_log_that_is_forgotten_while_its_leader_lives_has_no_reason() -> None:
    books, before, _ = books_after(1)
    books.upset([NEW], 5)
    before.done = 10, 2
    with pytest.raises(AssertionError, match="for no reason"):
        books.given(b"an id", before.body, 2, 30)


def test_a_damaged_log_is_lost_before_an_operator_repairs_it_and_others_are_not() -> None:
    run = DamagedRun(0)
    machine = run.machines[0]
    machine.log_id, machine.disks.replicas[OTHER] = OLD, machine.new_disk()
    run.damage_disks(machine, [machine.disks.log])
    (loss,) = run.books.losses
    assert [loss.takes(0, log_id, 500, Durability.ALWAYS) for log_id in (OLD, OTHER)] == [True, False]
