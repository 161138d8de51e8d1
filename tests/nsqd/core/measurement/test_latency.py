"""End-to-end latency: NSQ's form of the answer, and the window that slides by halves."""

from nsqd.core.measurement.latency import Latency, result_of
from shared.histogram import ERROR, Histogram

SECOND = 1_000_000_000
WINDOW = 600 * SECOND
NOON = 1000 * WINDOW  # a half begins here


def test_the_answer_has_the_highest_percentile_first() -> None:
    latency = Latency((0.5, 1.0, 0.95), WINDOW)
    latency.record_many(list(range(1, 61)), NOON)
    assert latency.result(NOON) == {
        "count": 60,
        "percentiles": [{"quantile": 1, "value": 60}, {"quantile": 0.95, "value": 57}, {"quantile": 0.5, "value": 30}],
    }
    assert str(latency.result(NOON)["percentiles"][0]["quantile"]) == "1"  # as Go prints it


def test_what_is_old_is_forgotten_half_by_half_and_a_snapshot_stays_as_it_is() -> None:
    latency = Latency((1,), WINDOW)
    assert latency.result(NOON) == {"count": 0, "percentiles": [{"quantile": 1, "value": 0}]}
    latency.record_many([10], NOON)
    snapshot = latency.snapshot(NOON)
    latency.record_many([20], NOON + WINDOW // 2)
    assert latency.result(NOON + WINDOW - 1)["count"] == 2
    assert latency.result(NOON + WINDOW) == {"count": 1, "percentiles": [{"quantile": 1, "value": 20}]}
    assert latency.result(NOON + 3 * WINDOW // 2)["count"] == 0
    assert snapshot.result()["count"] == 1
    latency = Latency((1,), 2)  # ns: as many halves go by as there are
    latency.record_many([10], NOON)
    assert latency.result(NOON + 10**18)["count"] == 0


def test_a_clock_that_is_behind_loses_nothing_and_no_latency_is_negative() -> None:
    latency = Latency((1,), WINDOW)
    latency.record_many([-5 * SECOND], NOON)  # the wall clock was set back
    assert latency.result(NOON) == {"count": 1, "percentiles": [{"quantile": 1, "value": 0}]}
    latency.record_many([30], NOON - 1)  # a turn that began before the snapshot
    assert latency.result(NOON)["count"] == 2


def test_a_topic_is_all_its_channels_and_the_node_everything_for_ever() -> None:
    total = Histogram()
    first, second = Latency((1,), WINDOW, total), Latency((1,), WINDOW, total)
    first.record_many([1, 2], NOON)
    second.record_many([3], NOON + 5 * WINDOW)
    assert first.result(NOON + 5 * WINDOW)["count"] == 0
    assert (total.count, total.sum) == (3, 6)
    assert result_of([]) == result_of([None]) == {"count": 0, "percentiles": None}
    fast, slow = Latency((0.5, 1), WINDOW), Latency((0.5, 1), WINDOW)
    fast.record_many([SECOND] * 3, NOON)
    slow.record_many([60 * SECOND], NOON - WINDOW // 2)
    result = result_of([fast.snapshot(NOON), None, slow.snapshot(NOON)])
    assert result["count"] == 4
    highest, middle = (entry["value"] for entry in result["percentiles"])
    assert highest == 60 * SECOND
    assert abs(middle - SECOND) <= ERROR * SECOND
