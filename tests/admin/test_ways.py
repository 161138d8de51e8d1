"""The ways from a page to others: breadcrumbs, links to snooze an alarm, and exports of all that a page shows."""

import pytest

from tests.admin.incident import CHECK, NODE, Incident, depth
from tests.admin.scriptless import Page
from tests.async_tests import on_asyncio


@on_asyncio
async def test_breadcrumbs(monkeypatch: pytest.MonkeyPatch) -> None:
    incident = Incident(monkeypatch)
    await incident.pass_second()
    for path, expected in (
        ("/", []), ("/nodes", []), (f"/nodes/{NODE}", ["/nodes"]), ("/topics/t", ["/"]),
        ("/topics/t/c", ["/", "/topics/t"]),
    ):  # fmt: skip
        html = await incident.page(path)
        start = html.find('aria-label="Breadcrumb"')
        crumbs = Page(html[start : html.index("</nav>", start)]).links if start >= 0 else {}
        assert [to for links in crumbs.values() for to in links] == expected, path


@on_asyncio
async def test_an_alarm_is_found_in_two_clicks_and_snoozed_from_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    incident = Incident(monkeypatch)
    for _ in range(3 * CHECK):
        await incident.pass_second()
    start = await incident.page("/")
    assert start.index('id="t-t"') < start.index('id="t-quiet"'), "topics with alarms are the first ones"
    kinds = [link for links in Page(start).links.values() for link in links if link.startswith("/alarms?rule=")]
    assert set(kinds) == {"/alarms?rule=channel-without-consumer"}
    alarms = Page(await incident.page(kinds[0]))
    (channel,), (snooze,) = alarms.links["t/c"], alarms.links["Snooze"]
    for path in (channel, "/topics/t"):
        banner = (await incident.page(path)).partition('id="live"')[2].partition("<dl")[0]
        assert "Channel without consumer</a> for <time" in banner
        assert "What to do: " in banner
    assert "What to do: " not in await incident.page("/topics/quiet")
    form = next(one for one in Page(await incident.page(snooze)).forms if "reason" in one.fields)
    assert (form.fields["rule"], form.fields["subject"]) == ("channel-without-consumer", "t/c")


@on_asyncio
async def test_the_export_of_a_channel_has_its_nodes_and_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    incident = Incident(monkeypatch)
    await incident.pass_second()
    channel = (await incident.client.get("/topics/t/c?format=json")).json()
    assert [(one["node"], one["depth"]) for one in channel["nodes"]] == [(NODE, depth(1))]
    assert channel["clients"] == []
    topic = (await incident.client.get("/topics/t?format=json")).json()
    assert [one["depth"] for one in topic["channels"]] == [depth(1)]
    assert [one["node"] for one in topic["nodes"]] == [NODE]
