"""Notifies webhooks: POSTs when alarms are raised and when they end, with retries.

The changes of one check are one POST. Each endpoint has a queue of its own: one that is down does not delay the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

import httpx

from admin.alarms.book import Alarm, Changes
from admin.users.outbox import MOST_WAITING, Outbox
from shared.json_fields import JsonObject
from shared.log import escape, log
from shared.secrets import hide
from shared.text import go_json

TIMEOUT = 5.0  # s for each try
RETRIES = (1.0, 5.0, 15.0, 60.0, 300.0)  # s before each further try
MOST_ALARMS = 50  # in one body
MOST_LINES = 10  # alarms in its text
LONGEST_LINE = 500  # characters of each
Send = Callable[[str, bytes], Awaitable[int]]  # URL and body; returns the status. Raises httpx.HTTPError


class Webhooks:
    """The endpoints that are notified of alarms."""

    def __init__(
        self, urls: Iterable[str], is_slack: bool, cluster: str, send: Send | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:  # fmt: skip
        """`cluster` is its name in the text. `send` and `sleep` stand for the network and the clock in tests."""
        self._is_slack = is_slack
        self._cluster = cluster
        self._send = send or _post
        self._sleep = sleep
        self._outboxes = {url: Outbox(self._deliverer(url)) for url in urls}
        self.failed = 0  # bodies that were dropped

    def notify(self, changes: Changes) -> None:
        """Queue the changes for every endpoint."""
        if not self._outboxes or not (changes.raised or changes.ended):
            return
        body = go_json(body_of(changes, self._cluster, is_slack=self._is_slack)).encode()
        for url, outbox in self._outboxes.items():
            if not outbox.put(body):
                self.failed += 1
                log.error("ALARMS: dropped a notification for %s: the queue is full (%d)", hide(url), MOST_WAITING)

    def _deliverer(self, url: str) -> Callable[[bytes], Awaitable[None]]:
        async def deliver(body: bytes) -> None:
            for wait in (*RETRIES, None):
                try:
                    status = await self._send(url, body)
                except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
                    why, is_final = type(error).__name__, False
                else:
                    why, is_final = f"it answered {status}", 400 <= status < 500 and status not in (408, 429)
                    if 200 <= status < 300:
                        return
                if wait is None or is_final:
                    break
                await self._sleep(wait)
            self.failed += 1
            log.error("ALARMS: cannot notify %s: %s", hide(url), why)

        return deliver


def body_of(changes: Changes, cluster: str, *, is_slack: bool) -> JsonObject:
    """Return the body of a notification: a text for people, and unless it is for Slack, the alarms."""
    lines = [f"{one.subject.severity.word.capitalize()}: {_line(one)}" for one in changes.raised]
    lines += [f"Ended: {_line(one)}" for one in changes.ended]
    more = len(lines) - MOST_LINES
    text = "\n".join(lines[:MOST_LINES] + ([f"and {more} more"] if more > 0 else []))
    body: JsonObject = {"text": f"nsqadmin, cluster {cluster}\n{text}"}
    if not is_slack:
        alarms = [("raised", one) for one in changes.raised] + [("ended", one) for one in changes.ended]
        body |= {"cluster": cluster, "time": int(time.time()), "left_out": max(0, len(alarms) - MOST_ALARMS)}
        body["alarms"] = [{"status": status, **one.json()} for status, one in alarms[:MOST_ALARMS]]
    return body


def _line(alarm: Alarm) -> str:
    # Slack's markup must not come from names: < and > make links and mentions. Nor must a node's words forge a line.
    line = escape(f"{alarm.rule.title}: {alarm.subject.name}: {alarm.words}")[:LONGEST_LINE]
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


async def _post(url: str, body: bytes) -> int:
    async with (
        httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as client,
        client.stream("POST", url, content=body, headers={"Content-Type": "application/json"}) as answer,
    ):
        return answer.status_code  # the rest of the answer is not read
