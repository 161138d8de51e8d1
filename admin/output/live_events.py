"""The server-sent events of a live page: its new content, and a heartbeat that continues while a view waits for nodes.

    data: HTML                          the content has changed (an event without a name, which htmx swaps in)
    event: beat, id: NS, data: ISO      the connection lives; the content is of that time, or, without one, what the browser has

The beat has its own timer, so that a page whose view hangs differs from one whose nsqadmin died. A browser that reconnects
sends the id of the last event; it gets new content at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from admin.nodes.views import whole
from admin.times import iso

BEAT = 1.0  # s between two heartbeats; live.js calls a page disconnected after four
LONGEST = 3600.0  # s of one stream; then the page connects again

Look = Callable[[], Awaitable[tuple[str, bool]]]  # returns the content, and whether there may be more


async def live_events(
    look: Look, every: float, last_id: str = "", beat: float = BEAT, longest: float = LONGEST
) -> AsyncIterator[str]:
    """Yield the events of a page for `longest` s, or until `look` says that there is no more.

    `every`: s between two looks. `last_id`: the id of the last event that a browser got before it reconnected, or "".
    """
    shown, at = "", whole(last_id, 0, 2**63)  # 0: the content is that of the page, of an unknown time
    end = asyncio.get_running_loop().time() + longest
    pause = 0.0 if last_id else every
    while asyncio.get_running_loop().time() < end:
        task = asyncio.create_task(_after(pause, look))
        try:
            yield _beat(at)
            while not (await asyncio.wait({task}, timeout=beat))[0]:
                yield _beat(at)
            html, is_open = task.result()
        finally:
            task.cancel()
        at, pause = time.time_ns(), every
        if html != shown:
            yield "".join(f"data: {line}\n" for line in html.splitlines()) + "\n"
            shown = html
        if not is_open:
            return


async def _after(seconds: float, look: Look) -> tuple[str, bool]:
    await asyncio.sleep(seconds)
    return await look()


def _beat(at: int) -> str:
    return f"event: beat\nid: {at}\ndata: {iso(at)}\n\n" if at else "event: beat\ndata:\n\n"
