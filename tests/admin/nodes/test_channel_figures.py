"""Figures of a channel: rates between two answers, shares of failures, times to drain, and whose pauses they are."""

from typing import Any

from admin.nodes.channel_figures import (
    MOST_BEHIND,
    SHARE_SECONDS,
    UNKNOWN_RATES,
    Rates,
    client_shares,
    current,
    failures_of,
    latest_rates,
    oldest_of,
    pauses_of,
    rates_by_node,
    rates_of,
    share,
)
from admin.nodes.series import NAMES
from shared.json_fields import JsonObject
from tests.cases import each


def channel(node: str = "a", **counts: int) -> JsonObject:
    names = ("depth", "in_flight_count", "deferred_count", "message_count", "requeue_count", "timeout_count")
    return {"node": node} | dict.fromkeys(names, 0) | counts


def test_rates_of_a_channel() -> None:
    before = channel(message_count=100, depth=5, buried_count=30)
    now = channel(message_count=120, depth=11, buried_count=42, requeue_count=8, timeout_count=4)
    assert rates_of(now, before, 2.0) == Rates(10.0, 1.0, 4.0, 2.0, -3.0), "of 20, 12 were buried, 6 are ready (D4)"
    now = channel(message_count=10, in_flight_count=2, deferred_count=3)
    assert rates_of(now, channel(), 1.0) == Rates(10.0, 5.0, 0.0, 0.0, -5.0), "it never reported buried messages"
    assert rates_of(channel(depth=5), channel(buried_count=3), 1.0).finished == 0.0, "kicked, not finished backwards"
    assert rates_of(channel(), channel(), 1.0) == Rates(0.0, 0.0, 0.0, 0.0, 0.0)
    assert rates_of(channel(message_count=5), None, 1.0) == UNKNOWN_RATES
    assert rates_of(channel(message_count=5), channel(), 0.0) == UNKNOWN_RATES, "no time has passed"
    for counter in ("message_count", "requeue_count", "timeout_count"):  # the node was restarted
        assert rates_of(channel(**{counter: 4}), channel(**{counter: 5}), 1.0) == UNKNOWN_RATES


def test_the_messages_of_a_promoted_log_are_not_published() -> None:
    """A failover of 2,000 messages was 342 published/s on the channel's page."""
    before = channel(message_count=100, depth=100, topic_messages=100, topic_depth=0)
    now = channel(message_count=2110, depth=2108, topic_messages=110, topic_depth=0)
    assert rates_of(now, before, 2.0) == Rates(5.0, 1.0, 0.0, 0.0, -1004.0)
    waited = before | {"topic_depth": 3000}  # a topic that was paused gives what it has
    assert rates_of(now, waited, 2.0).published == 1005.0
    restarted = now | {"topic_messages": 4}
    assert rates_of(restarted, before, 2.0).published == 0.0


def test_the_sum_is_known_only_if_all_nodes_have_answered_before() -> None:
    """D12: after a change of nodes, the counters of one more node were taken for a rate."""
    first = [channel("a", message_count=10), channel("b", message_count=20)]
    then = [channel("a", message_count=14), channel("b", message_count=26)]
    rates, total = rates_by_node(then, first, 2.0)
    assert (rates["a"].published, rates["b"].published, total.published) == (2.0, 3.0, 5.0)
    assert rates_by_node(then[:1], first, 2.0)[1].published == 2.0, "one node less needs no third answer"
    for now, before in ((then, first[:1]), ([], []), (then, [])):
        rates, total = rates_by_node(now, before, 2.0)
        assert total == UNKNOWN_RATES
        assert rates.keys() == {one["node"] for one in now}
    restarted = [channel("a", message_count=14), channel("b", message_count=1)]
    rates, total = rates_by_node(restarted, first, 2.0)
    assert (rates["a"].published, rates["b"], total) == (2.0, UNKNOWN_RATES, UNKNOWN_RATES)


def test_the_rates_of_the_latest_step_that_is_known() -> None:
    """After a change of nodes five rates were "-" beside a chart that knew them."""
    hour = {"step": 10, "from": 1000} | {name: [1, 50, None] for name in NAMES} | {"requeued": [2, 0, None]}
    assert latest_rates(hour) == Rates(5.0, 5.0, 0.0, 5.0)
    assert latest_rates(hour | {"requeued": [2, None, None]}) == Rates(0.1, 0.1, 0.2, 0.1)
    assert latest_rates(hour | {"requeued": [None] * 3}) == latest_rates(None) == UNKNOWN_RATES
    assert current(hour, 1030 + MOST_BEHIND) == hour
    assert current(hour, 1031 + MOST_BEHIND) is current(None, 0) is None, "hours ago is not now"


@each("failed, deliveries, words", [
    (0, 0, "-"), (0, 5, "0 %"), (1, 1000, "0.1 %"), (1, 10, "10 %"), (999, 1000, "100 %"), (5, 5, "100 %"),
])  # fmt: skip
def test_shares(failed: int, deliveries: int, words: str) -> None:
    assert share(failed, deliveries) == words
    client = {
        "requeue_count": failed,
        "finish_count": deliveries - failed,
        "in_flight_count": failed,
        "ready_count": deliveries,
    }
    assert client_shares(client) == {"failure_share": words, "saturation": words}


def series(**values: Any) -> JsonObject:
    count = len(next(iter(values.values())))
    return {"step": 10, "from": 0} | {name: [0] * count for name in NAMES} | values


def test_failures_of_the_latest_minutes() -> None:
    steps = SHARE_SECONDS // 10
    hour = series(finished=[99] + [1] * steps, requeued=[99, None] + [1] * (steps - 1), timed_out=[99] + [2] * steps)
    assert failures_of(hour) == (steps - 1 + 2 * steps, steps - 1 + 3 * steps)
    assert failures_of(series(finished=[5], requeued=[None], timed_out=[None])) is None
    assert failures_of(series(finished=[None], requeued=[None], timed_out=[None])) is None
    assert failures_of(None) is None


def test_whose_pauses_hold_messages_back() -> None:
    pauses = [{"name": name} for name in ("t", "t/c", "t/d", "u/c", "c")]
    assert [one["name"] for one in pauses_of(pauses, "t", "c")] == ["t", "t/c"]


def test_ages_by_node_and_lies() -> None:
    ages = {
        "a": {"channels": {"c": 7}}, "b": {"channels": 3}, "d": {}, "e": {"channels": {"c": "x"}},
        "f": {"channels": {"c": -1}},
    }  # fmt: skip
    assert oldest_of(ages, "c") == {"a": 7, "b": 0, "d": 0, "e": 0, "f": 0}
