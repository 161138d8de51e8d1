"""Topics without a node: one request to Penstock's nsqlookupd, a bounded number to an original."""

from urllib.parse import parse_qs, urlsplit

import pytest

from tests.admin.asking import visiting
from tests.admin.conftest import json_answer
from tests.admin.near_nodes import Answer, near
from tests.async_tests import on_asyncio
from tests.daemons import Daemon, post

QUESTIONS = 20
NAMES = [f"t{number:05}" for number in range(1010)]  # the page shows a thousand


@pytest.fixture(autouse=True)
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.nodes.inactive.MOST_QUESTIONS", QUESTIONS)


def an_original(asked: list[str]) -> Answer:
    """It knows all of NAMES, each with a channel, and notes the topics of requests about one."""

    def answer(target: str) -> tuple[int, bytes]:
        path, arguments = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if path == "/topics":
            return json_answer({"topics": NAMES})
        if path == "/nodes":
            return json_answer({"producers": []})
        if path == "/channels":
            asked.append(arguments["topic"][0])
            return json_answer({"channels": ["c"]})
        return 404, b'{"message":"NOT_FOUND"}'

    return answer


async def inactive(*lookupds: str) -> dict[str, list[str] | None]:
    client = visiting(nsqd_http_address=(), lookupd_http_address=lookupds)
    answer, page = await client.get("/api/topics?inactive=true"), await client.get("/lookup")
    assert (answer.status_code, page.status_code) == (200, 200)
    topics = answer.json()["topics"]
    assert len(topics) <= 1000 or f"{len(topics) - 1000} more topics not shown" in page.text
    return topics


@on_asyncio
async def test_the_requests_to_an_original_are_bounded() -> None:
    asked: list[str] = []
    with near(an_original(asked)) as lookupd:
        found = await inactive(lookupd)
    assert list(found) == NAMES
    assert found[NAMES[0]] == ["c"]
    assert found[NAMES[-1]] is None
    assert set(asked) <= set(NAMES[:QUESTIONS])  # fewer where this machine is slow


@pytest.mark.process
@on_asyncio
async def test_one_request_to_penstock_and_the_sum_of_several() -> None:
    asked: list[str] = []
    with Daemon("nsqlookupd") as penstock, near(an_original(asked)) as original:
        for channel in ("b", "a"):
            post(penstock, "/channel/create", topic="t00000", channel=channel)
        post(penstock, "/topic/create", topic="bare")
        assert await inactive(penstock.http) == {"bare": None, "t00000": ["a", "b"]}
        assert asked == []
        assert (await inactive(penstock.http, original))["t00000"] == ["a", "b", "c"]


@on_asyncio
async def test_endless_pages_are_left() -> None:
    def endless(target: str) -> tuple[int, bytes]:
        path, arguments = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if path == "/topics/inactive":
            one = {"topic": "t" + arguments.get("after", [""])[0], "channels": [7, "c"]}
            return json_answer({"topics": [one], "more": True})
        return json_answer({"topics": ["t", "u"], "producers": []})

    with near(endless) as liar:
        assert await inactive(liar) == {"t": ["c"], "u": None}
