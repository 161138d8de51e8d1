"""The events of a live page: content that changed, and beats, also while a view hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from admin.live_events import live_events
from tests.admin.asking import in_loop


async def take(events: AsyncIterator[str], count: int) -> list[str]:
    """The next events."""
    return [await anext(events) for _ in range(count)]


def times(events: list[str]) -> list[str]:
    """The times of the content that the beats tell."""
    return [event.split("id: ")[1].split("\n")[0] for event in events if event.startswith("event: beat\nid: ")]


def test_the_heart_beats_while_a_view_hangs_and_tells_the_age_of_what_is_shown() -> None:
    async def work() -> list[str]:
        ends = asyncio.Event()

        async def look() -> tuple[str, bool]:
            await ends.wait()
            return "<p>new</p>\n<p>too</p>", False

        events = live_events(look, 0.0, "1700000000000000000", beat=0.0)
        found = await take(events, 5)
        ends.set()
        return found + [event async for event in events]

    found = in_loop(work)
    beats = times(found[:5])
    assert len(beats) == 5
    assert len(set(beats)) == 1
    assert found[-1] == "data: <p>new</p>\ndata: <p>too</p>\n\n"


def test_what_did_not_change_is_not_sent_again_but_its_time_is() -> None:
    async def work() -> list[str]:
        async def look() -> tuple[str, bool]:
            return "<p>same</p>", True

        events = live_events(look, 0.0)
        found: list[str] = []
        while len(set(times(found))) < 3:
            found.append(await anext(events))
        return found

    assert sum(event.startswith("data:") for event in in_loop(work)) == 1


def test_who_comes_back_gets_the_content_at_once_and_no_time_that_is_not_that_of_what_he_has() -> None:
    async def work(last: str) -> list[str]:
        async def look() -> tuple[str, bool]:
            return "<p>new</p>", False

        return [event async for event in live_events(look, 3600.0, last)]

    found = in_loop(lambda: work("1700000000000000000"))
    assert found[0] == "event: beat\nid: 1700000000000000000\ndata: 2023-11-14T22:13:20.000Z\n\n"
    assert found[-1] == "data: <p>new</p>\n\n"
    lie = in_loop(lambda: work("9\ndata: <script>"))
    assert "script" not in "".join(lie)


def test_the_age_of_what_came_with_the_page_is_not_known_here() -> None:
    async def work() -> str:
        async def look() -> tuple[str, bool]:
            return "<p>new</p>", False

        return await anext(live_events(look, 3600.0))

    assert in_loop(work) == "event: beat\ndata:\n\n"


def test_a_stream_ends_after_its_time() -> None:
    async def work() -> list[str]:
        async def look() -> tuple[str, bool]:
            return "", True

        return [event async for event in live_events(look, 0.0, longest=0.0)]

    assert in_loop(work) == []
