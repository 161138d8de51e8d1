"""What operators do to the cluster, told to whoever wants to be notified.

Each command asks first who carries the topic, then tells nsqlookupd, then the nsqd: what a topic's producers are is not to be
learnt any more once it is deleted. Returns the errors of those that failed; raises AllFailed where nobody did it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from admin.cluster import Cluster
from shared.log import log

CHANGES = ("pause", "unpause", "empty")
MOST_WAITING = 1000  # notifications that were not delivered yet
TIMEOUT = 5.0  # s for each


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did it, as the request tells."""

    user: str  # of HTTP basic authentication; "": not said
    remote_address: str
    user_agent: str
    url: str


class Notifier:
    """POSTs what was done to an endpoint, one at a time, and never makes an operator wait."""

    def __init__(self, endpoint: str, clock: Callable[[], float] = time.time) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._waiting: asyncio.Queue[dict[str, object]] = asyncio.Queue(MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    def tell(self, action: str, topic: str, channel: str, node: str, actor: Actor) -> None:
        """It was done."""
        self.note(action, "/".join(filter(None, (topic, channel, node))), actor)
        if not self._endpoint:
            return
        told: dict[str, object] = {"action": action, "topic": topic}
        told |= {name: value for name, value in (("channel", channel), ("node", node)) if value}
        told["timestamp"] = int(self._clock())
        told |= {"user": actor.user} if actor.user else {}
        told |= {"remote_ip": actor.remote_address, "user_agent": actor.user_agent, "url": actor.url}
        told["via"] = socket.gethostname()
        try:
            self._waiting.put_nowait(told)
        except asyncio.QueueFull:
            log.error("NOTIFICATION: %s is not told: %d wait already", action, MOST_WAITING)
            return
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._deliver())

    @staticmethod
    def note(action: str, what: str, actor: Actor) -> None:
        """It was done; of what the original cannot do only the log tells, so that no endpoint hears words it does not know."""
        log.info("ACTION: %s %r, by %s from %s", action, what, actor.user or "somebody", actor.remote_address)

    async def _deliver(self) -> None:
        async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as client:
            while True:
                told = await self._waiting.get()
                content = json.dumps(told).encode()
                try:
                    answer = await client.post(
                        self._endpoint, content=content, headers={"Content-Type": "application/json"}
                    )
                    answer.raise_for_status()
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    log.error("NOTIFICATION: %s: %s", self._endpoint, error or type(error).__name__)


class Actions:
    """See above."""

    def __init__(self, cluster: Cluster, notifier: Notifier) -> None:
        self._cluster = cluster
        self._notifier = notifier

    async def create(self, topic: str, channel: str, actor: Actor) -> list[str]:
        """A topic, and a channel if it is named: at the nsqlookupds, so that nsqd make them with the first message."""
        cluster = self._cluster
        errors = await cluster.tell_lookupds("/topic/create", {"topic": topic})
        if channel:
            both = {"topic": topic, "channel": channel}
            errors += await cluster.tell_lookupds("/channel/create", both)
            found = await cluster.producers_of(topic) if cluster.lookupds else None
            errors += found.errors if found else []
            errors += await cluster.tell_nsqds(found.producers if found else (), "/channel/create", both)
        self._notifier.tell("create_topic", topic, "", "", actor)
        if channel:
            self._notifier.tell("create_channel", topic, channel, "", actor)
        return errors

    async def delete(self, topic: str, channel: str, actor: Actor) -> list[str]:
        """A topic, or with a name one of its channels."""
        cluster, what, arguments = self._cluster, *_what(topic, channel)
        found = await cluster.producers_of(topic)
        errors = list(found.errors)
        errors += await cluster.tell_lookupds(f"/{what}/delete", arguments)
        errors += await cluster.tell_nsqds(found.producers, f"/{what}/delete", arguments)
        self._notifier.tell(f"delete_{what}", topic, channel, "", actor)
        return errors

    async def change(self, action: str, topic: str, channel: str, actor: Actor) -> list[str]:
        """One of CHANGES."""
        what, arguments = _what(topic, channel)
        try:
            found = await self._cluster.producers_of(topic)
            told = await self._cluster.tell_nsqds(found.producers, f"/{what}/{action}", arguments)
            return found.errors + told
        finally:  # though it failed: as the original
            self._notifier.tell(f"{action}_{what}", topic, channel, "", actor)

    async def publish(self, node: str, topic: str, body: bytes, actor: Actor) -> None:
        """A message, to one node. Raises UpstreamError."""
        await self._cluster.upstreams.post(node, "/pub", {"topic": topic}, body)
        self._notifier.note("publish", f"{topic} at {node}", actor)

    async def change_messages(self, action: str, node: str, asked: dict[str, str], actor: Actor) -> None:
        """Finish, requeue, kick or bury messages; `asked`: as nsqd's /channel/messages/... has it. Raises UpstreamError."""
        await self._cluster.upstreams.post(node, f"/channel/messages/{action}", asked)
        self._notifier.note(f"{action}_messages", f"{asked} at {node}", actor)

    async def tombstone(self, topic: str, node: str, actor: Actor) -> list[str]:
        """Consumers find the topic on that node no more; it is deleted there."""
        errors = await self._cluster.tell_lookupds("/topic/tombstone", {"topic": topic, "node": node})
        found = await self._cluster.of_node(node)
        errors += found.errors
        errors += await self._cluster.tell_nsqds(found.producers, "/topic/delete", {"topic": topic})
        self._notifier.tell("tombstone_topic_producer", topic, "", node, actor)
        return errors


def _what(topic: str, channel: str) -> tuple[str, dict[str, str]]:
    return ("channel", {"topic": topic, "channel": channel}) if channel else ("topic", {"topic": topic})
