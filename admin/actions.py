"""What operators do to the cluster, noted in the audit trail, and told to whoever wants to be notified.

Each command asks first who carries the topic, then tells nsqlookupd, then the nsqd: what a topic's producers are is not to be
learnt any more once it is deleted. Raises AllFailed where nobody says who carries it; whatever else fails is in the Outcome, as
in the original: a channel that nsqlookupd does not know is deleted on the nsqd all the same.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx

from admin.audit import DONE, Actor, Audit
from admin.cluster import AllFailed, Cluster, Outcome, Producers
from admin.outbox import MOST_WAITING, Outbox
from admin.upstreams import UpstreamError
from shared.http.bounded import AnswerError, parse_object
from shared.log import log
from shared.secrets import hide
from shared.text import go_json

CHANGES = ("pause", "unpause", "empty")
TIMEOUT = 5.0  # s for each
MOST_TOLD = 64 * 1024  # bytes of memory that a node's answer to a command may take

T = TypeVar("T")


class Notifier:
    """POSTs what was done to an endpoint, one at a time, and never makes an operator wait.

    Of what the original cannot do it hears nothing: endpoints know its words.
    """

    def __init__(self, endpoint: str, clock: Callable[[], float] = time.time) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._outbox = Outbox(self._deliver)
        self._client: httpx.AsyncClient | None = None

    def tell(self, action: str, topic: str, channel: str, node: str, actor: Actor) -> None:
        """It was done."""
        if not self._endpoint:
            return
        told: dict[str, object] = {"action": action, "topic": topic}
        told |= {name: value for name, value in (("channel", channel), ("node", node)) if value}
        told["timestamp"] = int(self._clock())
        told |= {"user": actor.user} if actor.user else {}
        told |= {"remote_ip": actor.remote_address, "user_agent": actor.user_agent, "url": actor.url}
        told["via"] = socket.gethostname()
        if not self._outbox.put(told):
            log.error("NOTIFICATION: %s is not told: %d wait already", action, MOST_WAITING)

    async def _deliver(self, told: dict[str, object]) -> None:
        if self._client is None:  # in the loop in which it is used
            self._client = httpx.AsyncClient(timeout=TIMEOUT, trust_env=False)
        headers = {"Content-Type": "application/json"}
        try:
            async with self._client.stream("POST", self._endpoint, content=go_json(told), headers=headers) as answer:
                answer.raise_for_status()  # nobody reads what else it says
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            log.error("NOTIFICATION: %s: %s", hide(self._endpoint), type(error).__name__)


class Actions:
    """See above."""

    def __init__(self, cluster: Cluster, notifier: Notifier, audit: Audit) -> None:
        self._cluster = cluster
        self._notifier = notifier
        self._audit = audit

    async def create(self, topic: str, channel: str, actor: Actor) -> Outcome:
        """A topic, and a channel if it is named: at the nsqlookupds, so that nsqd make them with the first message."""
        outcome = await self._noted("create", _path(topic, channel), actor, self._create(topic, channel))
        self._notifier.tell("create_topic", topic, "", "", actor)
        if channel:
            self._notifier.tell("create_channel", topic, channel, "", actor)
        return outcome

    async def _create(self, topic: str, channel: str) -> Outcome:
        cluster = self._cluster
        outcome = await cluster.tell_lookupds("/topic/create", {"topic": topic})
        if channel:
            both = {"topic": topic, "channel": channel}
            outcome += await cluster.tell_lookupds("/channel/create", both)
            found = await cluster.producers_of(topic) if cluster.lookupds else Producers()
            outcome += Outcome(found.errors)
            outcome += await cluster.tell_nsqds(found.producers, "/channel/create", both)
        return outcome

    async def delete(
        self, topic: str, channel: str, actor: Actor, before: dict[str, str] | None = None
    ) -> Outcome:  # fmt: skip
        """A topic, or with a name one of its channels. `before`: what there is of it, for the records."""
        what, arguments = _what(topic, channel)

        async def work() -> Outcome:
            found = await self._cluster.producers_of(topic)
            told = await self._cluster.tell_lookupds(f"/{what}/delete", arguments)
            told += await self._cluster.tell_nsqds(found.producers, f"/{what}/delete", arguments)
            return Outcome(found.errors) + told

        outcome = await self._noted("delete", _path(topic, channel), actor, work(), **(before or {}))
        self._notifier.tell(f"delete_{what}", topic, channel, "", actor)
        return outcome

    async def change(
        self, action: str, topic: str, channel: str, actor: Actor, before: dict[str, str] | None = None, **more: str
    ) -> Outcome:
        """One of CHANGES. `before`: what there is of it, for the records; `more`: arguments that only nsqd of ours know."""
        what, arguments = _what(topic, channel)

        async def work() -> Outcome:
            found = await self._cluster.producers_of(topic)
            told = await self._cluster.tell_nsqds(found.producers, f"/{what}/{action}", arguments | more)
            return Outcome(found.errors) + told

        try:
            return await self._noted(action, _path(topic, channel), actor, work(), **(before or {}), **more)
        finally:  # though it failed: as the original
            self._notifier.tell(f"{action}_{what}", topic, channel, "", actor)

    async def tombstone(self, topic: str, node: str, actor: Actor) -> Outcome:
        """Consumers find the topic on that node no more; it is deleted there."""

        async def work() -> Outcome:
            found = await self._cluster.producers()
            there = [one for one in found.producers if one.address == node]
            if not there:  # nobody makes us ask somebody else
                raise AllFailed(f"no nsqd is known at {node[:100]}")
            told = await self._cluster.tell_lookupds("/topic/tombstone", {"topic": topic, "node": node})
            told += await self._cluster.tell_nsqds(there, "/topic/delete", {"topic": topic})
            return Outcome(found.errors) + told

        outcome = await self._noted("tombstone", _path(topic, "", node), actor, work())
        self._notifier.tell("tombstone_topic_producer", topic, "", node, actor)
        return outcome

    async def at_node(
        self, action: str, node: str, path: str, asked: dict[str, str], actor: Actor, body: bytes = b"",
        headers: dict[str, str] | None = None, counted: str = "",
    ) -> tuple[bytes, dict[str, str]]:  # fmt: skip
        """Something that only one nsqd does, and the original not at all. Its answer and headers. Raises UpstreamError."""
        target = _path(asked.get("topic") or asked.get("tube", ""), asked.get("channel", ""), node)
        named = {name: value for name, value in asked.items() if name not in ("topic", "channel", "tube")}
        told = self._cluster.upstreams.tell(node, path, asked, body, headers or {})
        return await self._noted(action, target, actor, told, counted, **named)

    def note(self, action: str, target: str, actor: Actor, **detail: str) -> None:
        """Something was done that is no command to the cluster."""
        self._audit.note(action, target, actor, **detail)

    async def _noted(
        self, action: str, target: str, actor: Actor, work: Awaitable[T], counted: str = "", **detail: str
    ) -> T:  # fmt: skip
        """Do it, and note it, and what became of it. `counted`: by which word an answer tells how many it was done to."""
        try:
            result = await work
        except (AllFailed, UpstreamError) as failed:
            self._audit.note(action, target, actor, f"failed: {failed}", **detail)
            raise
        if counted and isinstance(result, tuple):
            detail["count"] = str(counted_of(result[0], counted))
        words = DONE
        if isinstance(result, Outcome) and result.errors:
            words = f"{'in part' if result.done else 'failed'}: {'; '.join(result.errors)}"
        self._audit.note(action, target, actor, words, **detail)
        return result


def counted_of(answer: bytes, word: str) -> int:
    """Of {"kicked": 7}; nodes may lie."""
    try:
        value = parse_object(answer, MOST_TOLD).get(word)
    except AnswerError:
        return 0
    return value if type(value) is int and 0 <= value <= 1_000_000 else 0


def _path(topic: str, channel: str, node: str = "") -> str:
    return " at ".join(filter(None, ("/".join(filter(None, (topic, channel))), node)))


def _what(topic: str, channel: str) -> tuple[str, dict[str, str]]:
    return ("channel", {"topic": topic, "channel": channel}) if channel else ("topic", {"topic": topic})
