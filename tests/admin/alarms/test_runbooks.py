"""Every rule has a runbook that nsqadmin serves, with the section to which the rule leads."""

import pytest

from admin.alarms.rules import RULES
from admin.alarms.runbooks import NAMES, runbook
from tests.admin.incident import Incident
from tests.admin.scriptless import Page
from tests.async_tests import on_asyncio
from tests.cases import each


def test_each_rule_leads_to_a_section() -> None:
    for rule in RULES:
        page, _, anchor = rule.runbook.partition("#")
        title, sections = runbook(page.removesuffix(".md"))
        assert title, page
        assert anchor in (one.anchor for one in sections), rule.runbook


@each("name", ["../README", "contributing/style", "", "troubleshooting/lost-node.md"])
def test_other_files_are_not_served(name: str) -> None:
    with pytest.raises(KeyError):
        runbook(name)


@on_asyncio
async def test_the_links_of_alarms_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    incident = Incident(monkeypatch)
    incident.free = 1
    await incident.pass_second()
    (link,) = Page(await incident.page("/alarms?rule=disk-low")).links["Runbook"]
    answer = await incident.client.get(link)
    assert (link, answer.status_code) == ("/runbooks/troubleshooting/disk-full", 200)
    title, sections = runbook("troubleshooting/disk-full")
    assert f"<h1>{title}" in answer.text
    assert all(f'id="{one.anchor}"' in answer.text for one in sections[1:])
    assert {(await incident.client.get(f"/runbooks/{name}")).status_code for name in NAMES} == {200}
    assert (await incident.client.get("/runbooks/contributing/style")).status_code == 404
