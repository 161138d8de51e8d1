"""Nodes' sums and columns put together, ordered, and paged; lies included."""

from typing import Any

from admin.nodes.merge import topic_of
from admin.nodes.overview import RATES, Overview, columns_for, ordered, overview_of, rates, rows_of
from admin.nodes.views import Row
from admin.output.tables import TOPICS
from nsqd.http.overview import COLUMNS

NOW = 1_700_000_000


def figures(names: list[str], **columns: list[int]) -> dict[str, Any]:
    totals = {"topics": len(names), "depth": sum(columns.get("depth", ())), "messages": 5}
    return {"totals": totals, "health": "OK", "oldest": 7, "names": names, "columns": columns}


def test_nodes_add_up_whatever_topics_they_have() -> None:
    nodes = {
        "a:1": figures(["x", "y"], depth=[1, 2], channels=[1, 3], oldest=[0, 9]),
        "b:1": figures(["x", "y"], depth=[10, 20], channels=[2, 1], oldest=[5, 4])
        | {"health": "NOK - disk", "oldest": 3},
        "c:1": figures(["z"], depth=[100], channels=[1], oldest=[0]),
    }
    found = overview_of(nodes, [], ("depth", "channels", "oldest"))
    assert found.columns["depth"] == {"x": 11, "y": 22, "z": 100}
    assert found.columns["channels"] == {"x": 2, "y": 3, "z": 1}
    assert found.columns["oldest"] == {"x": 5, "y": 4, "z": 0}
    assert (found.totals["depth"], found.totals["messages"], found.oldest) == (133, 15, 3)
    assert found.names == {"x", "y", "z"}
    channels = [
        {"channel_name": "c", "depth": 2, "paused": True, "in_flight_count": 3, "deferred_count": 1},
        {"channel_name": "d", "depth": 0, "client_count": 2},
    ]
    raw = {"topic_name": "o", "depth": 1, "message_count": 4, "paused": False, "channels": channels}
    found = overview_of({"a:1": figures(["x"], held=[1])}, [topic_of(raw, "b:1", "h", NOW)], ("held",))  # an original
    assert found.columns["held"] == {"x": 1, "o": 7}
    assert (found.totals["depth"], found.totals["in_flight"], found.totals["clients"]) == (3, 3, 2)
    assert (found.paused, found.answered) == ({"o/c"}, {"a:1", "b:1"})


def seen(answered: str = "a:1 b:1", **columns: dict[str, int]) -> Overview:
    return Overview(columns=dict(columns), answered=set(answered.split()))


def test_orders() -> None:
    names = ["b", "a", "Abc"]
    assert ordered(names, seen(), None, 0, "", "name", False) == ["Abc", "a", "b"]
    assert ordered(names, seen(), None, 0, "", "name", True) == ["b", "a", "Abc"]
    assert ordered(names, seen(), None, 0, "B", "name", False) == ["Abc", "b"]
    assert ordered(names, seen(depth={"a": 1, "b": 9}), None, 0, "", "depth") == ["b", "a", "Abc"]
    assert ordered(names, seen(depth={"a": 1, "b": 9}), None, 0, "", "depth", False) == ["a", "b", "Abc"]
    assert ordered(names, seen(oldest={"a": 5, "b": 0, "Abc": 2}), None, 0, "", "oldest") == ["Abc", "a", "b"]
    assert ordered(names, seen(oldest={"a": 5, "b": 0, "Abc": 2}), None, 0, "", "oldest", False) == ["a", "Abc", "b"]
    before, now = seen(messages={"a": 10, "b": 50}), seen(messages={"a": 30, "b": 51, "Abc": 900})
    assert ordered(names, now, before, 2.0, "", "rate_in") == ["a", "b", "Abc"]  # of what is new nothing is known yet
    assert ordered(names, now, None, 0, "", "rate_in") == ["Abc", "a", "b"]


def test_the_rate_of_finishing_is_of_one_channel_and_without_what_was_buried() -> None:
    before = seen(
        messages={"a": 0, "b": 0, "p": 0}, held={"a": 0, "b": 10, "p": 0}, buried={"a": 0, "b": 0, "p": 0},
        channels={"a": 1, "b": 1, "p": 1},
    )  # fmt: skip
    now = seen(
        messages={"a": 30, "b": 0, "p": 20}, held={"a": 10, "b": 0, "p": 0}, buried={"a": 0, "b": 0, "p": 20},
        channels={"a": 2, "b": 1, "p": 1},
    )  # fmt: skip
    assert rates(now, before, 2.0, "rate_out") == {"a": 12.5, "b": 5.0, "p": 0.0}
    assert ordered(["a", "b", "p"], now, before, 2.0, "", "rate_out") == ["a", "b", "p"]
    before, now = seen("a:1", messages={"t": 10}), seen("a:1 b:1", messages={"t": 5000})
    assert rates(now, before, 2.0, "rate_in") == {}, "two looks at different nodes"
    assert rates(now, now, 2.0, "rate_in") == {"t": 0.0}


