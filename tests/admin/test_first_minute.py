"""The first minute of an incident, second by second: each number on a page is true, or the page says when it was."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest

from tests.admin.incident import CHECK, FIRST, LOOKUPD, NODE, STEP, Incident, depth
from tests.admin.looks import NOW, SECOND
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


def killed(incident: Incident, since: int) -> None:
    incident.dead = {NODE}


def hung(incident: Incident, since: int) -> None:
    incident.hung = {NODE}


def without_lookupd(incident: Incident, since: int) -> None:
    incident.dead = {LOOKUPD}


def all_fail(incident: Incident, since: int) -> None:
    incident.channel = {"requeued": 20 * since, "timed_out": since, "buried": 4 * since, "clients": 1}


def poisoned(incident: Incident, since: int) -> None:
    incident.channel = {"lost_consumers": since, "orphaned": 1, "clients": since % 2}


def disk_full(incident: Incident, since: int) -> None:
    incident.free, incident.storage = 3, {"refusal": "the disk is full"}


def clock_ahead(incident: Incident, since: int) -> None:
    incident.attention = {"now": incident.now() + 90 * SECOND}


def paused(incident: Incident, since: int) -> None:
    incident.channel = {"paused": True, "paused_at": (incident.now() - 3600 * SECOND) // SECOND}


def certificate_ends(incident: Incident, since: int) -> None:
    incident.attention = {"certificates": [{"option": "tls-cert", "ends": NOW // SECOND + 86_400}]}


def slow_sync(incident: Incident, since: int) -> None:
    incident.storage = {"sync_p99_ms": 900}


def growing(incident: Incident, since: int) -> None:
    """Do nothing: more messages wait in each second anyway."""


SITUATIONS = (  # the change, what /alarms advises after a check, and what it says of the node or channel
    (growing, "Channel without consumer.*Start the consumers.*messages waiting"),
    (killed, f"Start it again on the same data directory.*no answer for .*{depth(BEFORE):,} messages stuck on it"),
    (hung, "it runs, but has not answered for .*Check the CPU, memory and disk of its host"),
    (without_lookupd, "nsqlookupd down.*Start it again.*connection refused"),
    (all_fail, "Messages are being buried.*Check the consumer&#39;s log.*buried in "),
    (poisoned, "Consumers crash.*Bury or finish the message that crashes it.*1 in flight that no client holds"),
    (disk_full, "Node rejects messages.*Free space: publishing.*the disk is full"),
    (clock_ahead, "Clocks differ.*Check NTP.*its clock is 1.5 min ahead of nsqadmin&#39;s"),
    (paused, "Paused for long.*Unpause it.*paused for "),
    (certificate_ends, "Certificate expires.*Renew the certificate.*--tls-cert expires on "),
    (slow_sync, "Disk slow.*Check what else uses the disk.*900 ms"),
)


@each("change, alarm", SITUATIONS)
@on_asyncio
async def test_no_figure_is_wrong_without_its_age(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Incident, int], None], alarm: str
) -> None:
    incident = Incident(monkeypatch)
    for _ in range(BEFORE):
        await incident.pass_second()
        await incident.page("/nodes")
    for second in range(1, 61):
        change(incident, second)
        await incident.pass_second()
        answers = NODE not in incident.dead | incident.hung
        for path in PAGES if second in READ else ():
            page = await incident.page(path)
            assert list(shown(page)) or not answers or path == "/alarms", path
            assert not lies(page, incident), (path, incident.second)
            if answers:
                assert "s old" not in page, f"{path}: the node answers"
            if path == "/alarms" and second > CHECK:
                assert re.search(alarm, page, re.DOTALL), (second, page)
    if not answers:
        assert max(shown(await incident.page("/"))) == BEFORE, "the newest answer counts, be it to a page"


@on_asyncio
async def test_an_alarm_ends_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    incident = Incident(monkeypatch)
    seen = []
    for second in range(1, 41):
        incident.dead = {LOOKUPD} if second < 20 else set()
        await incident.pass_second()
        seen.append("nsqlookupd down" in await incident.page("/alarms"))
    assert seen.index(True) <= CHECK
    assert not any(seen[20 + CHECK :]), seen


@on_asyncio
async def test_the_state_of_a_node_follows_its_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    incident = Incident(monkeypatch)
    for free, state in ((60, "up"), (3, "degraded"), (60, "up")):
        incident.free = free
        for _ in range(CHECK):
            await incident.pass_second()
        (row,) = (await incident.client.get("/nodes?format=json")).json()
        assert row["state"] == state
        assert (row["registered"], row["in_flight"], row["buried"], row["clients"]) == (1, 0, 0, 0)
        assert row["alarms"] == ("Disk almost full" if state == "degraded" else "")
        for path in ("/nodes", f"/nodes/{NODE}"):
            page = await incident.page(path)
            assert ("degraded" in page, "Disk almost full" in page) == (state == "degraded",) * 2, path
    page = await incident.page("/topics/t/c")
    assert "Disk almost full" not in page, "that is of the node"
