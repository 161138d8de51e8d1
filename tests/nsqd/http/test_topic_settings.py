"""Which settings of a topic `/topic/create` would change: those need the right to configure. No socket."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nsqd.core.retention.policy import TopicConfig
from nsqd.http.topic_config import changes_what_is_there, read_config

TOPICS = {
    "plain": SimpleNamespace(config=TopicConfig()),
    "kept": SimpleNamespace(config=TopicConfig(retention=60_000_000_000, max_attempts=1)),
}
TOLD = {"elsewhere": TopicConfig(max_attempts=1), "kept": TopicConfig(max_attempts=3)}


@pytest.mark.parametrize(
    ("topic", "arguments", "is_alone", "in_cluster"),
    [
        ("new", {"retention": "0s", "durability": "os"}, False, False),
        ("plain", {"retention": "0s"}, True, True),
        ("plain", {"retention": "default", "durability": "default"}, False, False),
        ("kept", {"retention": "60s"}, False, True),  # what other nodes were told would change
        ("kept", {"retention": "60s", "max_attempts": "1"}, False, True),
        ("kept", {"retention": "1m", "max_attempts": "2"}, True, True),
        ("elsewhere", {"max_attempts": "1"}, False, False),
        ("elsewhere", {"max_attempts": "0"}, False, True),
        ("elsewhere", {"replicate": "1"}, False, True),
    ],
)
def test_what_exists_and_would_change(topic: str, arguments: dict[str, str], is_alone: bool, in_cluster: bool) -> None:
    change = read_config({"topic": topic, **arguments}, 3)
    assert change is not None
    for cluster, expected in ((None, is_alone), (SimpleNamespace(config_of=TOLD.get), in_cluster)):
        node = SimpleNamespace(broker=SimpleNamespace(topics=TOPICS), cluster=cluster)
        assert changes_what_is_there(node, topic, change) is expected  # type: ignore[arg-type]