def test_what_takes_longest_to_drain_is_first() -> None:
    held = {"slow": 100, "fast": 100, "grows": 1, "stalls": 5, "none": 0}
    before = seen(depth=held, held=held)
    held = {"slow": 90, "fast": 10, "grows": 9, "stalls": 5, "none": 0, "new": 7}
    names, now = sorted(held), seen(depth=held, held=held)
    assert ordered(names, now, before, 1.0, "", "drain") == ["grows", "new", "stalls", "slow", "fast", "none"]
    assert ordered(names, now, before, 1.0, "", "drain", False) == ["none", "fast", "slow", "new", "stalls", "grows"]
    assert rates(now, before, 2.0, "drain")["grows"] == -4.0
    assert ordered(names, now, None, 0.0, "", "drain")[0] == "none"  # the only one of which it is known


def test_the_order_is_that_of_the_slowest_channels_where_known() -> None:
    columns = ("depth", "held", "drain")
    depths = {"grows": 1, "stalls": 1, "slow": 900, "quick": 900, "empty": 0, "old": 5}
    drains = {"grows": -3, "stalls": -2, "slow": 3000, "quick": 9, "empty": 0, "old": -1}
    other = {"grows": 7, "stalls": 0, "slow": 9, "quick": -1, "empty": 0, "old": 0}
    names = sorted(depths)
    values = [[one[name] for name in names] for one in (depths, drains, other)]
    nodes = {
        "a:1": figures(names, depth=values[0], held=values[0], drain=values[1]),
        "b:1": figures(names, depth=values[0], held=values[0], drain=values[2]),
    }
    now = overview_of(nodes, [], columns)
    assert ordered(names, now, None, 0.0, "", "drain") == ["grows", "stalls", "slow", "quick", "empty", "old"]
    before = overview_of(nodes, [], columns)
    before.columns["held"]["old"] = 9
    assert ordered(names, now, before, 1.0, "", "drain")[:2] == ["grows", "old"], "two looks stand for it"


def test_a_topic_takes_as_long_as_its_slowest_channel() -> None:
    """A topic showed 42.9 min, 2.5 h and growing within four minutes, while one of its channels was stalled."""

    def part(channel: object, depth: object, change: object, seconds: object = 300) -> dict[str, Any]:
        return {"channel": channel, "depth": depth, "change": change, "seconds": seconds}

    fast, stalled = part("fast", 9000, -3000), part("index", 3000, 0)
    one = {"topic_name": "t", "depth": 12000, "backlogs": [stalled, fast]}
    row = rows_of([one], [])["t"]
    assert (row.drain, row.slowest, row.gain, row.is_growing) == ("stalled", 3000, 0.0, False)
    row = rows_of([one | {"backlogs": [fast]}, one | {"backlogs": [part("fast", 0, 3600)]}], [])["t"]
    assert (row.drain, row.slowest, row.is_growing) == ("growing", 9000, True)
    row = rows_of([one | {"backlogs": [fast, part("new", 50, None, 0)]}], [])["t"]
    assert row.drain == "15.0 min"  # of the other channel nothing is known yet
    parts = ((5, None), (-5, 1), (5, 1, 0), (True, 1), (0, 9))
    for lie in (7, [7], *([part("c", *one)] for one in parts)):
        row = rows_of([one | {"backlogs": lie}], [])["t"]
        assert (row.drain, row.slowest) == ("-", None)


def test_every_column_of_the_table_has_an_order_over_all_topics() -> None:
    keys = {column.key for column in TOPICS.columns}
    assert {column for key in keys for column in columns_for(key)} <= {*COLUMNS, "drain"}
    assert RATES.keys() <= keys


def test_rows_of_several_nodes() -> None:
    one = {"topic_name": "t", "depth": 1, "messages": 5, "channels": 2, "clients": 1, "oldest": 9}
    found = rows_of([one, one | {"topic_paused": True, "channels": 1, "oldest": 4}], [Row("o", False, *[1] * 10)])
    assert found["t"] == Row("t", True, 2, 0, 0, 10, 0, 0, 2, 2, 0, 4)
    assert found["o"].depth == 1
    one = {"topic_name": "t", "paused": True, "topic_paused": False, "paused_channels": 1}  # of its channels
    found = rows_of([one, one], [])["t"]
    assert (found.paused, found.paused_channels) == (False, 1)
    assert rows_of([one | {"topic_paused": True}, one], [])["t"].paused
