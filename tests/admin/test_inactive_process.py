"""Topics that nobody carries: one question to an nsqlookupd of ours, a bounded number of them to an original."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from admin.inactive import MOST_QUESTIONS
from tests.admin.conftest import Answer, nsqadmin, told, upstream
from tests.daemons import Daemon

pytestmark = pytest.mark.process

NAMES = [f"t{number:05}" for number in range(MOST_QUESTIONS + 500)]


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


def inactive(*lookupds: str) -> dict[str, list[str] | None]:
    flags = [word for one in lookupds for word in ("-lookupd-http-address", one)]
    with nsqadmin(*flags) as admin:
        answer = httpx.get(f"http://{admin.http}/api/topics?inactive=true", timeout=60)
        assert answer.status_code == 200
        page = httpx.get(f"http://{admin.http}/lookup", timeout=60)
        assert page.status_code == 200
        topics: dict[str, list[str] | None] = answer.json()["topics"]
        if len(topics) > 1000:
            assert f"{len(topics) - 1000} more topics are not shown" in page.text
        return topics


def test_an_original_is_asked_so_many_questions_and_no_more() -> None:
    asked: list[str] = []
    with upstream(an_original(asked)) as lookupd:
        found = inactive(lookupd)
    assert list(found) == NAMES
    assert found[NAMES[0]] == ["c"]
    assert found[NAMES[-1]] is None
    assert set(asked) <= set(NAMES[:MOST_QUESTIONS])  # fewer where this machine is slow


def test_ours_tells_all_at_once_and_several_are_put_together() -> None:
    asked: list[str] = []
    with Daemon("nsqlookupd") as ours, upstream(an_original(asked)) as original:
        for channel in ("b", "a"):
            httpx.post(f"http://{ours.http}/channel/create?topic=t00000&channel={channel}").raise_for_status()
        httpx.post(f"http://{ours.http}/topic/create?topic=bare").raise_for_status()
        assert inactive(ours.http) == {"bare": None, "t00000": ["a", "b"]}
        assert asked == []
        assert inactive(ours.http, original)["t00000"] == ["a", "b", "c"]


def test_one_whose_portions_never_end_is_left() -> None:
    def endless(target: str) -> tuple[int, bytes]:
        path, arguments = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if path == "/topics/inactive":
            return told(
                {"topics": [{"topic": "t" + arguments.get("after", [""])[0], "channels": [7, "c"]}], "more": True}
            )
        return told({"topics": ["t", "u"], "producers": []})

    with upstream(endless) as liar:
        assert inactive(liar) == {"t": ["c"], "u": None}
