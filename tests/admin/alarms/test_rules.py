"""Thresholds: defaults, below what was configured, below what was set on the page."""

import pytest

from admin.alarms.rules import BY_NAME, RULES, Thresholds, no_alarm_settings, parse_setting
from tests.cases import each


def test_the_page_has_the_last_word() -> None:
    thresholds = Thresholds(["buried.messages=5", "paused=off"], {"buried.messages": "7"})
    assert thresholds.value("buried", "messages") == 7
    assert thresholds.source("buried.messages") == "set on this page"
    thresholds.set("buried.messages", "")
    assert thresholds.value("buried", "messages") == 5
    assert thresholds.source("buried.messages") == "configured"
    assert not thresholds.is_on(BY_NAME["paused"])
    thresholds.set("paused", "on")
    assert thresholds.is_on(BY_NAME["paused"])
    assert thresholds.value("oldest-message", "minutes") == 30
    assert thresholds.source("oldest-message.minutes") == "default"


@each("setting, why", [
        ("", "expected RULE.NAME=VALUE or RULE=off"), ("buried", "expected RULE.NAME=VALUE or RULE=off"),
        ("=5", "unknown alarm rule"), ("buried=5", "expected off or on"), ("buried.messages=off", "not negative"),
        ("buried.messages=-1", "not negative"), ("buried.messages=nan", "not negative"),
        ("buried.messages=inf", "not negative"), ("buried.messages=1e16", "not negative"),
        ("buried.jobs=5", "has no threshold 'jobs': it has messages"), ("node-down.messages=5", "it has none"),
        ("BURIED=off", "unknown alarm rule"),
    ])  # fmt: skip
def test_a_wrong_setting_says_why(setting: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_setting(setting)
    assert why in no_alarm_settings(("buried=off", setting))
    assert no_alarm_settings(("buried=off", "buried.messages=0")) == ""


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(RULES)
