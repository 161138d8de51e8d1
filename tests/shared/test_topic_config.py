"""The settings of topics: how values are read, shown, stored and refused."""

from typing import Any

import msgpack
import pytest

from shared.retry import Retry
from shared.topic_config import (
    MOST,
    MOST_CHANNELS,
    SETTINGS,
    Durability,
    TopicConfig,
    dump,
    load,
)
from tests.cases import each
from tests.nsqd.any_config import CHOICES

ALL = TopicConfig(**{name: values[-1] for name, values in CHOICES.items()})
OF_A_CHANNEL = TopicConfig(rate=2).with_channel("c", TopicConfig(max_attempts=0, retry=Retry()))


@each("name, text, value, shown", [
    ("durability", "interval", Durability.INTERVAL, "interval"), ("retention", "90m", 5400 * 10**9, "1h30m0s"),
    ("retention", "0", 0, "0s"), ("retention_bytes", "007", 7, 7), ("retention_bytes", str(MOST), MOST, MOST),
    ("replicate", "16", 16, 16), ("max_attempts", "0", 0, 0),
    ("retry", "fixed(5s)", Retry.parse("fixed(5s)"), "fixed(5s)"), ("rate", "1000000", 10**6, 10**6),
    ("rate", "100/s", 100, 100), ("group_rate", "7/s", 7, 7),
    ("dead_letter", "none", "none", "none"), ("dead_letter", "orders-dead", "orders-dead", "orders-dead"),
])  # fmt: skip
def test_a_text_is_read_and_shown(name: str, text: str, value: Any, shown: str | int) -> None:
    setting = SETTINGS[name]
    assert (setting.read(text), setting.show(value)) == (value, shown)


@each("name, text", [
    ("durability", "never"), ("retention", "-1s"), ("retention", "2 days"), ("retention_bytes", "1e9"),
    ("retention_bytes", "-1"), ("retention_bytes", str(MOST + 1)), ("retention_bytes", "9" * 30), ("replicate", "0"),
    ("replicate", "17"), ("replicate", "\u0661"), ("max_attempts", "65536"), ("max_attempts", ""), ("max_attempts", "0x10"),
    ("retry", "5s"), ("retry", "fixed(" + "0" * 100 + "1s)"), ("dead_letter", ""),
    ("rate", "/s"), ("rate", "1/m"), ("concurrency", "1/s"),
    ("dead_letter", "a b"), ("dead_letter", "x#ephemeral"), ("rate", "1000001"), ("concurrency", "-1"),
])  # fmt: skip
def test_a_text_that_is_no_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError):
        SETTINGS[name].read(text)


@each("config", [TopicConfig(), ALL, TopicConfig(replicate=2), OF_A_CHANNEL])
def test_settings_are_stored_by_name(config: TopicConfig) -> None:
    assert load(msgpack.unpackb(msgpack.packb(dump(config)))) == config
    assert load(dump(config) | {"of_a_later_version": 1}) == config


@each(
    "plain", [
    None, [], {"replicate": 0}, {"replicate": True}, {"replicate": "2"}, {"durability": 1}, {"retention": -1}, {"retry": 5},
    {"channels": []}, {"channels": {"#": {}}}, {"channels": {1: {}}}, {"channels": {"c": 1}}, {"channels": {"c": {"rate": -1}}},
    {"channels": {f"c{number}": {} for number in range(MOST_CHANNELS + 1)}},
])  # fmt: skip
def test_what_was_not_stored_so_is_refused(plain: Any) -> None:
    with pytest.raises(ValueError):
        load(plain)


def test_a_channel_has_its_own_settings_and_for_the_rest_the_topics_settings() -> None:
    assert (OF_A_CHANNEL.of("c").own, OF_A_CHANNEL.of("d").own) == (
        {"max_attempts": 0, "retry": Retry(), "rate": 2},
        {"rate": 2},
    )
    assert OF_A_CHANNEL.with_channel("c", TopicConfig()) == TopicConfig(rate=2)
    assert (OF_A_CHANNEL.value("retry"), OF_A_CHANNEL.value("rate"), OF_A_CHANNEL.value("replicate")) == (
        Retry(),
        2,
        None,
    )
    stored = dump(OF_A_CHANNEL)
    stored["channels"]["c"]["replicate"] = 2  # it is none of a channel
    assert load(stored) == OF_A_CHANNEL
    full = TopicConfig(channels={f"c{number}": TopicConfig(rate=1) for number in range(MOST_CHANNELS)})
    assert full.with_channel("c1", TopicConfig(rate=2)).of("c1").rate == 2
    with pytest.raises(ValueError, match="more than 100 channels"):
        full.with_channel("another", TopicConfig(rate=1))


def test_the_simulators_know_every_setting() -> None:
    assert CHOICES.keys() == SETTINGS.keys(), "CHOICES of tests/nsqd/any_config.py has values of each setting"


def test_each_setting_says_what_it_is() -> None:
    assert set(dump(ALL)) == set(SETTINGS)
    for setting in SETTINGS.values():
        assert setting.label[0].isupper()
        assert not setting.about.endswith(".")
