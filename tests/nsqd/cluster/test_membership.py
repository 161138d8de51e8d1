"""Membership: words are merged in any order to the same members; whoever is silent is suspected, and nobody else."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.cluster.membership import Member, Membership, Standing
from tests.nsqd.protocols.peer.identities import node

SECOND = 1_000_000_000
AFTER = 5 * SECOND
WORDS = st.lists(
    st.builds(
        Member,
        st.builds(
            node, st.integers(1, 4), st.integers(1, 3), st.none() | st.integers(1, 3), st.sampled_from(["a:1", "b:1"])
        ),
        st.sampled_from(list(Standing)),
    ),
    max_size=8,
)


def membership(*others: int, now: int = 1) -> Membership:
    found = Membership(node(0), AFTER)
    found.merge([Member(node(number)) for number in others], now)
    found.check_silence(now)
    return found


def look(found: Membership, start: int, end: int, heard: tuple[int, ...] = ()) -> dict[int, list[int]]:
    """Look each second; these nodes are heard each second. Returns who is newly suspected, by the second."""
    told = {}
    for second in range(start, end):
        for number in heard:
            found.heard(number, second * SECOND)
        news = found.check_silence(second * SECOND)
        if news:
            told[second] = news
    return told


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
    assert one.words == other.words
    assert one.merge(other.words.values(), 3) == []
    for number in range(1, 5):
        told = [word for word in words if word.node.number == number]
        latest = one.words.get(number)
        assert latest in told if told else latest is None
        assert latest is None or not any(word.is_later_than(latest) for word in told)


@given(WORDS, WORDS)
def test_only_news_are_passed_on(first: list[Member], second: list[Member]) -> None:
    found = Membership(node(0), AFTER)
    found.merge(first, 1)
    before = dict(found.words)
    news = found.merge(second, 2)
    assert {word.node.number for word in news} == {n for n, word in found.words.items() if before.get(n) != word}


def test_a_later_run_replaces_an_earlier_one_and_whoever_left_is_no_member() -> None:
    found = membership(1, 2, 3)
    found.merge([Member(node(1, 2)), Member(node(2), Standing.LEFT), Member(node(3), Standing.FORGOTTEN)], 1)
    assert [one.number for one in found.members] == [0, 1]
    assert found.words[1].node.incarnation == 2
    assert found.merge([Member(node(1, 1), Standing.LEFT), Member(node(2)), Member(node(3))], 1) == []  # old words
    found.merge([Member(node(3, 2))], 1)  # it was forgotten, and joins again
    assert [one.number for one in found.members] == [0, 1, 3]


@pytest.mark.parametrize(
    ("word", "contradicts"),
    [
        (Member(node(0)), False),
        (Member(node(0, 2)), True),  # another run has this number
        (Member(node(0), Standing.FORGOTTEN), True),
        (Member(node(1, 9)), False),
    ],
)
def test_nobody_else_says_what_this_node_is_but_it_is_told(word: Member, contradicts: bool) -> None:
    found = membership(1)
    found.merge([word], 1)
    assert found.words[0] == Member(node(0))
    assert (found.contradiction([word]) is not None) == contradicts


def test_a_silent_member_is_suspected_once_until_it_is_heard() -> None:
    found = membership(1, 2)
    assert look(found, 1, 9, heard=(1,)) == {6: [2]}
    assert found.suspected == {2}
    found.heard(2, 9 * SECOND)
    assert found.suspected == frozenset()
    assert look(found, 10, 20, heard=(1,)) == {14: [2]}


def test_whoever_left_or_is_a_new_run_is_not_suspected() -> None:
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
    found.heard(1, 5 * SECOND)  # what it still had to send
    found.merge([Member(node(1, 2))], 10 * SECOND)  # it is back: from now on its silence counts
    assert look(found, 1, 40) == {15: [1]}


@pytest.mark.parametrize("still", [4, 40])
def test_a_node_that_stood_still_suspects_nobody_before_it_has_read(still: int) -> None:
    """SIGSTOP: to the node that was stopped, all others were silent."""
    found = membership(1, 2)
    assert look(found, 1, 4, heard=(1, 2)) == {}
    woken = 3 + still
    assert found.must_read_first(woken * SECOND)
    assert found.check_silence(woken * SECOND) == []
    found.heard(1, woken * SECOND)  # what waited in its sockets
    assert not found.must_read_first((woken + 1) * SECOND)
    told = look(found, woken + 1, woken + 9, heard=(1,))
    assert told == {woken + 5: [2]}
