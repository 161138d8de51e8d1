"""Topics that nobody carries: one question to an nsqlookupd of ours, a bounded number of them to an original."""

from urllib.parse import parse_qs, urlsplit

import pytest

from tests.admin.asking import visiting
from tests.admin.conftest import Answer, told, upstream
from tests.async_tests import on_asyncio
from tests.daemons import Daemon, post

pytestmark = pytest.mark.process

QUESTIONS = 20
NAMES = [f"t{number:05}" for number in range(1010)]  # the page shows a thousand


@pytest.fixture(autouse=True)
def few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.nodes.inactive.MOST_QUESTIONS", QUESTIONS)


def an_original(asked: list[str]) -> Answer:
    """It knows all of NAMES, each with a channel; of the questions about one it notes the topic."""

    def answer(target: str) -> tuple[int, bytes]:
        path, arguments = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if path == "/topics":
            return told({"topics": NAMES})
        if path == "/nodes":
            return told({"producers": []})
        if path == "/channels":
            asked.append(arguments["topic"][0])
            return told({"channels": ["c"]})
        return 404, b'{"message":"NOT_FOUND"}'

    return answer


async def inactive(*lookupds: str) -> dict[str, list[str] | None]:
    client = visiting(nsqd_http_address=(), lookupd_http_address=lookupds)
    answer, page = await client.get("/api/topics?inactive=true"), await client.get("/lookup")
    assert (answer.status_code, page.status_code) == (200, 200)
    topics = answer.json()["topics"]
    assert len(topics) <= 1000 or f"{len(topics) - 1000} more topics are not shown" in page.text
    return topics


@on_asyncio
async def test_an_original_is_asked_so_many_questions_and_no_more() -> None:
    asked: list[str] = []
    with upstream(an_original(asked)) as lookupd:
        found = await inactive(lookupd)
    assert list(found) == NAMES
    assert found[NAMES[0]] == ["c"]
    assert found[NAMES[-1]] is None
    assert set(asked) <= set(NAMES[:QUESTIONS])  # fewer where this machine is slow


@on_asyncio
async def test_ours_tells_all_at_once_and_several_are_put_together() -> None:
    asked: list[str] = []
    with Daemon("nsqlookupd") as ours, upstream(an_original(asked)) as original:
        for channel in ("b", "a"):
            post(ours, "/channel/create", topic="t00000", channel=channel)
        post(ours, "/topic/create", topic="bare")
        assert await inactive(ours.http) == {"bare": None, "t00000": ["a", "b"]}
        assert asked == []
        assert (await inactive(ours.http, original))["t00000"] == ["a", "b", "c"]


@on_asyncio
async def test_one_whose_portions_never_end_is_left() -> None:
    def endless(target: str) -> tuple[int, bytes]:
        path, arguments = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if path == "/topics/inactive":
            one = {"topic": "t" + arguments.get("after", [""])[0], "channels": [7, "c"]}
            return told({"topics": [one], "more": True})
        return told({"topics": ["t", "u"], "producers": []})

    with upstream(endless) as liar:
        assert await inactive(liar) == {"t": ["c"], "u": None}
