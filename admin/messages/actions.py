"""Operators' commands to the cluster, recorded in the audit trail, and sent to the notification endpoint.

Each command first asks for the nsqd that have the topic, and then goes to nsqlookupd, and to those nsqd: once a topic is
deleted, its producers can no longer be found. It raises AllFailed if no node answers the first request. All other failures are
in the Outcome, as in the original: a channel that nsqlookupd does not know is still deleted on the nsqd.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import httpx

from admin.nodes.cluster import AllFailed, Cluster, Outcome, Producers
from admin.nodes.upstreams import UpstreamError
from admin.users.audit import DONE, Actor, Audit
from admin.users.outbox import MOST_WAITING, Outbox
from admin.users.tombstones import Tombstones
from shared.http.bounded import AnswerError, parse_object
from shared.log import log
from shared.secrets import hide
from shared.text import go_json

CHANGES = ("pause", "unpause", "empty")
TIMEOUT = 5.0  # s for each notification
MOST_ANSWER_MEMORY = 64 * 1024  # bytes of memory that a node's answer to a command may take
MOST_ID = 32  # characters of a message's id

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Published:
    """The answer of a node to a publish."""

    message_id: str  # "": the node does not name it
    is_duplicate: bool  # the node had received a message with this key before, and did not publish it again


class Notifier:
    """POSTs notifications of commands to an endpoint, one at a time, without delaying operators.

    It does not send commands that the original lacks, because endpoints know only the original's names.
    """

    def __init__(self, endpoint: str, clock: Callable[[], float] = time.time) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._outbox = Outbox(self._deliver)
        self._client: httpx.AsyncClient | None = None

    def notify(self, action: str, topic: str, channel: str, node: str, actor: Actor) -> None:
        """Queue the notification of a command."""
        if not self._endpoint:
            return
        notification: dict[str, object] = {"action": action, "topic": topic}
        notification |= {name: value for name, value in (("channel", channel), ("node", node)) if value}
        notification["timestamp"] = int(self._clock())
        notification |= {"user": actor.user} if actor.user else {}
        notification |= {"remote_ip": actor.remote_address, "user_agent": actor.user_agent, "url": actor.url}
        notification["via"] = socket.gethostname()
        if not self._outbox.put(notification):
            log.error("NOTIFICATION: dropped the notification of %s: the queue is full (%d)", action, MOST_WAITING)

    async def _deliver(self, notification: dict[str, object]) -> None:
        if self._client is None:  # created in the event loop that uses it
            self._client = httpx.AsyncClient(timeout=TIMEOUT, trust_env=False)
        post = partial(self._client.stream, "POST", self._endpoint, headers={"Content-Type": "application/json"})
        try:
            async with post(content=go_json(notification)) as answer:
                answer.raise_for_status()  # the rest of the answer is not read
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            log.error("NOTIFICATION: %s: %s", hide(self._endpoint), type(error).__name__)


class Actions:
    """The commands of operators to one cluster."""

    def __init__(self, cluster: Cluster, notifier: Notifier, audit: Audit, tombstones: Tombstones) -> None:
        self._cluster = cluster
        self._notifier = notifier
        self._audit = audit
        self._tombstones = tombstones

    async def create(self, topic: str, channel: str, actor: Actor) -> Outcome:
        """Create a topic at the nsqlookupds, and a channel if given, there and on the nsqd that have the topic.

        An nsqd creates the topic with the first message.
        """
        outcome = await self._record("create", _path(topic, channel), actor, self._create(topic, channel))
        self._notifier.notify("create_topic", topic, "", "", actor)
        if channel:
            self._notifier.notify("create_channel", topic, channel, "", actor)
        return outcome

    async def _create(self, topic: str, channel: str) -> Outcome:
        cluster = self._cluster
        outcome = await cluster.send(cluster.lookupds, "/topic/create", {"topic": topic})
        if channel:
            arguments = {"topic": topic, "channel": channel}
            outcome += await cluster.send(cluster.lookupds, "/channel/create", arguments)
            found = await cluster.producers_of(topic) if cluster.lookupds else Producers()
            outcome += Outcome(found.errors)
            outcome += await cluster.send(found.addresses, "/channel/create", arguments)
        return outcome

    async def delete(self, topic: str, channel: str, actor: Actor, before: dict[str, str] | None = None) -> Outcome:
        """Delete a topic, or one of its channels if given. `before`: its counts, for the audit record."""
        kind, arguments = _kind(topic, channel)

        async def work() -> Outcome:
            found = await self._cluster.producers_of(topic)
            sent = await self._cluster.send(self._cluster.lookupds, f"/{kind}/delete", arguments)
            sent += await self._cluster.send(found.addresses, f"/{kind}/delete", arguments)
            return Outcome(found.errors) + sent

        outcome = await self._record("delete", _path(topic, channel), actor, work(), **(before or {}))
        self._notifier.notify(f"delete_{kind}", topic, channel, "", actor)
        return outcome

    async def change(
        self, action: str, topic: str, channel: str, actor: Actor, before: dict[str, str] | None = None, **more: str
    ) -> Outcome:
        """Pause, unpause or empty (CHANGES) a topic or a channel.

        `before`: its counts, for the audit record; `more`: arguments that only Penstock's nsqd support.
        """
        kind, arguments = _kind(topic, channel)

        async def work() -> Outcome:
            found = await self._cluster.producers_of(topic)
            sent = await self._cluster.send(found.addresses, f"/{kind}/{action}", arguments | more)
            return Outcome(found.errors) + sent

        try:
            return await self._record(action, _path(topic, channel), actor, work(), **(before or {}), **more)
        finally:  # also after a failure, as in the original
            self._notifier.notify(f"{action}_{kind}", topic, channel, "", actor)

    async def tombstone(self, topic: str, node: str, actor: Actor) -> Outcome:
        """Hide a topic on one node from consumers, and delete it there. Raises AllFailed if the node is unknown."""

        async def work() -> Outcome:
            found = await self._cluster.producers()
            if node not in found.addresses:  # so that a request cannot direct nsqadmin to other servers
                raise AllFailed(f"no nsqd with the HTTP address {node[:100]} is known")
            sent = await self._cluster.send(self._cluster.lookupds, "/topic/tombstone", {"topic": topic, "node": node})
            return Outcome(found.errors) + sent + await self._cluster.send([node], "/topic/delete", {"topic": topic})

        outcome = await self._record("tombstone", _path(topic, "", node), actor, work())
        if outcome.done:
            self._tombstones.add(topic, node, actor.user)
        self._notifier.notify("tombstone_topic_producer", topic, "", node, actor)
        return outcome

    async def at_node(
        self, action: str, node: str, path: str, asked: dict[str, str], actor: Actor, body: bytes = b"",
        headers: dict[str, str] | None = None, counted: str = "",
    ) -> tuple[bytes, dict[str, str]]:  # fmt: skip
        """Run a command on one nsqd that the original lacks. Returns the answer and its headers. Raises UpstreamError."""
        target = _path(asked.get("topic") or asked.get("tube", ""), asked.get("channel", ""), node)
        named = {name: value for name, value in asked.items() if name not in ("topic", "channel", "tube")}
        answer = self._cluster.upstreams.send(node, path, asked, body, headers or {})
        return await self._record(action, target, actor, answer, counted, **named)

    async def publish(
        self, node: str, asked: dict[str, str], actor: Actor, body: bytes, headers: dict[str, str], *, names_id: bool
    ) -> Published:  # fmt: skip
        """Publish a message at one nsqd. `names_id`: the node is asked for the message's id. Raises UpstreamError."""

        async def work() -> Published:
            more = {"id": "true"} if names_id else {}
            _, answered = await self._cluster.upstreams.send(node, "/pub", asked | more, body, headers)
            message_id = answered.get("x-nsq-message-id", "")[:MOST_ID]
            return Published(message_id, bool(answered.get("x-nsq-duplicates")))

        detail = {name: value for name, value in asked.items() if name != "topic"}
        return await self._record("publish", _path(asked["topic"], "", node), actor, work(), **detail)

    async def configure(
        self, topic: str, nodes: list[str], changes: dict[str, str], actor: Actor, detail: dict[str, str]
    ) -> Outcome:  # fmt: skip
        """Change settings of a topic on these nodes. `detail`: the old and new values, for the audit record."""
        work = self._cluster.send(nodes, "/topic/config", {"topic": topic} | changes)
        return await self._record("configure", topic, actor, work, **detail)

    def note(self, action: str, target: str, actor: Actor, **detail: str) -> None:
        """Record an action that is no command to the cluster."""
        self._audit.note(action, target, actor, **detail)

    async def _record(
        self, action: str, target: str, actor: Actor, work: Awaitable[T], counted: str = "", **detail: str
    ) -> T:  # fmt: skip
        """Await `work`, and record the action and its outcome.

        `counted` is the key under which the answer gives the number of messages or jobs affected.
        """
        try:
            result = await work
        except (AllFailed, UpstreamError) as failed:
            self._audit.note(action, target, actor, f"failed: {failed}", **detail)
            raise
        if counted and isinstance(result, tuple):
            detail["count"] = str(counted_of(result[0], counted))
        outcome = DONE
        if isinstance(result, Published):
            outcome = "duplicate" if result.is_duplicate else DONE
            detail |= {"message_id": result.message_id} if result.message_id else {}
        if isinstance(result, Outcome) and result.errors:
            outcome = f"{'in part' if result.done else 'failed'}: {'; '.join(result.errors)}"
        self._audit.note(action, target, actor, outcome, **detail)
        return result


def counted_of(answer: bytes, key: str) -> int:
    """Return the count in an answer such as {"kicked": 7}, or 0 if it is not plausible, since nodes may lie."""
    try:
        value = parse_object(answer, MOST_ANSWER_MEMORY).get(key)
    except AnswerError:
        return 0
    return value if type(value) is int and 0 <= value <= 1_000_000 else 0


def _path(topic: str, channel: str, node: str = "") -> str:
    return " at ".join(filter(None, ("/".join(filter(None, (topic, channel))), node)))


def _kind(topic: str, channel: str) -> tuple[str, dict[str, str]]:
    return ("channel", {"topic": topic, "channel": channel}) if channel else ("topic", {"topic": topic})
