"""The check of words: what it finds in each kind of file, and that more than the budget fails."""

from tests.words import RULES, Checker

CHECKER = Checker([rule for rule in RULES if rule.level <= 2])


def found(suffix: str, source: str) -> list[tuple[int, str]]:
    return [(one.line, one.rule.name) for one in CHECKER.matches(f"one{suffix}", source)]


def test_prose_names_and_texts_are_checked_and_code_is_not() -> None:
    source = '''"""Nobody is told."""
def f(told):
    # they go on
    log.info("nobody waits")
    return told("nobody")  # words: ok, nobody
'''
    assert found(".py", source) == [(1, "nobody"), (1, "told"), (2, "name-told"), (3, "go-on"), (4, "nobody")]


def test_pages_are_checked_without_their_code() -> None:
    assert found(".md", "Nobody reads `nobody`.\n\n    nobody\n\n```sh\nnobody\n```\n") == [(1, "nobody")]
    assert found(".html", '<p class="nobody">{{ nobody }}It tells more.</p>') == [(1, "tell")]


def test_every_rule_has_another_word() -> None:
    assert all(rule.instead and rule.scopes for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)
