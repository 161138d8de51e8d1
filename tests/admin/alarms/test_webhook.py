"""Notifications: bodies, retries and limits."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx

from admin.alarms.book import AlarmBook, Changes
from admin.alarms.webhook import LONGEST_LINE, MOST_ALARMS, MOST_LINES, RETRIES, Webhooks, body_of
from admin.users.outbox import MOST_WAITING
from tests.admin.alarms.test_book import subject
from tests.admin.looks import NOW, SECOND
from tests.async_tests import on_asyncio
from tests.cases import each

NOTHING = Changes([], [])
Answer = int | Exception


def changes_of(count: int, name: str = "t", **more: Any) -> Changes:
    return AlarmBook().update([subject(key=f"{name}{number:04}", **more) for number in range(count)], NOW)


class Endpoint:
    """Answers POSTs, in turn, and has a clock."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.waited: list[float] = []
        self.done = asyncio.Event()

    async def send(self, url: str, body: bytes) -> int:
        self.bodies.append((url, json.loads(body)))
        answer = self.answers.pop(0)
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)


def sent(
    *answers: Answer, act: Callable[[Webhooks], object] = lambda hooks: hooks.notify(changes_of(1))
) -> tuple[Endpoint, int]:
    """Return an endpoint after it has given all of its answers, and the number of bodies that were dropped."""

    async def work() -> tuple[Endpoint, int]:
        endpoint = Endpoint(*answers)
        hooks = Webhooks(("http://e/1",), False, "main", endpoint.send, endpoint.sleep)
        act(hooks)
        await endpoint.done.wait()
        for _ in range(3):
            await asyncio.sleep(0)
        return endpoint, hooks.failed

    return asyncio.run(work())


def test_a_body_has_raised_and_ended_alarms() -> None:
    book = AlarmBook()
    book.update([subject(key="old", words="5 buried")], NOW)
    changes = book.update([subject(key="new", words="7 buried")], NOW + SECOND)
    body = body_of(changes, "main", is_slack=False)
    lines = [
        "nsqadmin, cluster main", "Warning: Buried messages: new: 7 buried", "Ended: Buried messages: old: 5 buried",
    ]  # fmt: skip
    assert body["text"].splitlines() == lines
    assert [(one["status"], one["subject"]) for one in body["alarms"]] == [("raised", "new"), ("ended", "old")]
    assert (body["cluster"], body["left_out"]) == ("main", 0)


def test_a_body_is_bounded() -> None:
    body = body_of(changes_of(MOST_ALARMS + 3, words="x" * 10_000), "main", is_slack=False)
    assert len(body["alarms"]) == MOST_ALARMS
    assert body["left_out"] == 3
    lines = body["text"].splitlines()
    assert len(lines) == 1 + MOST_LINES + 1
    assert max(map(len, lines)) <= LONGEST_LINE + 20
    assert lines[-1] == f"and {MOST_ALARMS + 3 - MOST_LINES} more"
    assert "more" not in body_of(changes_of(MOST_LINES), "main", is_slack=True)["text"]


def test_slack_gets_text_only_and_no_markup_or_line_of_a_node() -> None:
    forged = changes_of(1, "<!channel>&", words="disk full\nCritical: Node down: n:1\u2028x\u202e")
    body = body_of(forged, "main", is_slack=True)
    assert list(body) == ["text"]
    assert "&lt;!channel&gt;&amp;0000" in body["text"]
    assert len(body["text"].splitlines()) == 2
    assert "\u202e" not in body["text"]


def test_what_changes_is_one_post_and_nothing_is_none() -> None:
    def act(hooks: Webhooks) -> None:
        for changes in (NOTHING, changes_of(3), NOTHING, changes_of(2)):
            hooks.notify(changes)

    endpoint, failed = sent(200, 204, act=act)
    assert [len(body["alarms"]) for _, body in endpoint.bodies] == [3, 2]
    assert (endpoint.waited, failed) == ([], 0)


@each("answer", [503, 302, 408, 429, httpx.ConnectError("refused"), OSError(), httpx.InvalidURL("x")])
def test_a_post_that_fails_is_repeated_until_it_is_given_up(answer: Answer) -> None:
    endpoint, failed = sent(answer, answer, 200)
    assert (endpoint.waited, failed) == ([*RETRIES[:2]], 0)
    endpoint, failed = sent(*[answer] * (len(RETRIES) + 1))
    assert (endpoint.waited, failed) == ([*RETRIES], 1)
    assert len({json.dumps(body) for _, body in endpoint.bodies}) == 1, "the same body each time"


@each("status", [400, 401, 404, 410])
def test_a_post_that_is_refused_is_not_repeated(status: int) -> None:
    endpoint, failed = sent(status)
    assert (endpoint.waited, failed) == ([], 1)
    endpoint, failed = sent(status, 200, act=lambda hooks: [hooks.notify(changes_of(count)) for count in (1, 2)])
    assert ([len(body["alarms"]) for _, body in endpoint.bodies], failed) == ([1, 2], 1), "after it comes the next"


@on_asyncio
async def test_an_endpoint_that_hangs_delays_no_other_and_its_queue_is_bounded() -> None:
    got: list[str] = []

    async def never(seconds: float) -> None:
        await asyncio.Event().wait()

    async def send(url: str, body: bytes) -> int:
        if url == "http://hangs":
            await never(0)
        got.append(url)
        return 200

    hooks = Webhooks(("http://hangs", "http://works"), False, "main", send, never)
    for _ in range(MOST_WAITING + 3):
        hooks.notify(changes_of(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(got) == MOST_WAITING + 3
    assert hooks.failed == 2, "one is in progress"
