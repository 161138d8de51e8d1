"""RDY, dials, backoff, discovery, addresses: decisions in virtual time."""

import json
from itertools import pairwise
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sansio.address import check_address, path_of, split_address
from penstock.sansio.backoff import Backoff, Flow
from penstock.sansio.consumer import shares
from penstock.sansio.dials import FIRST_RETRY_S, LAST_RETRY_S, DialPlan
from penstock.sansio.discovery import (
    FIRST_S,
    FREQUENT,
    LEAST_S,
    MAX_REPLY,
    PAUSE_S,
    SHORTEST_S,
    SILENT_S,
    SOON_S,
    WATCH_S,
    Discovery,
    LookupAnswer,
    LookupReply,
    lookup_answer,
    lookup_url,
)  # fmt: skip
from penstock.sansio.settings import Settings
from tests.cases import each

# RDY


def test_shares() -> None:
    assert shares(10, [2500, 2500, 2500], [10, 10, 10], 0) == [4, 3, 3]
    assert shares(10, [2, 2500], [10, 10], 0) == [2, 8]
    assert shares(0, [9, 9], [1, 1], 3) == [0, 0]
    assert shares(5, [], [], 0) == []
    assert [shares(1, [9, 9], [1, 1], turn) for turn in (0, 1)] == [[1, 0], [0, 1]]
    for demands, plan in (
        ([400, 0, 0, 0], [97, 1, 1, 1]),
        ([400, 400, 0, 0], [49, 49, 1, 1]),
        ([400, 9, 400, 9], [41, 9, 41, 9]),
        ([40, 0, 0, 0], [55, 15, 15, 15]),
        ([0, 0, 0, 0], [25, 25, 25, 25]),
    ):
        assert shares(100, [2500] * 4, demands, 0) == plan


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(1, 30), st.integers(0, 99)), max_size=30), st.integers(0, 99))
def test_shares_never_exceed_the_total_and_every_nsqd_gets_a_turn(
    total: int, nsqds: list[tuple[int, int]], turn: int
) -> None:
    limits, demands = [limit for limit, _ in nsqds], [demand for _, demand in nsqds]
    plan = shares(total, limits, demands, turn)
    assert len(plan) == len(limits)
    assert sum(plan) == total or plan == limits
    assert all(0 <= rdy <= limit for rdy, limit in zip(plan, limits, strict=True))
    assert total < len(limits) or all(plan)
    plans = [shares(total, limits, demands, turn) for turn in range(len(limits))]
    assert not total or all(any(plan[i] for plan in plans) for i in range(len(limits)))


# dials


def test_dials_wait_longer_and_longer_and_forget_what_is_not_wanted() -> None:
    dials = DialPlan()
    dials.want({"a": inf}, frozenset())
    assert (dials.take_due(0.0), dials.take_due(0.0), dials.next_at) == ("a", None, inf)
    delays = [dials.fail("a", 100.0) for _ in range(9)]
    assert delays[:3] == [FIRST_RETRY_S, 2 * FIRST_RETRY_S, 4 * FIRST_RETRY_S]
    assert delays[-1] == LAST_RETRY_S
    assert dials.take_due(100.0 + LAST_RETRY_S / 2) is None
    assert dials.take_due(100.0 + LAST_RETRY_S) == "a"
    dials.succeed("a", 200.0)
    assert (dials.take_due(201.0), dials.fail("a", 201.0)) == (None, LAST_RETRY_S), "it did not last"
    dials.succeed("a", 300.0)
    assert dials.fail("a", 310.0) == FIRST_RETRY_S

    dials = DialPlan()
    dials.want({"a": inf, "b": inf}, frozenset({"b"}))
    assert (dials.take_due(0.0), dials.take_due(0.0)) == ("a", None), "there is a connection to b"
    dials.want({"b": inf}, frozenset({"b"}))
    assert "a" not in dials
    assert dials.fail("b", 0.0) == FIRST_RETRY_S


