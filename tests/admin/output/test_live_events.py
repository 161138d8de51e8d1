"""The events of a live page: content that changed, and beats, also while a view hangs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from admin.output.live_events import live_events
from tests.async_tests import on_asyncio


async def take(events: AsyncIterator[str], count: int) -> list[str]:
    return [await anext(events) for _ in range(count)]


def times(events: list[str]) -> list[str]:
    """The times of the content in the beats."""
    return [event.split("id: ")[1].split("\n")[0] for event in events if event.startswith("event: beat\nid: ")]


def look_of(content: str, goes_on: bool = False) -> Callable[[], Awaitable[tuple[str, bool]]]:
    async def look() -> tuple[str, bool]:
        return content, goes_on

    return look


@on_asyncio
async def test_beats_continue_while_a_view_hangs_with_the_time_of_the_shown_content() -> None:
    ends = asyncio.Event()

    async def look() -> tuple[str, bool]:
        await ends.wait()
        return "<p>new</p>\n<p>too</p>", False

    events = live_events(look, 0.0, "1700000000000000000", beat=0.0)
    beats = times(await take(events, 5))
    assert (len(beats), len(set(beats))) == (5, 1)
    ends.set()
    assert [event async for event in events][-1] == "data: <p>new</p>\ndata: <p>too</p>\n\n"


@on_asyncio
async def test_what_did_not_change_is_not_sent_again_but_its_time_is() -> None:
    events, found = live_events(look_of("<p>same</p>", True), 0.0), list[str]()
    while len(set(times(found))) < 3:
        found.append(await anext(events))
    assert sum(event.startswith("data:") for event in found) == 1


@on_asyncio
async def test_a_browser_that_reconnects_gets_the_content_at_once_and_the_time_of_its_own() -> None:
    found = [event async for event in live_events(look_of("<p>new</p>"), 3600.0, "1700000000000000000")]
    assert found[0] == "event: beat\nid: 1700000000000000000\ndata: 2023-11-14T22:13:20.000Z\n\n"
    assert found[-1] == "data: <p>new</p>\n\n"
    lie = [event async for event in live_events(look_of("<p>new</p>"), 3600.0, "9\ndata: <script>")]
    assert "script" not in "".join(lie)
    # the age of what came with the page is not known here
    assert await anext(live_events(look_of("<p>new</p>"), 3600.0)) == "event: beat\ndata:\n\n"


@on_asyncio
async def test_a_stream_ends_after_its_time() -> None:
    assert [event async for event in live_events(look_of("", True), 0.0, longest=0.0)] == []
