"""Links of alarms to their runbooks."""

from types import SimpleNamespace
from typing import Any

from admin.alarms.pages import AlarmPages
from admin.alarms.rules import RULES
from tests.daemons import ROOT


def pages(docs_url: str) -> Any:
    options = SimpleNamespace(docs_url=docs_url)
    return SimpleNamespace(site=SimpleNamespace(renderer=SimpleNamespace(options=options, base="/base")))


def test_a_link_is_the_page_of_the_site_and_each_rule_has_one() -> None:
    for rule in RULES:
        page, _, anchor = rule.runbook.partition("#")
        assert (ROOT / "docs" / page).exists()
        link = AlarmPages.runbook(pages("https://docs.example/"), rule)
        assert link == f"https://docs.example/{page.removesuffix('.md')}.html" + (f"#{anchor}" if anchor else "")
        assert AlarmPages.runbook(pages(""), rule) == f"/base/runbooks/{page.removesuffix('.md')}" + (
            f"#{anchor}" if anchor else ""
        )