def test_an_nsqd_of_nsqlookupd_is_dialed_again_only_after_a_new_request() -> None:
    dials = DialPlan()
    dials.want({"a": 1.0}, frozenset())
    assert dials.take_due(2.0) == "a"
    dials.fail("a", 5.0)
    assert not dials.is_named("a")
    dials.want({"a": 5.0}, frozenset())  # asked before the failure, answered after it
    assert (dials.take_due(9.0), dials.next_at) == (None, inf)
    dials.want({"a": 5.05}, frozenset())
    assert (dials.take_due(5.06), dials.next_at) == (None, 5.0 + FIRST_RETRY_S), "the pause holds nevertheless"
    assert dials.take_due(5.0 + FIRST_RETRY_S) == "a"


# backoff


def test_backoff_as_go_nsq_does_it() -> None:
    backoff = Backoff(Settings(), Random(1))
    assert backoff.fail(0.0)
    assert (backoff.flow, backoff.until) == (Flow.WAITING, 2.0)
    assert [backoff.fail(0.1), backoff.succeed(0.2)] == [False, False], (
        "messages that are still being handled do not count"
    )
    assert not backoff.tick(1.9)
    assert backoff.tick(2.0)
    assert backoff.flow is Flow.PROBING
    assert backoff.fail(2.5)
    assert backoff.until == 2.5 + 4.0
    assert backoff.tick(6.5)
    assert backoff.succeed(7.0)
    assert (backoff.flow, backoff.until) == (Flow.WAITING, 7.0 + 2.0), "one failure is left"
    assert backoff.tick(9.0)
    assert backoff.succeed(9.0)
    assert backoff.flow is Flow.FULL
    assert not backoff.succeed(9.0)
    backoff = Backoff(Settings(max_backoff_duration_s=0.0), Random(1))
    assert not backoff.fail(0.0)
    assert backoff.flow is Flow.FULL


@given(
    st.lists(st.tuples(st.sampled_from("fst"), st.floats(0, 300)), max_size=200),
    st.sampled_from(["exponential", "full_jitter"]),
    st.floats(0.001, 1e6),
)
def test_a_backoff_ends(events: list[tuple[str, float]], strategy: str, longest: float) -> None:
    backoff = Backoff(Settings(backoff_strategy=strategy, max_backoff_duration_s=longest), Random(1))
    now = 0.0
    for event, later in events:
        now += later
        {"f": backoff.fail, "s": backoff.succeed, "t": backoff.tick}[event](now)
        assert backoff.until <= now + longest or backoff.flow is not Flow.WAITING
        assert (backoff.level > 0) == (backoff.flow is not Flow.FULL)
    for _ in range(2 * backoff.level):
        now += longest
        backoff.tick(now)
        backoff.succeed(now)
    assert backoff.flow is Flow.FULL


# discovery


def polled(discovery: Discovery, answers: list[frozenset[str] | LookupAnswer | None], now: float) -> dict[str, float]:
    named: dict[str, float] = {}
    for number in discovery.begin(now):
        answer = answers[number]
        named = discovery.answered(number, LookupAnswer(answer) if isinstance(answer, frozenset) else answer, now)
    discovery.end(now)
    return named


def polls_until(
    discovery: Discovery, until: float, answers: list[frozenset[str] | LookupAnswer | None], now: float
) -> list[float]:
    times = []
    while (now := now + discovery.wait(now)) < until:
        times.append(now)
        polled(discovery, answers, now)
    return times


def test_polls_come_in_their_interval_or_hurried() -> None:
    discovery = Discovery(Settings(lookupd_poll_interval_s=60, lookupd_poll_jitter=0.5), Random(1), 3)
    assert discovery.wait(5.0) == 0.0
    assert polled(discovery, [frozenset(), frozenset(), frozenset()], 5.0) == {}
    assert SHORTEST_S <= discovery.wait(5.0) <= 1.5 * SHORTEST_S, "no nsqd has the topic yet"
    assert polled(discovery, [frozenset({"a"}), None, frozenset({"b"})], 6.0) == {"a": 6.0, "b": 6.0}
    assert 60 <= discovery.wait(6.0) <= 90
    discovery.poll_often()
    assert discovery.wait(6.25) == FIRST_S - 0.25
    assert discovery.wait(9.0) == 0.0


