"""The first minute of an incident, second by second: each number on a page is true, or the page says when it was."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from tests.admin.incident import CHECK, FIRST, LOOKUPD, NODE, STEP, Incident, depth
from tests.async_tests import on_asyncio
from tests.cases import each

PAGES = ("/", "/nodes", f"/nodes/{NODE}", "/topics/t/c", "/alarms")
BEFORE = 20  # s until a daemon dies
READ = (
    *range(1, 10),
    *range(10, 61, 5),
)  # s after it at which pages are read: each one while answers are CACHED, then some
CACHED = 6  # s: the oldest answer that a page may show as current
ALARM = re.compile(r'<p class="banner.*?</p>|<section class="banner.*?</section>', re.DOTALL)


def shown(page: str) -> Iterator[int]:
    """Yield the seconds of which a number of the page, or a part of it, is true."""
    for text in re.findall(r"\d{3},\d{3}", page):
        second, rest = divmod(int(text.replace(",", "")) - FIRST, STEP)
        assert rest == 0, f"{text} was never true"
        yield second


def says_when(page: str, incident: Incident, second: int) -> bool:
    """Return whether a page says that some of its numbers are of this second, or as old as it."""
    now = datetime(2027, 1, 15, 8, 0, 0)
    at = {f"{now + timedelta(seconds=second + late):%H:%M:%S} UTC" for late in (0, 1)}
    ages = {int(one) for one in re.findall(r"up to (\d+) s old", page)}
    return any(one in page for one in at) or any(incident.second - second <= age + 1 for age in ages)


def lies(page: str, incident: Incident) -> set[int]:
    """Return the numbers of the page that are not of now, nor, in alarms, of the last check, without their time."""
    parts = ((ALARM.sub("", page), CACHED), ("".join(ALARM.findall(page)), CHECK))
    late = {one for part, most in parts for one in shown(part) if incident.second - one > most}
    return {depth(one) for one in late if not says_when(page, incident, one)}


@each("dead", [(), (LOOKUPD,), (NODE,)])
@on_asyncio
async def test_no_figure_is_wrong_without_its_age(monkeypatch: pytest.MonkeyPatch, dead: tuple[str, ...]) -> None:
    incident = Incident(monkeypatch)
    for _ in range(BEFORE):
        await incident.pass_second()
        await incident.page("/nodes")
    incident.dead.update(dead)
    for second in range(1, 61):
        await incident.pass_second()
        for path in PAGES if second in READ else ():
            page = await incident.page(path)
            assert list(shown(page)) or NODE in dead or path == "/alarms", path
            assert not lies(page, incident), (path, incident.second)
            if NODE not in dead:
                assert "s old" not in page, f"{path}: the node answers"
    if NODE in dead:
        assert max(shown(await incident.page("/"))) == BEFORE, "the newest answer counts, be it to a page"


@on_asyncio
async def test_the_state_of_a_node_follows_its_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    incident = Incident(monkeypatch)
    for free, state in ((60, "up"), (3, "degraded"), (60, "up")):
        incident.free = free
        for _ in range(CHECK):
            await incident.pass_second()
        (row,) = (await incident.client.get("/nodes?format=json")).json()
        assert row["state"] == state
        assert row["alarms"] == ("Disk almost full" if state == "degraded" else "")
        for path in ("/nodes", f"/nodes/{NODE}"):
            page = await incident.page(path)
            assert ("degraded" in page, "Disk almost full" in page) == (state == "degraded",) * 2, path
    page = await incident.page("/topics/t/c")
    assert "Disk almost full" not in page, "that is of the node"
