"""The slowest part of a topic over the last minutes; nodes may lie."""

from admin.nodes.backlogs import MOST_BACKLOGS, PartBacklog, add_backlogs, gains_of, slowest


def test_the_slowest_part() -> None:
    fast, slow, stalled, growing = PartBacklog(10, 5.0), PartBacklog(10, 0.1), PartBacklog(1, 0.0), PartBacklog(1, -0.1)
    parts = [PartBacklog(0, -5.0), PartBacklog(9, None), fast, slow, stalled, growing]
    assert slowest(parts) is growing
    assert slowest(parts[:-1]) is stalled
    assert slowest(parts[:-2]) is slow
    assert slowest(parts[:-3]) is fast
    assert slowest(parts[:-4]) is slowest([]) is None


def test_nodes_add_up() -> None:
    parts: dict[str, PartBacklog] = {}
    add_backlogs(parts, [{"channel": "c", "depth": 5, "change": -30, "seconds": 300}])
    add_backlogs(parts, [{"channel": "c", "depth": 0, "change": -60, "seconds": 60}, {"channel": "d", "depth": 1}])
    assert parts == {"c": PartBacklog(5, 1.1), "d": PartBacklog(1, None)}
    add_backlogs(parts, [{"channel": "c", "depth": 2, "change": None, "seconds": 0}])
    assert parts["c"] == PartBacklog(7, None)
    many = [{"channel": str(number), "depth": 1} for number in range(50)]
    parts = {}
    add_backlogs(parts, many)
    assert len(parts) == MOST_BACKLOGS


def test_the_gain_of_a_channel_is_known_if_all_its_nodes_report_it() -> None:
    one = {"channels": {"c": 0, "d": 0, "e": 0}, "changes": {"c": [-30, 300], "d": [5, 10], "e": [1, 0]}}
    other = {"channels": {"c": 0, "d": 0}, "changes": {"c": [-60, 60]}}
    assert gains_of({"a:1": one}) == {"c": 0.1, "d": -0.5}
    assert gains_of({"a:1": one, "b:1": other}) == {"c": 1.1}
    assert gains_of({"a:1": one, "b:1": {"channels": {"c": 0}}}) == {"d": -0.5}, "one of an earlier version"
    assert gains_of({"a:1": {"channels": 7}, "b:1": {"channels": {"c": 0}, "changes": [5]}}) == {}
