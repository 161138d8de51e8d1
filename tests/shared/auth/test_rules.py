"""Patterns, and how rules decide; tests/shared/auth/test_random_files.py compares decisions with a plain reference."""

from itertools import pairwise

import pytest

from shared.auth.rules import NOTHING, PatternError, Rights, Rule, expression, matches
from shared.auth.verbs import ALL, BUILT_IN, Verb
from tests.cases import each


@each("pattern, name, fit", [
    ("orders.*", "orders.eu", True), ("orders.*", "orders", False), ("orders.*", "ordersxeu", False),
    ("*", "anything", True), ("o?ders", "orders", True), ("o?ders", "oders", False), ("a.b", "a.b", True),
    ("a.b", "axb", False), ("re:orders\\.[0-9]+", "orders.12", True), ("re:orders\\.[0-9]+", "orders.12x", False),
    ("re:a|b", "b", True), ("re:a|b", "ab", False), ("orders", "orders\n", False),
    ("a[b]", "ab", False), ("(a|b)", "a", False),
])  # fmt: skip
def test_patterns_match_whole_names(pattern: str, name: str, fit: bool) -> None:
    assert matches((pattern,), name) is fit


@each("pattern", ["", "x" * 257, "re:(", "re:(?=a)", "re:\\1"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        expression(pattern)


def test_what_is_remembered_is_bounded_and_a_thousand_rules_decide_as_one() -> None:
    rules = [Rule(frozenset({Verb.PUBLISH}), (f"team{number}.*",)) for number in range(1000)]
    rights = Rights(rules)
    assert rights.may(Verb.PUBLISH, "team999.orders")
    assert not rights.may(Verb.PUBLISH, "team1000.orders")
    assert not rights.may(Verb.CONSUME, "team999.orders")
    assert rights.reason(Verb.PUBLISH, "team7.x") == rules[7]
    rights = Rights([Rule(frozenset({Verb.PUBLISH}), ("a*",))])
    for number in range(25_000):
        assert rights.may(Verb.PUBLISH, f"a{number}")
    assert len(rights._decisions) <= 10_000


def test_everything_and_nothing() -> None:
    for verb in Verb:
        assert Rights([Rule(ALL)]).may(verb)
        assert Rights([Rule(ALL)]).may(verb, "t", "c")
        assert [NOTHING.may(verb), NOTHING.may(verb, "t", "c"), NOTHING.any_of(verb)] == [False] * 3


def test_built_in_roles() -> None:
    order = [BUILT_IN[name] for name in ("viewer", "body-viewer", "operator", "admin")]
    assert all(less < more for less, more in pairwise(order))
    assert order[-1] == ALL
