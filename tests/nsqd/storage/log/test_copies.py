"""How far n nodes have the log."""

from nsqd.storage.log.copies import Copies


def test_a_mark_is_where_the_best_follower_but_n_minus_two_is() -> None:
    copies = Copies(100)
    two, three, durable = copies.copied(2, False), copies.copied(3, False), copies.copied(2, True)
    copies.update([(150, 120), (130, 130)])
    assert (two.position, three.position, durable.position) == (150, 130, 130)
    copies.update([(200, 120)])
    assert (two.position, three.position, durable.position) == (200, 130, 130)


def test_fewer_copies_than_the_log_states_do_not_count_yet() -> None:
    copies = Copies(100)
    two, three = copies.copied(2, False), copies.copied(3, False)
    copies.update([(150, 150), (140, 140)], 0)
    assert (two.position, three.position) == (100, 100)
    copies.update([(150, 150), (140, 140)], 3)
    assert (two.position, three.position) == (100, 140)
    copies.update([(150, 150), (140, 140)], 2)
    assert (two.position, three.position) == (150, 140)


def test_replies_with_a_limit_of_their_own_are_not_given_up_here() -> None:
    copies = Copies(100)
    copies.patience = 10
    mark = copies.copied(2, False, has_limit=True)
    assert mark.has_limits
    assert copies.wait({mark}, 150, 0) == (True, False)
    assert copies.expire(10)
    assert (mark.given_up, mark.position, copies.given_up) == (0, 100, 0)
    assert copies.leaving(2, False).position == 150, "others do not wait for the job that long"
    copies.update([(170, 170)])
    assert mark.position == 170
    mark.in_vain += 3
    assert copies.given_up == 3


def test_after_a_pause_no_message_leaves_until_the_node_knows_who_leads_its_log() -> None:
    copies, is_paused = Copies(100), [True]
    copies.patience, copies.is_paused = 10, lambda: is_paused[0]
    leaving = copies.leaving(2, False)
    copies.update([(150, 150)])
    copies.wait({leaving}, 200, 0)
    copies.expire(10)
    assert (leaving.position, copies.copied(2, False).position) == (100, 150)
    is_paused[0] = False
    copies.expire(20)
    assert leaving.position == 200
