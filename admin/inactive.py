"""The channels of topics that no nsqd carries, as every nsqlookupd knows them.

An nsqlookupd of ours tells all of them in portions (GET /topics/inactive). The original is asked for one topic after the other:
for MOST_QUESTIONS of them at most, AT_ONCE at a time, and for PATIENCE in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from admin.merge import objects, text
from admin.upstreams import UpstreamError, Upstreams

MOST_PORTIONS = 10  # of one nsqlookupd, with 50,000 topics and channels each
MOST_QUESTIONS = 1_000  # about single topics
AT_ONCE = 20
PATIENCE = 10.0  # s
NOT_FOUND = 404  # what an nsqlookupd answers that does not know the question

Channels = dict[str, list[str]]  # by topic


async def channels_of(
    upstreams: Upstreams, lookupds: Iterable[str], topics: Sequence[str]
) -> dict[str, list[str] | None]:
    """For each of the topics its channels, sorted; None where nobody told of one."""
    found: dict[str, set[str]] = {}
    for told in (await upstreams.all_of(lookupds, lambda one: _ask(upstreams, one, topics))).answers.values():
        for topic, channels in told.items():
            found.setdefault(topic, set()).update(channels)
    return {topic: sorted(found.get(topic, ())) or None for topic in topics}


async def _ask(upstreams: Upstreams, lookupd: str, topics: Sequence[str]) -> Channels:
    """What one nsqlookupd knows. Raises UpstreamError."""
    found: Channels = {}
    after = ""
    for _ in range(MOST_PORTIONS):
        try:
            told = await upstreams.get_object(lookupd, "/topics/inactive", {"after": after})
        except UpstreamError as error:
            if error.status != NOT_FOUND:
                raise
            return await _ask_for_each(upstreams, lookupd, topics)
        rows = objects(told.get("topics"))
        found |= {text(row.get("topic")): _names(row.get("channels")) for row in rows}
        last = text(rows[-1].get("topic")) if rows else ""
        if told.get("more") is not True or last <= after:
            break
        after = last
    return found


async def _ask_for_each(upstreams: Upstreams, lookupd: str, topics: Sequence[str]) -> Channels:
    """What an original nsqlookupd knows of each topic; a topic without an answer in time is left out."""
    found: Channels = {}
    slots = asyncio.Semaphore(AT_ONCE)

    async def ask(topic: str) -> None:
        async with slots:
            try:
                told = await upstreams.get_object(lookupd, "/channels", {"topic": topic})
            except UpstreamError:
                return
            found[topic] = _names(told.get("channels"))

    tasks = [asyncio.create_task(ask(topic)) for topic in topics[:MOST_QUESTIONS]]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=PATIENCE)
        for task in late:
            task.cancel()
    return found


def _names(value: object) -> list[str]:
    return [text(name) for name in value if isinstance(name, str)] if isinstance(value, list) else []