def test_after_a_loss_polls_come_soon_until_another_node_may_have_taken_over() -> None:
    discovery = Discovery(Settings(lookupd_poll_interval_s=60, lookupd_poll_jitter=0.0), Random(1), 1)
    polled(discovery, [frozenset({"a", "b"})], 0.0)
    discovery.poll_often()
    polls = polls_until(discovery, 180.0, [frozenset({"b"})], 0.0)
    assert polls[:5] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert max(later - sooner for sooner, later in pairwise(polls[:FREQUENT])) == SOON_S
    assert polls[FREQUENT + 1] - polls[FREQUENT] == 60.0, "then as before"


def test_a_loss_during_a_poll_is_not_forgotten_and_a_poll_is_asked_for_once() -> None:
    discovery = Discovery(Settings(), Random(1), 1)
    polled(discovery, [frozenset({"a"})], 0.0)
    (number,) = discovery.begin(60.0)
    discovery.poll_often()  # the request was made before it
    discovery.ask(60.1)
    discovery.answered(number, LookupAnswer(frozenset({"a"})), 60.0)
    discovery.end(60.05)
    assert discovery.wait(60.05) == LEAST_S

    discovery = Discovery(Settings(lookupd_poll_jitter=0.0), Random(1), 1)
    polled(discovery, [frozenset({"a"})], 0.0)
    discovery.ask(10.0)
    discovery.ask(20.0)
    assert polls_until(discovery, 100.0, [frozenset({"a"})], 0.0) == [10.0, 70.0]


def test_a_nsqlookupd_that_is_silent_keeps_its_answer_and_does_not_hold_up_the_others() -> None:
    discovery = Discovery(Settings(), Random(1), 2)
    polled(discovery, [frozenset({"a", "b"}), frozenset({"b"})], 0.0)
    assert polled(discovery, [None, frozenset({"b", "c"})], 60.0) == {"a": 0.0, "b": 60.0, "c": 60.0}
    assert polled(discovery, [frozenset({"b"}), None], 90.0) == {"b": 90.0, "c": 60.0}
    assert polled(discovery, [frozenset({"c"}), frozenset()], 120.0) == {"c": 120.0}
    discovery = Discovery(Settings(), Random(1), 2)
    polled(discovery, [None, frozenset({"a"})], 0.0)
    assert discovery.begin(1.0) == [1]
    assert discovery.begin(SILENT_S) == [1, 0]
    polled(discovery, [frozenset(), frozenset()], SILENT_S)
    assert discovery.begin(SILENT_S + 1) == [0, 1]


def test_if_no_nsqlookupd_answers_all_are_asked_again_and_an_interval_of_nothing_is_no_busy_loop() -> None:
    discovery = Discovery(Settings(lookupd_poll_jitter=0.0), Random(1), 2)
    polls = polls_until(discovery, 60.0, [None, None], 0.0)
    assert polls[:6] == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5]
    assert {later - sooner for sooner, later in pairwise(polls[5:])} == {SILENT_S}
    assert discovery.begin(60.0) == [0, 1]
    discovery = Discovery(Settings(lookupd_poll_interval_s=0.0), Random(1), 1)
    polled(discovery, [frozenset({"a"})], 0.0)
    assert discovery.wait(0.0) >= SHORTEST_S


def test_a_nsqlookupd_that_sends_versions_is_watched_and_polled_only_after_failures() -> None:
    discovery = Discovery(Settings(lookupd_poll_jitter=0.0), Random(1), 2)
    unknown = LookupAnswer(frozenset(), "v1")
    polled(discovery, [unknown, unknown], 0.0)
    assert discovery.wait(0.0) == 60.0, "although the topic is unknown"
    assert [discovery.watch_wait(number, 0.0) for number in (0, 1)] == [0.0, 0.0]
    arguments, timeout_s = discovery.watch(0)
    assert arguments["version"] == "v1"
    assert WATCH_S * 2 / 3 <= float(arguments["wait"].removesuffix("s")) <= WATCH_S
    assert timeout_s > 20.0 + 10.0
    assert discovery.watched(0, LookupAnswer(frozenset({"a"}), "v2"), 0.0, 20.0) == {"a": 0.0}
    assert discovery.watch_wait(0, 20.0) == PAUSE_S
    assert discovery.watch(0)[0]["version"] == "v2"
    assert polls_until(discovery, 130.0, [None, None], 0.0) == [60.0, 120.0], "which ask none of them"

    assert discovery.watched(0, None, 130.0, 130.0) == {"a": 0.0}
    assert (discovery.watch_wait(0, 130.0), discovery.wait(130.0)) == (inf, FIRST_S)
    assert discovery.begin(130.5) == [0]
    discovery.answered(0, None, 130.5)
    discovery.end(130.5)
    assert (discovery.wait(130.5), discovery.begin(140.5)) == (SILENT_S, [0])
    discovery.answered(0, LookupAnswer(frozenset({"a"}), "v3"), 140.5)
    assert discovery.watch_wait(0, 140.5) == 0.0
    discovery.end(140.5)
    discovery.watched(0, None, 140.5, 141.0)
    assert discovery.wait(141.0) == 2 * FIRST_S, "a second failure in a row"


