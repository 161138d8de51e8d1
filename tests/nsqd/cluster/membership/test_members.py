"""Membership: words are merged in any order to the same members; whoever is silent is suspected, and nobody else."""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nsqd.cluster.membership.members import MOST_FORGOTTEN, Membership
from nsqd.cluster.wire.node_identity import Member, Standing
from tests.cases import each
from tests.nsqd.cluster.wire.identities import node

SECOND = 1_000_000_000
AFTER = 5 * SECOND
NODES = st.builds(
    node, st.integers(1, 4), st.integers(1, 3), st.none() | st.integers(1, 3), st.sampled_from(["a:1", "b:1"])
)
WORDS = st.lists(st.builds(Member, NODES, st.sampled_from(list(Standing))), max_size=8)


def membership(*others: int, now: int = 1) -> Membership:
    found = Membership(node(0), AFTER)
    found.merge([Member(node(number)) for number in others], now)
    found.check_silence(now)
    return found


def look(found: Membership, start: int, end: int, received: tuple[int, ...] = ()) -> dict[int, list[int]]:
    """Look each second; these nodes are heard each second. Returns who is newly suspected, by the second."""
    reported = {}
    for second in range(start, end):
        for number in received:
            found.note_contact(number, second * SECOND)
        news = found.check_silence(second * SECOND)
        if news:
            reported[second] = news
    return reported


@given(WORDS, st.randoms())
def test_the_order_and_number_of_the_words_change_nothing(words: list[Member], random: Random) -> None:
    one, other = Membership(node(0), AFTER), Membership(node(0), AFTER)
    one.merge(words, 1)
    again = [*words, *words]
    random.shuffle(again)
    while again:
        size = random.randint(1, 3)
        other.merge(again[:size], 2)
        del again[:size]
    assert one.records == other.records
    assert one.forgotten.keys() == other.forgotten.keys()
    assert one.merge(other.all_records(), 3) == []
    gone = {word.node.log_id for word in words if word.standing is Standing.FORGOTTEN}
    for number in range(1, 5):
        said = [word for word in words if word.node.number == number]
        reported = [replace(one, standing=Standing.FORGOTTEN) if one.node.log_id in gone else one for one in said]
        latest = one.records.get(number)
        assert latest in reported if reported else latest is None
        assert latest is None or not any(word.is_later_than(latest) for word in reported)


@given(WORDS, WORDS)
def test_only_news_are_passed_on(first: list[Member], second: list[Member]) -> None:
    found = Membership(node(0), AFTER)
    found.merge(first, 1)
    before, forgotten = dict(found.records), set(found.forgotten)
    news = found.merge(second, 2)
    changed = {
        n for n, word in found.records.items() if before.get(n) != word and word.node.log_id not in found.forgotten
    }
    assert {word.node.number for word in news if word.node.log_id not in found.forgotten} == changed
    assert found.forgotten.keys() - forgotten <= {word.node.log_id for word in news}
    other = Membership(node(0), AFTER)
    other.merge(first, 1)
    other.merge(news, 2)
    assert other.records == found.records, "news are enough for those who knew as much"


def test_a_later_run_replaces_an_earlier_one_and_a_node_that_left_is_no_member() -> None:
    found = membership(1, 2, 3)
    found.merge([Member(node(1, 2)), Member(node(2), Standing.LEFT), Member(node(3), Standing.FORGOTTEN)], 1)
    assert [one.number for one in found.members] == [0, 1]
    assert found.records[1].node.incarnation == 2
    assert found.merge([Member(node(1, 1), Standing.LEFT), Member(node(2)), Member(node(3))], 1) == []  # old words


