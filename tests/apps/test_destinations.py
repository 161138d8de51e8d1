"""The choice of destinations, in virtual time and with given random numbers."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.destinations import (
    BUCKET_S,
    BUCKETS,
    FIRST_RETRY_S,
    LAST_EPSILON,
    MODES,
    WINDOW_S,
    Destinations,
    EpsilonGreedy,
    HostPool,
    RoundRobin,
    check_mode,
    destinations,
)

ABC = ("a", "b", "c")


def chosen(choice: Destinations, count: int, now: float = 0.0, free: tuple[str, ...] = ABC) -> str:
    return "".join(choice.choose(now, free) or "-" for _ in range(count))


def test_the_originals_order_of_round_robin_and_modes() -> None:
    choice = RoundRobin(ABC)
    assert chosen(choice, 7) == "bcabcab"
    choice.mark("c", False, 1.0, 0.0)
    assert chosen(choice, 3) == "cab"
    assert chosen(choice, 3, free=("a",)) == "aaa"
    assert choice.choose(0.0, ()) is None
    assert [type(destinations(mode, ABC, lambda: 0.5)) for mode in MODES] == [RoundRobin, HostPool, EpsilonGreedy]
    assert [check_mode(mode) for mode in MODES] == [""] * 3
    assert "round-robin" in check_mode("all")


def test_a_host_pool_takes_each_that_lives() -> None:
    choice = HostPool(ABC)
    assert chosen(choice, 4) == "abca"
    choice.mark("b", False, 1.0, 0.0)
    assert chosen(choice, 4) == "caca"
    choice.mark("b", True, 1.0, 0.0)
    assert Counter(chosen(choice, 9)) == {"a": 3, "b": 3, "c": 3}


def test_a_dead_host_is_tried_again_after_30_s_and_then_after_twice_the_time_up_to_15_minutes() -> None:
    choice, now, waits = HostPool(("a", "b")), 0.0, []
    choice.mark("b", False, 0.0, now)
    failed_at = now
    while len(waits) < 8:
        now += 1.0
        if "b" in chosen(choice, 2, now, ("a", "b")):
            waits.append(now - failed_at)
            failed_at = now
            choice.mark("b", False, 0.0, now)
    assert waits == [31, 61, 121, 241, 481, 901, 901, 901]  # the second behind each limit: 30, 60, 120, 240, 480, 900
    choice.mark("b", True, 0.0, now)
    choice.mark("b", False, 0.0, now)
    assert "b" not in chosen(choice, 2, now + FIRST_RETRY_S, ("a", "b"))
    assert "b" in chosen(choice, 2, now + FIRST_RETRY_S + 0.1, ("a", "b"))


def test_when_all_are_dead_each_is_tried_in_turn_and_a_busy_one_that_lives_is_waited_for() -> None:
    choice = HostPool(ABC)
    for name in ABC:
        choice.mark(name, False, 0.0, 0.0)
    for expected in "abcabc":
        name = choice.choose(1.0, ABC)
        assert name == expected
        if expected == "c":
            for other in ABC:
                choice.mark(other, False, 0.0, 1.0)

    choice = HostPool(("a", "b"))
    choice.mark("b", False, 0.0, 0.0)
    assert choice.choose(1.0, ("b",)) is None
    assert choice.choose(1.0, ("a",)) == "a"
    assert choice.choose(FIRST_RETRY_S + 1, ("b",)) == "b"


@given(
    st.lists(
        st.tuples(st.sampled_from(ABC), st.booleans(), st.floats(0, 100), st.sets(st.sampled_from(ABC))), max_size=60
    ),
    st.sampled_from(MODES),
    st.integers(),
)
def test_whatever_happens_a_choice_is_free_and_alive_or_due(
    steps: list[tuple[str, bool, float, set[str]]], mode: str, seed: int
) -> None:
    choice, now = destinations(mode, ABC, Random(seed).random), 0.0
    dead: dict[str, float] = {}  # name -> when it failed first
    for name, worked, pause, free in steps:
        now += pause
        found = choice.choose(now, free)
        assert found is None or found in free
        if mode == "round-robin":
            assert (found is None) == (not free)
        elif found is None:
            assert len(dead.keys() & free) == len(free), "all that are free are dead: another one lives, or is due"
        elif found in dead and dead[found] + FIRST_RETRY_S >= now:
            dead.clear()  # only if all were dead: all are revived
        choice.mark(name, worked, pause, now)
        if worked:
            dead.pop(name, None)
        else:
            dead.setdefault(name, now)


def greedy(*numbers: float) -> EpsilonGreedy:
    supply = iter(numbers)
    return EpsilonGreedy(ABC, lambda: next(supply))


def test_exploration_decays_and_the_weighted_choice_is_by_the_given_random_number() -> None:
    choice = EpsilonGreedy(ABC, lambda: 0.0)
    assert choice.epsilon == 0.3
    assert chosen(choice, 4) == "abca"
    assert choice.epsilon == pytest.approx(0.3 * 0.9**4)
    chosen(choice, 100)
    assert choice.epsilon == LAST_EPSILON

    for number, expected in ((0.0, "a"), (0.74, "a"), (0.76, "b"), (0.999, "b")):
        choice = greedy(0.9, number)
        choice.mark("a", True, 0.010, 0.0)
        choice.mark("b", True, 0.030, 0.0)
        assert choice.choose(0.0, ABC) == expected


def test_a_fast_destination_gets_more_by_the_reciprocal_of_its_time() -> None:
    random = Random(1)
    choice, now = EpsilonGreedy(("a", "b"), random.random), 0.0
    counts: Counter[str] = Counter()
    for _ in range(4_000):
        now += 0.01
        name = choice.choose(now, ("a", "b"))
        assert name is not None
        choice.mark(name, True, {"a": 0.010, "b": 0.030}[name], now)
        counts[name] += 1
    assert counts["a"] / counts["b"] == pytest.approx(3, rel=0.15)


def test_without_any_figure_and_for_busy_or_dead_ones_it_is_a_host_pool() -> None:
    assert chosen(greedy(0.9, 0.9, 0.9), 3) == "abc"
    choice = greedy(0.9, 0.5)
    choice.mark("a", True, 0.001, 0.0)
    choice.mark("b", True, 0.001, 0.0)
    choice.mark("a", False, 0.001, 0.0)
    assert choice.choose(0.0, ABC) == "b"
    choice = greedy(0.9, 0.5)
    choice.mark("a", True, 0.001, 0.0)
    choice.mark("b", True, 0.001, 0.0)
    assert choice.choose(0.0, ("a",)) == "a"


def test_later_buckets_weigh_more_and_old_ones_are_forgotten() -> None:
    choice = greedy()
    choice.mark("a", True, 0.010, 0.0)
    assert choice.response_ms("a") == pytest.approx(10.0)  # only the current bucket, of weight 1
    choice.mark("b", True, 0.010, BUCKET_S)  # a new bucket: the one before weighs 119/120, and fills the current one
    assert choice.response_ms("a") == pytest.approx(10 * (1 + (BUCKETS - 1) / BUCKETS))
    choice.mark("b", True, 0.010, WINDOW_S - 0.01)
    assert choice.response_ms("a") > 0
    choice.mark("b", True, 0.010, WINDOW_S + BUCKET_S)
    assert choice.response_ms("a") == 0
    choice.mark("b", True, 0.010, 1e9)  # a long pause costs no more than all buckets
    assert choice.response_ms("b") == pytest.approx(10.0)
