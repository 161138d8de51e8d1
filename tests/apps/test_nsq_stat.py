"""The rows of nsq_stat: counts out of answers that may lie, sums, and rates over nodes that come and go."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.nsq_stat import COUNTS, HEADER, Options, Rates, Stats, channel_stats, check, row
from shared.flags import read_flags
from tests.cases import each


def stats(
    messages: int = 0, depth: int = 0, in_flight: int = 0, deferred: int = 0, finished: dict[str, int] | None = None
) -> Stats:
    return Stats(depth, 0, in_flight, deferred, 0, 0, messages, 0, 0, finished)


def answer(**counts: Any) -> dict[str, Any]:
    channel = {"channel_name": "c", **counts}
    topics = [{"topic_name": "other", "channels": [{"channel_name": "c", "depth": 99}]}]
    return {"topics": [*topics, {"topic_name": "t", "channels": [{"channel_name": "d"}, channel]}]}


def test_the_counts_are_of_the_topic_and_the_channel() -> None:
    names = "depth backend_depth in_flight_count deferred_count requeue_count timeout_count message_count client_count"
    counts = {name: number for number, name in enumerate(names.split(), 1)}
    assert channel_stats(answer(**counts), "t", "c") == Stats(1, 2, 3, 4, 5, 6, 7, 8)
    clients = [{"remote_address": "h:1", "connect_ts": 7, "finish_count": 5}, {"remote_address": "h:2"}]
    found = channel_stats(answer(clients=clients), "t", "c")
    assert found.finished == {"h:1 7": 5, "h:2 None": 0}


@each("content", [
    {"topics": 1}, {"topics": [1]}, {"topics": [{"topic_name": "t", "channels": {"c": 1}}]}, answer(depth="1"),
    answer(depth=1.5), answer(depth=True), answer(message_count=2**63), answer(client_count=None), answer(clients=1),
    answer(clients=[1]), answer(clients=[{"finish_count": "5"}]),
])  # fmt: skip
def test_an_answer_of_another_form_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="answered"):
        channel_stats(content, "t", "c")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["topics", "topic_name", "channels", "channel_name", "depth"]), inner | st.sampled_from(["t", "c"])
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["topics", "x"]), JSON))
def test_any_answer_has_counts_or_none_or_is_refused(content: dict[str, Any]) -> None:
    try:
        found = channel_stats(content, "t", "c")
    except ValueError:
        return
    assert found is None or all(type(getattr(found, name)) is int for name in COUNTS)


def test_a_row_has_the_columns_of_the_header() -> None:
    line = row((11, 22), Stats.total([Stats(10, 4, 1, 2, 3, 4, 500, 6), Stats(1, 1, 1, 1, 1, 1, 1, 1)]))
    assert line == "     11      22 |      11       6       5     2     3 |       4       5          501       7\n"
    first, second = HEADER.splitlines()
    assert " ".join(second.split()) == "ingress egress | total mem disk inflt def | req t-o msgs clients"
    bars = [[match.start() for match in re.finditer(r"\|", one)] for one in (second, line)]
    assert bars[0] == bars[1]
    assert len(first) == len(second)


def test_rates_are_changes_in_a_second_cut_toward_zero_as_in_go() -> None:
    rates = Rates(2.0)
    assert rates.update(0.0, {"a": stats(100, 10), "b": stats(50)}) == (0, 0)
    assert rates.update(2.01, {"a": stats(120, 14), "b": stats(51)}) == (10, 8)
    assert rates.update(4.0, {"a": stats(120, 4), "b": stats(51)}) == (0, 5)
    assert rates.update(6.0, {"a": stats(123, 4), "b": stats(51)}) == (1, 1)


@each("has_clients", [True, False])
@each("before, after, finished", [
    ((5, 0, 5, 0), (5, 5, 0, 0), 0),  # messages timed out
    ((0, 0, 0, 0), (5, 0, 0, 5), 0),  # came with a delay
    ((5, 5, 0, 0), (5, 0, 5, 0), 0),  # delivered
    ((5, 0, 5, 0), (5, 0, 0, 5), 0),  # requeued with a delay
    ((5, 0, 5, 0), (8, 1, 5, 0), 2),
])  # fmt: skip
def test_egress_is_what_was_finished(
    before: tuple[int, ...], after: tuple[int, ...], finished: int, has_clients: bool
) -> None:
    rates = Rates(1.0)
    rates.update(0.0, {"a": stats(*before, {"x": 10} if has_clients else None)})
    _, egress = rates.update(1.0, {"a": stats(*after, {"x": 10 + finished} if has_clients else None)})
    assert egress == finished


def test_consumers_come_and_go() -> None:
    rates = Rates(1.0)
    rates.update(0.0, {"a": stats(100, 50, 0, 0, {"x": 30, "y": 20})})
    assert rates.update(1.0, {"a": stats(100, 40, 0, 0, {"x": 34, "y": 20, "z": 6})}) == (0, 10)
    left = rates.update(2.0, {"a": stats(100, 30, 0, 0, {"x": 34, "y": 22})})
    assert left == (0, 10), "z has finished 8 before it left"
    assert rates.update(3.0, {"a": stats(100, 30, 0, 0, {"x": 3})}) == (0, 3)
    rates = Rates(1.0)
    rates.update(0.0, {"a": stats(100, 100, finished={})})
    assert rates.update(1.0, {"a": stats(100, 0, finished={"new": 0})}) == (0, 0), "the channel was emptied"


def test_a_node_that_was_away_counts_over_all_of_that_time_and_a_new_one_makes_no_leap() -> None:
    rates = Rates(1.0)
    rates.update(0.0, {"a": stats(0), "b": stats(0)})
    assert rates.update(1.0, {"a": stats(10)}) == (10, 10)
    assert rates.update(2.0, {"a": stats(20), "b": stats(40)}) == (30, 30)
    rates = Rates(1.0)
    rates.update(0.0, {"a": stats(1_000_000)})
    assert rates.update(1.0, {"a": stats(1_000_000), "b": stats(2_000_000)}) == (0, 0)
    assert rates.update(2.0, {"a": stats(7), "b": stats(2_000_000)}) == (7, 7)


@given(
    st.lists(
        st.tuples(
            st.floats(0.001, 100.0),
            st.dictionaries(st.sampled_from("abc"), st.builds(stats, st.integers(0, 2**62), st.integers(0, 2**62))),
        )
    )
)
def test_rates_are_finite_and_never_come_from_nowhere(rounds: list[tuple[float, dict[str, Stats]]]) -> None:
    rates, now = Rates(1.0), 0.0
    for pause, nodes in rounds:
        now += pause
        ingress, egress = rates.update(now, nodes)
        assert ingress >= 0
        assert math.isfinite(egress)
        assert egress >= 0
        assert nodes or (ingress, egress) == (0, 0)


GOOD = ("-topic=t", "-channel=c", "-nsqd-http-address=a:1")


@each("flags, error", [
    (("-topic=t", "-nsqd-http-address=a:1"), "--topic and --channel are required"),
    ((*GOOD, "-interval=0"), "--interval should be positive"),
    ((*GOOD, "-http-client-connect-timeout=-1s"), "--http-client-connect-timeout should be positive"),
    ((*GOOD, "-http-client-request-timeout=0"), "--http-client-request-timeout should be positive"),
    ((*GOOD, "-count=0"), "--count should be positive"),
    (GOOD[:2], "--nsqd-http-address or --lookupd-http-address required (nsq_stat -help lists the flags)"),
    ((*GOOD, "-lookupd-http-address=b:1"), "use --nsqd-http-address or --lookupd-http-address not both"),
    ((*GOOD, "-nsqd-http-address=http://b:1"), "--nsqd-http-address error - address should not contain scheme"),
])  # fmt: skip
def test_wrong_options_are_refused_in_the_originals_words(flags: tuple[str, ...], error: str) -> None:
    with pytest.raises(ValueError) as raised:
        check(Options(**read_flags(Options, "nsq_stat", flags).values))
    assert str(raised.value) == error


def test_right_options_are_accepted() -> None:
    read = read_flags(Options, "nsq_stat", [*GOOD, "-count=3"])
    check(Options(**read.values))
    assert read.errors == []
    assert read_flags(Options, "nsq_stat", ["-count=x"]).errors
    assert read_flags(Options, "nsq_stat", [f"-count={2**31}"]).errors
