"""Decisions, against a reference that is as plain as the rules are."""

from fnmatch import fnmatchcase
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.auth.rules import ANY, EVERYTHING, NOTHING, PatternError, Rights, Rule, expression, matches
from shared.auth.verbs import ALL, BUILT_IN, Verb
from tests.cases import each
from tests.effort import tries

PARTS = st.sampled_from(["a", "b", "orders", ".", "*", "?", "x"])
PATTERNS = st.lists(st.lists(PARTS, min_size=1, max_size=4).map("".join), min_size=1, max_size=3).map(tuple)
NAMES = st.lists(st.sampled_from(["a", "b", "orders", ".", "x"]), min_size=1, max_size=4).map("".join)
RULES = st.builds(
    Rule,
    st.frozensets(st.sampled_from(Verb), min_size=1),
    st.one_of(st.just(ANY), PATTERNS),
    st.one_of(st.just(ANY), PATTERNS),
)


def fits(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def reference(rules: list[Rule], scope: tuple[str, ...], verb: Verb, topic: str, channel: str) -> bool:
    """What the rules say, word for word."""
    rules = [rule for rule in rules if verb in rule.verbs]
    if not topic:
        return scope == ANY and any("*" in rule.topics and rule.channels == ANY for rule in rules)
    if not fits(scope, topic):
        return False
    return any(
        fits(rule.topics, topic) and (rule.channels == ANY or (channel != "" and fits(rule.channels, channel)))
        for rule in rules
    )


@settings(max_examples=tries(100, in_short=50))
@given(
    st.lists(RULES, max_size=5),
    st.one_of(st.just(ANY), PATTERNS),
    st.sampled_from(Verb),
    NAMES | st.just(""),
    NAMES | st.just(""),
)
def test_every_decision_is_that_of_the_reference(
    rules: list[Rule], scope: tuple[str, ...], verb: Verb, topic: str, channel: str
) -> None:
    rules = [Rule(rule.verbs, ANY if "*" in rule.topics else rule.topics, rule.channels) for rule in rules]
    scope = ANY if "*" in scope else scope
    rights = Rights(rules, scope)
    wanted = reference(rules, scope, verb, topic, channel)
    for _ in range(2):  # the second one is remembered
        assert rights.may(verb, topic, channel) == wanted
    reason = rights.reason(verb, topic, channel)
    assert (reason is not None) == wanted
    if reason is not None:
        assert reference([reason], scope, verb, topic, channel)


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


def test_a_thousand_rules_decide_as_one() -> None:
    rules = [Rule(frozenset({Verb.PUBLISH}), (f"team{number}.*",)) for number in range(1000)]
    rights = Rights(rules)
    assert rights.may(Verb.PUBLISH, "team999.orders")
    assert not rights.may(Verb.PUBLISH, "team1000.orders")
    assert not rights.may(Verb.CONSUME, "team999.orders")
    assert rights.reason(Verb.PUBLISH, "team7.x") == rules[7]


def test_what_is_remembered_is_bounded() -> None:
    rights = Rights([Rule(frozenset({Verb.PUBLISH}), ("a*",))])
    for number in range(25_000):
        assert rights.may(Verb.PUBLISH, f"a{number}")
    assert len(rights._decisions) <= 10_000


def test_everything_and_nothing() -> None:
    for verb in Verb:
        assert Rights([EVERYTHING]).may(verb) and Rights([EVERYTHING]).may(verb, "t", "c")  # noqa: PT018
        assert not NOTHING.may(verb) and not NOTHING.may(verb, "t", "c")  # noqa: PT018
        assert not NOTHING.any_of(verb)


def test_each_role_of_nsqadmin_includes_the_one_before() -> None:
    order = [BUILT_IN[name] for name in ("viewer", "body-viewer", "operator", "admin")]
    assert all(less < more for less, more in pairwise(order))
    assert order[-1] == ALL