@each("members, silent_from, dials, suspected", [
    ((1, 2), 4, [(1, True)], {5: [1], 8: [2]}),
    ((1,), 4, [(1, True), (1, False), (3, True)], {8: [1]}),  # it listens again
    ((1,), 10, [(1, True)], {11: [1]}),  # its last contact is recent
])  # fmt: skip
def test_a_node_whose_address_refuses_connections_is_suspected_sooner(
    members: tuple[int, ...], silent_from: int, dials: list[tuple[int, bool]], suspected: dict[int, list[int]]
) -> None:
    found = membership(*members)
    look(found, 1, silent_from, received=members)
    for number, is_refused in dials:
        found.dialed(node(number).address, is_refused=is_refused)
    assert look(found, silent_from, 20) == suspected
    found.note_contact(1, 20 * SECOND)
    assert look(found, 20, 40) == {20 + AFTER // SECOND: [1]}, "it was back, and is silent now"


def test_a_forgotten_log_is_not_taken_back_and_its_number_is_free() -> None:
    found = membership(1, 3)
    found.merge([Member(node(3), Standing.FORGOTTEN)], 1)
    found.merge([Member(node(3, 2))], 1)  # it was started again
    assert [one.number for one in found.members] == [0, 1]
    assert found.records[3] == Member(node(3, 2), Standing.FORGOTTEN)
    found.merge([Member(node(3, 3, log=33))], 1)  # a new directory
    assert [one.number for one in found.members] == [0, 1, 3]
    found.merge([Member(node(3, 4))], 1)  # the former directory
    assert [one.number for one in found.members] == [0, 1]
    found.merge([Member(node(3, 5, log=33))], 1)
    assert [one.number for one in found.members] == [0, 1, 3]


def test_a_later_run_of_a_log_counts_as_forgotten_when_the_word_comes_after_it() -> None:
    found = membership(1)
    found.merge([Member(node(3, 2))], 1)
    look(found, 1, 9)
    word = Member(node(3), Standing.FORGOTTEN)
    assert found.merge([word], 10) == [word]
    assert (found.suspected, [one.number for one in found.members]) == ({1}, [0, 1])


def test_a_node_forgets_its_own_number_only_with_another_log() -> None:
    found = membership(1)
    former = Member(node(0, 0, log=99), Standing.FORGOTTEN)
    assert found.merge([former], 1) == [former]
    assert found.contradiction([former]) is None
    own = Member(node(0), Standing.FORGOTTEN)
    assert found.merge([own], 1) == []
    assert found.contradiction([own]) == own
    assert found.all_records() == [*found.records.values(), former]


def test_the_logs_that_are_remembered_are_bounded() -> None:
    found = membership()
    for number in range(MOST_FORGOTTEN + 10):
        found.merge([Member(node(1, number + 1, log=number + 100), Standing.FORGOTTEN)], 1)
    assert len(found.forgotten) == MOST_FORGOTTEN
    assert len(found.all_records()) <= MOST_FORGOTTEN + 2
    assert min(word.node.incarnation for word in found.forgotten.values()) == 11


@each(
    "word, contradicts",
    [
        (Member(node(0)), False),
        (Member(node(0, 2)), True),  # another run has this number
        (Member(node(0), Standing.FORGOTTEN), True),
        (Member(node(1, 9)), False),
    ],
)
def test_only_this_node_decides_its_record_but_it_learns_of_others(word: Member, contradicts: bool) -> None:
    found = membership(1)
    found.merge([word], 1)
    assert found.records[0] == Member(node(0))
    assert (found.contradiction([word]) is not None) == contradicts


def test_an_unresponsive_member_is_suspected_once_until_a_contact() -> None:
    found = membership(1, 2)
    assert look(found, 1, 9, received=(1,)) == {6: [2]}
    assert found.suspected == {2}
    found.note_contact(2, 9 * SECOND)
    assert found.suspected == frozenset()
    assert look(found, 10, 20, received=(1,)) == {14: [2]}


def test_a_node_that_left_or_is_a_new_run_is_not_suspected() -> None:
    found = membership(1, 2, 3)
    assert look(found, 1, 7) == {6: [1, 2, 3]}
    found.merge([Member(node(1, 2)), Member(node(2), Standing.LEFT)], 7 * SECOND)
    assert found.suspected == {3}
    assert look(found, 7, 20) == {12: [1]}  # the new run, after a silence of its own


def test_an_announced_restart_is_waited_for() -> None:
    found = membership(1, 2)
    found.announced(1, 30 * SECOND)
    assert look(found, 1, 40) == {6: [2], 30: [1]}
    found = membership(1)
    found.announced(1, 30 * SECOND)
    found.note_contact(1, 5 * SECOND)  # what it still had to send
    found.merge([Member(node(1, 2))], 10 * SECOND)  # it is back: from now on its silence counts
    assert look(found, 1, 40) == {15: [1]}


@each("still", [4, 40])
def test_a_paused_node_suspects_no_node_before_it_has_read(still: int) -> None:
    """SIGSTOP: to the node that was stopped, all others were silent."""
    found = membership(1, 2)
    assert look(found, 1, 4, received=(1, 2)) == {}
    woken = 3 + still
    assert found.must_read_first(woken * SECOND)
    assert found.check_silence(woken * SECOND) == []
    found.note_contact(1, woken * SECOND)  # what waited in its sockets
    assert not found.must_read_first((woken + 1) * SECOND)
    reported = look(found, woken + 1, woken + 9, received=(1,))
    assert reported == {woken + 5: [2]}
