"""The settings of topics: how values are read, shown, stored and refused."""

from typing import Any

import msgpack
import pytest

from shared.topic_config import MOST, SETTINGS, Durability, TopicConfig, dump, load
from tests.cases import each

ALL = TopicConfig(Durability.OS, 90_000_000_000, 5, 3, 0)


@each("name, text, value, shown", [
    ("durability", "interval", Durability.INTERVAL, "interval"), ("retention", "90m", 5400 * 10**9, "1h30m0s"),
    ("retention", "0", 0, "0s"), ("retention_bytes", "007", 7, 7), ("retention_bytes", str(MOST), MOST, MOST),
    ("replicate", "16", 16, 16), ("max_attempts", "0", 0, 0),
])  # fmt: skip
def test_a_text_is_read_and_shown(name: str, text: str, value: Any, shown: str | int) -> None:
    setting = SETTINGS[name]
    assert (setting.read(text), setting.show(value)) == (value, shown)


@each("name, text", [
    ("durability", "never"), ("retention", "-1s"), ("retention", "2 days"), ("retention_bytes", "1e9"),
    ("retention_bytes", "-1"), ("retention_bytes", str(MOST + 1)), ("retention_bytes", "9" * 30), ("replicate", "0"),
    ("replicate", "17"), ("replicate", "\u0661"), ("max_attempts", "65536"), ("max_attempts", ""), ("max_attempts", "0x10"),
])  # fmt: skip
def test_a_text_that_is_no_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError):
        SETTINGS[name].read(text)


@each("config", [TopicConfig(), ALL, TopicConfig(replicate=2)])
def test_settings_are_stored_by_name(config: TopicConfig) -> None:
    assert load(msgpack.unpackb(msgpack.packb(dump(config)))) == config
    assert load(dump(config) | {"of_a_later_version": 1}) == config


@each(
    "plain", [None, [], {"replicate": 0}, {"replicate": True}, {"replicate": "2"}, {"durability": 1}, {"retention": -1}]
)
def test_what_was_not_stored_so_is_refused(plain: Any) -> None:
    with pytest.raises(ValueError):
        load(plain)
