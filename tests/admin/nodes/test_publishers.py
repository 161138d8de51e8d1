"""The connections that publish to a topic, and their rates."""

from typing import Any

from admin.nodes.publishers import MOST_PUBLISHERS, publishers_of, with_publish_rates


def producer(address: str, count: int, topic: str = "t", connected: int = 100, **more: Any) -> dict[str, Any]:
    counts = [{"topic": topic, "count": count}]
    return {"hostname": "web", "remote_address": address, "connect_ts": connected, "pub_counts": counts, **more}


def rates(now: list[Any], before: list[Any], seconds: float = 2.0) -> dict[str, float | None]:
    found = (publishers_of({"n:1": {"producers": producers}}, "t") for producers in (now, before))
    return {one.address: one.rate for one in with_publish_rates(*found, seconds)}


def test_the_fastest_publisher_comes_first() -> None:
    before = [producer("a:1", 10), producer("b:1", 500), producer("c:1", 9, connected=50)]
    now = [
        producer("a:1", 14),
        producer("b:1", 1380),
        producer("c:1", 3),
        producer("new:1", 6),
        producer("x:1", 9, "u"),
    ]
    assert rates(now, before) == {"b:1": 440.0, "new:1": 3.0, "a:1": 2.0, "c:1": 1.5}
    assert list(rates(now, before)) == ["b:1", "new:1", "a:1", "c:1"]
    assert set(rates(now, [], 0.0).values()) == {None}, "it is not known yet"


def test_a_publisher_has_a_name_and_they_are_bounded() -> None:
    (one,) = publishers_of(
        {"n:1": {"producers": [producer("a:1", 1, auth_identity="shop", user_agent="go-nsq/1")]}}, "t"
    )
    assert (one.name, one.user_agent, one.node) == ("shop web a:1", "go-nsq/1", "n:1")
    crowd = [producer(f"a:{port}", port) for port in range(2 * MOST_PUBLISHERS)]
    assert len(rates(crowd, [])) == MOST_PUBLISHERS
