"""Which followers count: a change is stated in the log, and holds when enough copies have the record."""

from nsqd.cluster.replication.in_sync import InSync
from nsqd.storage.log.followers import MOST, Followers, unpack

PATIENCE = 5


def settled(*numbers: int, copies: tuple[int, int] = (2, 2)) -> InSync:
    """Return the state of a leader whose log names these followers, and they count."""
    found = InSync(Followers(numbers, *copies), 100, PATIENCE)
    assert found.confirm(100, dict.fromkeys(numbers, 100))
    return found


def test_the_record_comes_back_as_it_was() -> None:
    stated = Followers((1, 7, 1023), 2, 3)
    assert unpack(stated.pack()) == stated
    assert unpack(Followers().pack()) == Followers()


def test_after_a_start_no_follower_is_in_sync_until_enough_copies_have_the_log() -> None:
    found = InSync(Followers((1, 2), 2, 2), 100, PATIENCE)
    assert not found.named
    assert not found.confirm(99, {1: 100})  # the leader itself does not have it durably
    assert not found.confirm(100, {1: 99})
    assert found.confirm(100, {1: 99, 2: 100})
    assert found.named == {1, 2}
    assert not found.confirm(100, {1: 100})  # it holds already


def test_with_three_copies_in_use_a_change_needs_two_followers_or_all_within_reach() -> None:
    found = InSync(Followers((1, 2), 2, 3), 100, PATIENCE)
    assert not found.confirm(100, {1: 100, 2: 99})
    assert found.confirm(100, {1: 100})  # node 2 cannot be reached


def test_one_that_has_caught_up_is_named_and_counts_when_the_change_holds() -> None:
    found = settled(1)
    wanted = found.wanted({1, 2}, (), (), (2, 2), 0)
    assert wanted == Followers((1, 2), 2, 2)
    found.change(wanted, 200)
    assert found.named == {1}
    assert found.wanted({1, 2, 3}, (), (), (2, 2), 0) is None  # one change at a time
    assert found.confirm(200, {1: 150, 2: 200})
    assert found.named == {1, 2}
    assert found.wanted({1, 2}, (), (), (2, 2), 0) is None


def test_a_copy_that_neither_record_names_does_not_let_a_change_hold() -> None:
    found = settled(1)
    found.change(Followers((1, 2), 2, 2), 200)
    assert not found.confirm(200, {1: 150, 2: 150, 3: 200})


def test_one_that_is_out_of_sync_for_long_is_not_named_any_more_and_counts_until_that_holds() -> None:
    found = settled(1, 2)
    assert found.wanted({1}, (), (), (2, 2), 10) is None
    assert found.wanted({1}, (), (), (2, 2), 14) is None
    wanted = found.wanted({1}, (), (), (2, 2), 15)
    assert wanted == Followers((1,), 2, 2)
    found.change(wanted, 200)
    assert found.named == {1, 2}
    assert found.confirm(200, {1: 200})
    assert found.named == {1}


def test_one_that_comes_back_in_time_or_has_announced_a_restart_is_named_all_along() -> None:
    found = settled(1, 2)
    assert found.wanted({1}, (), (), (2, 2), 10) is None
    assert found.wanted({1, 2}, (), (), (2, 2), 14) is None
    assert found.wanted({1}, (), (), (2, 2), 16) is None
    restarting = settled(1, 2)
    for now in (10, 1000):
        assert restarting.wanted({1}, {2}, (), (2, 2), now) is None


def test_one_that_is_not_needed_is_left_out_only_when_all_that_are_needed_count() -> None:
    found = settled(1, 3)
    assert found.wanted({1, 3}, (), (1, 2), (2, 2), 0) is None
    wanted = found.wanted({1, 2, 3}, (), (1, 2), (2, 2), 0)
    assert wanted == Followers((1, 2, 3), 2, 2)
    found.change(wanted, 200)
    assert found.confirm(200, {1: 200, 2: 200, 3: 200})
    assert found.wanted({1, 2, 3}, (), (1, 2), (2, 2), 0) == Followers((1, 2), 2, 2)


def test_the_log_states_how_many_copies_were_asked_for() -> None:
    found = settled(1, copies=(0, 1))
    assert found.wanted({1}, (), (), (0, 1), 0) is None
    wanted = found.wanted({1}, (), (), (3, 3), 0)
    assert wanted == Followers((1,), 3, 3)
    found.change(wanted, 200)
    assert found.confirm(200, {1: 200})
    assert found.wanted({1}, (), (), (2, 2), 0) == Followers((1,), 2, 3)  # the numbers in use remain


def test_one_that_a_change_leaves_out_does_not_count_while_the_change_is_pending() -> None:
    found = settled(1, 2)
    assert found.counting == {1, 2}
    found.change(Followers((2, 3), 2, 2), 200)
    assert found.counting == {2}  # after a start, only the new record would be read
    assert found.confirm(200, {2: 200})
    assert found.counting == {2, 3}


def test_fewer_copies_count_only_when_a_record_that_holds_states_them() -> None:
    found = settled(1, 2, copies=(3, 3))
    assert found.fewest == 3
    found.change(Followers((1, 2), 2, 3), 200)
    assert found.fewest == 3
    assert found.confirm(200, {1: 200, 2: 200})
    assert found.fewest == 2


def test_a_record_names_a_bounded_number_of_followers() -> None:
    found = settled(copies=(0, 1))
    wanted = found.wanted(range(2 * MOST), (), (), (0, 1), 0)
    assert len(wanted.numbers) == MOST


def test_a_node_that_has_taken_the_log_over_is_no_follower_any_more() -> None:
    found = InSync(Followers((1, 2), 2, 3), 100, PATIENCE, leader=1)
    assert found.confirm(100, {2: 100})
    assert found.named == found.counting == {2}
    assert found.wanted({2}, (), (), (0, 1), 0) == Followers((2,), 2, 3)
    assert found.wanted((), (), (), (0, 1), 0) == Followers((2,), 2, 3), "the other one has time to come back"
