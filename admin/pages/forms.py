"""The actions of the pages' forms. Each returns the path to go to next, with arguments that say what was done (see layout).

Errors are raised, and shown on the page of the form: FieldError for one of its fields, HttpError for the form as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request

from admin.alarms.monitor import Monitor
from admin.messages.actions import CHANGES, Actions
from admin.messages.tasks import Tasks
from admin.nodes.cluster import Outcome
from admin.output.error_pages import Partly
from admin.output.form_state import MOST_DELAY, MOST_MINUTES, FieldError
from admin.output.layout import Form, parameters
from admin.output.requests import confirm, forgetting, headers_of, printable
from admin.output.site import Site
from admin.users.access import check_action, who_asks
from admin.users.audit import Actor
from penstock.protocol.names import is_valid_name
from shared.cluster.state import DOWN, LOST, ClusterState
from shared.http.api import Handler, Routes
from shared.http.errors import HttpError

_OF_A_NAME = 'Invalid name: use 1 to 64 of the characters . a-z A-Z 0-9 _ -, optionally followed by "#ephemeral".'


@dataclass(slots=True)
class Forms:
    """The request handlers of the forms."""

    site: Site
    actions: Actions
    tasks: Tasks
    monitor: Monitor

    def routes(self, shown: Mapping[str, Mapping[str, Handler]]) -> Routes:
        """Return the handlers of every path, by method. `shown`: those of the pages, which have the forms."""
        posted = {
            "/topics/{topic}": self.change,
            "/topics/{topic}/{channel}": self.change,
            "/nodes/{node}": self.change_node,
            "/cluster": self.change_cluster,
            "/tasks/{task}": self.cancel,
            "/lookup": self.create_or_forget,
        }
        handler, cache = self.site.renderer.form_handler, self.site.queries.cache
        return {path: {"POST": handler(forgetting(cache, do), path, shown[path]["GET"])} for path, do in posted.items()}

    # Topics and channels

    async def change(self, request: Request, form: Form) -> str:
        """Publish to a topic; or pause, unpause, empty or delete a topic or channel."""
        _, topic, *rest = parameters(request, self.site.options)
        channel, action, actor = "".join(rest), form.get("action", ""), self.site.access.actor(request)
        if action == "publish" and not channel:
            return await self._publish(request, topic, form)
        if action == "create" and not channel:
            return await self._create(request, topic, form.get("channel", ""))
        if action not in (*CHANGES, "delete"):
            raise HttpError(400, "Unknown action.")
        check_action(who_asks(request), action, topic, channel)
        if action in ("empty", "delete"):
            confirm(form, channel or topic)
        before = await self._there(topic, channel) if action in ("empty", "delete") else {}
        if action == "delete":
            outcome = await self.actions.delete(topic, channel, actor, before)
        else:
            more = await self._of_pause(topic, form, actor.user) if action == "pause" else {}
            outcome = await self.actions.change(action, topic, channel, actor, before, **more)
        _check(outcome)
        if action == "delete":
            return (
                self.site.renderer.url("topics", topic, did=action) if channel else self.site.renderer.url(did=action)
            )
        return self.site.renderer.url("topics", topic, *rest, did=action)

    async def _there(self, topic: str, channel: str) -> dict[str, str]:
        """Return how many messages are about to be lost, for the audit record."""
        _, _, cached = await self.site.queries.topic(topic, channel)
        channels = [
            one for node in cached.now.topics for one in node["channels"] or () if channel in ("", one["channel_name"])
        ]
        held = sum(one["depth"] + one["in_flight_count"] + one["deferred_count"] for one in channels)
        return {"messages": str(held + (0 if channel else sum(node["depth"] for node in cached.now.topics)))}

    async def _of_pause(self, topic: str, form: Form, by: str) -> dict[str, str]:
        """Return who pauses and until when. Only Penstock's nsqd take these, so all of the topic's nodes must be such."""
        found = await self.site.queries.producers_of(topic)
        if len(await self.site.queries.penstock_nodes(found.producers)) < len(found.producers):
            if form.get("minutes"):
                raise FieldError(
                    "minutes", "Not all nodes of this topic support a pause duration. Leave the duration empty."
                )
            return {}
        more = {"by": printable(by)} if by else {}
        minutes = form.get("minutes", "")
        if not minutes:
            return more
        if not (minutes.isascii() and minutes.isdigit() and len(minutes) < 10 and 0 < int(minutes) <= MOST_MINUTES):
            raise FieldError(
                "minutes",
                f"Pause duration must be a whole number from 1 to {MOST_MINUTES:,} minutes (30 days), or empty."
                " Nothing was changed.",
            )
        return more | {"until": str(int(datetime.now().timestamp()) + 60 * int(minutes))}

    async def _publish(self, request: Request, topic: str, form: Form) -> str:
        check_action(who_asks(request), "publish", topic)
        node, body, key = form.get("node", ""), form.get("body", "").encode(), form.get("key", "")
        if not body:
            raise FieldError("body", "Body must not be empty.")
        delay = form.get("delay", "")
        if delay and not (delay.isascii() and delay.isdigit() and len(delay) < 11 and int(delay) <= MOST_DELAY):
            raise FieldError("delay", f"Delay must be a whole number from 0 to {MOST_DELAY:,} ms.")
        headers = headers_of(form.get("headers", ""))
        producer = await self.site.queries.carrying(topic, node)
        is_penstock = bool(await self.site.queries.penstock_nodes([producer]))
        if (headers or key) and not is_penstock:
            raise FieldError("node", f"{node} does not support headers and deduplication keys.")
        asked = {"topic": topic} | {name: value for name, value in (("defer", delay), ("key", key)) if value}
        sent = {f"X-Nsq-Header-{name}": value for name, value in headers}
        actor = self.site.access.actor(request)
        published = await self.actions.publish(node, asked, actor, body, sent, names_id=is_penstock)
        done = {"published": published.message_id or "yes"}
        if published.is_duplicate:
            done = {"published": "duplicate", "key": key}
        return self.site.renderer.url("topics", topic, at=node, **done)

    # Tasks

    async def cancel(self, request: Request, form: Form) -> str:
        """Cancel a task that the user may see."""
        word = parameters(request, self.site.options, 2)[1]
        task = self.tasks.find(int(word)) if word.isascii() and word.isdigit() and len(word) < 10 else None
        may_cancel = task is not None and who_asks(request).may("cancel", task.topic, task.channel)
        if task is None or not may_cancel or form.get("action") != "cancel":
            raise HttpError(404, "Task not found.")
        self.tasks.cancel(task.number, self.site.access.actor(request))
        return self.site.renderer.url("tasks", word)

    # Nodes

    async def change_node(self, request: Request, form: Form) -> str:
        """Tombstone a topic on a node, or drain the node, or end the drain, or forget a node that is down."""
        node, action = parameters(request, self.site.options, 2)[1], form.get("action", "")
        actor = self.site.access.actor(request)
        if action == "dismiss":
            check_action(who_asks(request), action, "")
            confirm(form, node)
            if not await self.monitor.dismiss(node):
                raise HttpError(409, f"Node {node} is not down. Only a node that is down can be dismissed.")
            self.actions.note("dismiss", node, actor)
            return self.site.renderer.url("nodes", did=action)
        if action in ("drain", "undrain"):
            check_action(who_asks(request), action, "")
            if action == "drain":
                confirm(form, node)
            await self.site.queries.node(node)
            await self.actions.at_node(action, node, f"/node/{action}", {}, actor)
            return self.site.renderer.url("nodes", node, did=action)
        topic = form.get("topic", "")
        if action != "tombstone" or not is_valid_name(topic):
            raise HttpError(400, "Unknown action.")
        check_action(who_asks(request), "tombstone", topic)
        confirm(form, topic)
        outcome = await self.actions.tombstone(topic, node, actor)
        _check(outcome)
        return self.site.renderer.url("nodes", node, did=action)

    async def change_cluster(self, request: Request, form: Form) -> str:
        """Have a cluster forget a node that is down, or have a node promote the log of a lost one."""
        action, node = form.get("action", ""), form.get("node", "")
        if action not in ("forget", "promote"):
            raise HttpError(400, "Unknown action.")
        check_action(who_asks(request), action, "")
        confirm(form, node, "number")
        clusters = (await self.site.queries.clusters()).clusters
        found = next((one for one in clusters if one.name == form.get("cluster", "")), None)
        if found is None:  # so that a request cannot direct nsqadmin to other servers
            raise HttpError(404, "No node that answers is in this cluster.")
        return await (self._forget_node if action == "forget" else self._promote_log)(request, form, found)

    async def _forget_node(self, request: Request, form: Form, found: ClusterState) -> str:
        """Have a cluster forget a node that is down, at a node that answers."""
        node = form["node"]
        gone = next((one for one in found.nodes if str(one.node) == node), None)
        if gone is None or gone.state != DOWN:
            raise HttpError(409, f"Node {node} is not down. Only a node that is down can be forgotten.")
        there = next((one.asked for one in found.nodes if one.asked), "")
        asked = {"node": node}
        await self.actions.at_node("forget", there, "/cluster/forget", asked, self.site.access.actor(request))
        return self.site.renderer.url("cluster", did="forget")

    async def _promote_log(self, request: Request, form: Form, found: ClusterState) -> str:
        """Have a node promote the log of a lost node though its copy may lack something."""
        node, log_id, by = form["node"], form.get("log", ""), form.get("by", "")
        lost = next((one for one in found.logs if one.log_id == log_id and str(one.node) == node), None)
        if lost is None or lost.state != LOST:
            raise HttpError(409, f"No responding node has lost the leader of this log of node {node}.")
        if by not in (str(one.node) for one in lost.takers if one.may_promote):
            raise FieldError("by", f"Node {by[:20]} has no complete copy of this log, or is promoting it.", 409)
        there = next((one.asked for one in found.nodes if str(one.node) == by), "")
        await self.actions.at_node(
            "promote", there, "/cluster/promote", {"log": log_id}, self.site.access.actor(request)
        )
        return self.site.renderer.url("cluster", did="promote")

    async def create_or_forget(self, request: Request, form: Form) -> str:
        """Create or delete a topic, and perhaps create a channel, at nsqlookupd."""
        topic, channel, actor = form.get("topic", ""), form.get("channel", ""), self.site.access.actor(request)
        action = "delete" if form.get("action") == "delete" else "create"
        if not is_valid_name(topic):
            raise FieldError("topic", _OF_A_NAME)
        check_action(who_asks(request), action, topic)
        if action == "create":
            await self._created(topic, channel, actor)
        else:
            _check(await self.actions.delete(topic, "", actor))
        return self.site.renderer.url("lookup", did=action)

    async def _create(self, request: Request, topic: str, channel: str) -> str:
        """Create a channel of a topic, from the topic's page."""
        check_action(who_asks(request), "create", topic, channel)
        if not channel:
            raise FieldError("channel", _OF_A_NAME)
        await self._created(topic, channel, self.site.access.actor(request))
        return self.site.renderer.url("topics", topic, did="create")

    async def _created(self, topic: str, channel: str, actor: Actor) -> None:
        if channel and not is_valid_name(channel):
            raise FieldError("channel", _OF_A_NAME)
        _check(await self.actions.create(topic, channel, actor))


def _check(outcome: Outcome) -> None:
    """Raise Partly if an action failed on some nodes, or HttpError 502 if it failed on all."""
    if outcome.errors:
        raise Partly(outcome.errors) if outcome.done else HttpError(502, "; ".join(outcome.errors))
