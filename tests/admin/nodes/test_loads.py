"""The load of nodes, from what they report twice."""

from typing import Any

from admin.nodes.loads import NodeLoad, loads_of


def answer(messages: int, cpu_ms: int, start_time: int = 7) -> dict[str, Any]:
    process = {"start_time": start_time, "cpu_ms": cpu_ms, "memory": 5}
    return {"totals": {"messages": messages}, "process": process}


def test_rates_are_differences() -> None:
    (load,) = loads_of({"n": answer(900, 3000)}, {"n": answer(20, 2000)}, 2.0).values()
    assert load == NodeLoad(7, 5, cpu=50.0, rate_in=440.0)
    unknown = NodeLoad(7, 5)
    assert loads_of({"n": answer(900, 3000)}, {}, 0.0) == {"n": unknown}
    assert loads_of({"n": answer(900, 3000)}, {"n": answer(20, 2000, start_time=6)}, 2.0) == {"n": unknown}, "restarted"
    assert loads_of({"n": answer(10, 3000)}, {"n": answer(20, 2000)}, 2.0) == {"n": unknown}, "its topics were deleted"
    assert loads_of({"n": {"totals": {}}}, {"n": {}}, 2.0) == {"n": NodeLoad()}, "it is older, or NSQ's"