def test_after_a_loss_a_watched_nsqlookupd_is_asked_too_and_again_when_its_version_changes() -> None:
    discovery = Discovery(Settings(lookupd_poll_jitter=0.0), Random(1), 1)
    first = LookupAnswer(frozenset({"a"}), "v1")
    polled(discovery, [first], 0.0)
    discovery.poll_often()
    discovery.ask(10.1)
    assert discovery.begin(10.1) == [0]
    discovery.answered(0, first, 10.1)
    discovery.end(10.1)
    discovery.watched(0, first, 0.0, 10.2)
    assert discovery.wait(10.2) > LEAST_S
    assert discovery.watched(0, LookupAnswer(frozenset({"a"}), "v2"), 0.0, 10.2) == {"a": 0.0}
    assert discovery.wait(10.2) == pytest.approx(LEAST_S - 0.1)
    polled(discovery, [LookupAnswer(frozenset({"a"}))], 10.35)
    assert discovery.watch_wait(0, 10.35) == inf, "NSQ's nsqlookupd has taken its place"


def test_answers_of_lookup_are_bounded() -> None:
    reply = {"producers": [{"broadcast_address": "::1", "tcp_port": 1}, {"broadcast_address": "h", "tcp_port": 2}]}
    assert lookup_answer(json.dumps(reply).encode()) == LookupAnswer(frozenset({"[::1]:1", "h:2"}))
    for version, kept in (("v", "v"), (3, ""), (None, ""), ("v" * 65, "")):
        assert lookup_answer(json.dumps(reply | {"version": version}).encode()).version == kept
        assert lookup_answer(json.dumps({"version": version}).encode(), is_known=False).version == kept
    assert lookup_answer(b"<html>", is_known=False) == LookupAnswer(frozenset())
    assert lookup_url("h:1") == "http://h:1/lookup"
    assert lookup_url("https://h/x/") == "https://h/x/lookup"
    reply = LookupReply(200, "identity", 10.0, 0.0)
    reply.add(b'{"producers":', 1.0)
    reply.add(b"[]}", 10.0)
    assert reply.answer() == LookupAnswer(frozenset())
    with pytest.raises(ValueError, match="more than 10 s"):
        reply.add(b" ", 10.1)
    with pytest.raises(ValueError, match=f"more than {MAX_REPLY} bytes"):
        LookupReply(200, "identity", 10.0, 0.0).add(b" " * (MAX_REPLY + 1), 0.0)
    with pytest.raises(ValueError, match="compressed"):
        LookupReply(200, "gzip", 10.0, 0.0)


@each(
    "reply",
    [b"", b"{", b"[]", b"3", b'{"producers":3}', b'{"producers":[3]}', b'{"producers":[{}]}', b"[" * 100_000]
    + [b'{"producers":[{"broadcast_address":"h","tcp_port":"x"}]}'],
)
def test_an_answer_of_another_form_is_an_error(reply: bytes) -> None:
    with pytest.raises(ValueError):
        lookup_answer(reply)


# addresses


def test_addresses() -> None:
    assert split_address("h:1") == ("h", 1)
    assert split_address("[::1]:4150") == ("::1", 4150)
    assert check_address("/run/nsqd.sock") == "/run/nsqd.sock"
    assert check_address("unix:/run/nsqd.sock") == "unix:/run/nsqd.sock"
    assert path_of("/run/nsqd.sock") == path_of("unix:/run/nsqd.sock") == "/run/nsqd.sock"
    for bad in ("h", ":1", "h:", "h:x", "h:0", "h:65536", "h:-1"):
        with pytest.raises(ValueError):
            check_address(bad)
