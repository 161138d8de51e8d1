"""The channels of topics that no nsqd has, as every nsqlookupd knows them.

Penstock's nsqlookupd lists all of them in pages (GET /topics/inactive). An original one is asked for each topic: for at
most MOST_QUESTIONS of them, AT_ONCE at a time, for PATIENCE seconds in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from admin.nodes.merge import texts
from admin.nodes.upstreams import UpstreamError, Upstreams
from shared.json_fields import objects, text

MOST_PAGES = 10  # of one nsqlookupd, with 50,000 topics and channels each
MOST_QUESTIONS = 1_000  # requests about single topics
AT_ONCE = 20
PATIENCE = 10.0  # s for all requests about single topics
NOT_FOUND = 404  # the answer of an nsqlookupd that lacks /topics/inactive

Channels = dict[str, list[str]]  # by topic


async def channels_of(
    upstreams: Upstreams, lookupds: Iterable[str], topics: Sequence[str]
) -> dict[str, list[str] | None]:
    """Return the channels of each topic, sorted; None for a topic that no nsqlookupd described."""
    found: dict[str, set[str]] = {}
    for data in (await upstreams.all_of(lookupds, lambda one: _ask(upstreams, one, topics))).answers.values():
        for topic, channels in data.items():
            found.setdefault(topic, set()).update(channels)
    return {topic: sorted(found.get(topic, ())) or None for topic in topics}


async def _ask(upstreams: Upstreams, lookupd: str, topics: Sequence[str]) -> Channels:
    """Return the channels of all topics that one nsqlookupd lists. Raises UpstreamError."""
    found: Channels = {}
    after = ""
    for _ in range(MOST_PAGES):
        try:
            data = await upstreams.get_object(lookupd, "/topics/inactive", {"after": after})
        except UpstreamError as error:
            if error.status != NOT_FOUND:
                raise
            return await _ask_for_each(upstreams, lookupd, topics)
        rows = objects(data.get("topics"))
        found |= {text(row.get("topic")): texts(row.get("channels")) for row in rows}
        last = text(rows[-1].get("topic")) if rows else ""
        if data.get("more") is not True or last <= after:
            break
        after = last
    return found


async def _ask_for_each(upstreams: Upstreams, lookupd: str, topics: Sequence[str]) -> Channels:
    """Return the channels of each topic at an original nsqlookupd. Topics without an answer in time are left out."""
    found: Channels = {}
    slots = asyncio.Semaphore(AT_ONCE)

    async def ask(topic: str) -> None:
        async with slots:
            try:
                data = await upstreams.get_object(lookupd, "/channels", {"topic": topic})
            except UpstreamError:
                return
            found[topic] = texts(data.get("channels"))

    tasks = [asyncio.create_task(ask(topic)) for topic in topics[:MOST_QUESTIONS]]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=PATIENCE)
        for task in late:
            task.cancel()
    return found
