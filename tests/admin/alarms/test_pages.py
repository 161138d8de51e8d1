"""Snoozes and thresholds by the forms of the pages, and links of alarms to their runbooks."""

from types import SimpleNamespace
from typing import Any

import pytest

from admin.alarms.pages import AlarmPages
from admin.alarms.rules import RULES
from tests.admin.asking import OURS
from tests.admin.incident import CHECK, Incident
from tests.async_tests import on_asyncio
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


RULE = "channel-without-consumer"


@on_asyncio
async def test_an_alarm_is_snoozed_its_rule_is_changed_and_both_are_in_the_trail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    incident = Incident(monkeypatch)

    async def check() -> list[dict[str, Any]]:
        for _ in range(3 * CHECK):
            await incident.pass_second()
        return [one for one in (await incident.client.get("/api/alarms")).json()["alarms"] if one["rule"] == RULE]

    async def post(path: str, **form: str) -> tuple[int, str]:
        answer = await incident.client.post(path, data={"rule": RULE, **form}, headers=OURS)
        return answer.status_code, answer.text

    (alarm,) = await check()
    assert (alarm["subject"], alarm["path"], alarm["snoozed"]) == ("t/c", "topics/t/c", None)
    metrics = await incident.page("/metrics")
    assert f'nsqadmin_alarm_subjects{{cluster="main",rule="{RULE}",severity="warning"}} 1.0' in metrics
    snooze = {"action": "snooze", "subject": "t/c", "minutes": "5"}
    status, refused = await post("/alarms", reason="", **snooze)
    assert status == 400
    assert f'<option value="{RULE}" selected>' in refused
    assert (await post("/alarms", reason="known", **snooze))[0] == 303
    (alarm,) = await check()
    assert alarm["snoozed"]["reason"] == "known"
    assert "Channel without consumer" not in await incident.page("/")
    assert (await post("/alarms", action="wake", subject="t/c"))[0] == 303
    (alarm,) = await check()
    assert alarm["snoozed"] is None
    assert (await post("/alarms/rules", action="set", messages="many"))[0] == 400
    assert (await post("/alarms/rules", action="set", messages="10000000"))[0] == 303
    assert await check() == []
    assert (await post("/alarms/rules", action="off"))[0] == 303
    trail = await incident.page("/audit")
    assert [words for words in ("reason: known", "unsnooze", "messages: 1 -&gt; 1e+07") if words not in trail] == []
