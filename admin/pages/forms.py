"""The actions of the pages' forms. Each returns the path to go to next, with arguments that say what was done (see layout).

Errors are raised, and shown on the page of the form: FieldError for one of its fields, HttpError for the form as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from admin.alarms.monitor import Monitor
from admin.messages.actions import CHANGES, Actions
from admin.messages.tasks import Tasks
from admin.nodes.views import whole
from admin.output.error_pages import check_outcome
from admin.output.form_state import MOST_DELAY, MOST_MINUTES, FieldError, number_of
from admin.output.layout import Form, parameters
from admin.output.requests import confirm, forgetting, headers_of, printable
from admin.output.site import Site
from admin.users.access import check_action, who_asks
from admin.users.audit import Actor
from penstock.protocol.names import is_valid_name
from shared.cluster.state import DOWN, LOST, ClusterState
from shared.http.api import Handler, Routes
from shared.http.errors import HttpError

_NO_DURATION = "Not all nodes of this topic support a pause duration. Leave the duration empty."
_WRONG_DURATION = f"Pause duration must be a whole number from 1 to {MOST_MINUTES:,} minutes (30 days), or empty."
_INVALID_NAME = 'Invalid name: use 1 to 64 of the characters . a-z A-Z 0-9 _ -, optionally followed by "#ephemeral".'


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

    async def change(self, request: Request, form: Form) -> str:
        """Publish to a topic; or pause, unpause, empty or delete a topic or channel."""
        _, topic, *rest = parameters(request, self.site.options)
        channel, action, actor = "".join(rest), form.get("action", ""), self.site.access.actor(request)
        if action == "publish" and not channel:
            return await self._publish(request, topic, form)
        if action == "create" and not channel:
            created = form.get("channel", "")
            check_action(who_asks(request), action, topic, created)
            if not created:
                raise FieldError("channel", _INVALID_NAME)
            await self._create(topic, created, actor)
            return self._url("topics", topic, did=action)
        if action not in (*CHANGES, "delete"):
            raise HttpError(400, "Unknown action.")
        check_action(who_asks(request), action, topic, channel)
        if action in ("empty", "delete"):
            confirm(form, channel or topic)
        before = await self._losses(topic, channel) if action in ("empty", "delete") else {}
        if action == "delete":
            check_outcome(await self.actions.delete(topic, channel, actor, before))
            return self._url(*(("topics", topic) if channel else ()), did=action)
        more = await self._pause(topic, form, actor.user) if action == "pause" else {}
        check_outcome(await self.actions.change(action, topic, channel, actor, before, **more))
        return self._url("topics", topic, *rest, did=action)

    async def _losses(self, topic: str, channel: str) -> dict[str, str]:
        """Return the number of messages that the action deletes, for the audit record."""
        topics = (await self.site.queries.topic(topic, channel))[2].now.topics
        channels = [one for node in topics for one in node["channels"] or () if channel in ("", one["channel_name"])]
        held = sum(one["depth"] + one["in_flight_count"] + one["deferred_count"] for one in channels)
        return {"messages": str(held + (0 if channel else sum(node["depth"] for node in topics)))}

    async def _pause(self, topic: str, form: Form, by: str) -> dict[str, str]:
        """Return the user who pauses and the end of the pause, if all nodes of the topic are Penstock's, which take these."""
        found, text = await self.site.queries.producers_of(topic), form.get("minutes", "")
        if len(await self.site.queries.penstock_nodes(found.producers)) < len(found.producers):
            if text:
                raise FieldError("minutes", _NO_DURATION)
            return {}
        more = {"by": printable(by)} if by else {}
        if not text:
            return more
        minutes = number_of("minutes", text, 1, MOST_MINUTES, _WRONG_DURATION)
        return more | {"until": str(int(time.time()) + 60 * minutes)}

    async def _publish(self, request: Request, topic: str, form: Form) -> str:
        check_action(who_asks(request), "publish", topic)
        node, body, key = form.get("node", ""), form.get("body", "").encode(), form.get("key", "")
        if not body:
            raise FieldError("body", "Body must not be empty.")
        delay = form.get("delay", "")
        if delay:
            number_of("delay", delay, 0, MOST_DELAY, f"Delay must be a whole number from 0 to {MOST_DELAY:,} ms.")
        headers = headers_of(form.get("headers", ""))
        producer = await self.site.queries.carrying(topic, node)
        is_penstock = bool(await self.site.queries.penstock_nodes([producer]))
        if (headers or key) and not is_penstock:
            raise FieldError("node", f"{node} does not support headers and deduplication keys.")
        asked = {"topic": topic} | {name: value for name, value in (("defer", delay), ("key", key)) if value}
        sent = {f"X-Nsq-Header-{name}": value for name, value in headers}
        actor = self.site.access.actor(request)
        published = await self.actions.publish(node, asked, actor, body, sent, names_id=is_penstock)
        if published.is_duplicate:
            return self._url("topics", topic, at=node, published="duplicate", key=key)
        return self._url("topics", topic, at=node, published=published.message_id or "yes")

    async def cancel(self, request: Request, form: Form) -> str:
        """Cancel a task that the user may see."""
        task = self.tasks.find(whole(parameters(request, self.site.options, 2)[1], 0))
        may_cancel = task is not None and who_asks(request).may("cancel", task.topic, task.channel)
        if task is None or not may_cancel or form.get("action") != "cancel":
            raise HttpError(404, "Task not found.")
        self.tasks.cancel(task.number, self.site.access.actor(request))
        return self._url("tasks", str(task.number))

    async def change_node(self, request: Request, form: Form) -> str:
        """Tombstone a topic on a node, or drain the node, or end the drain, or dismiss a node that is down."""
        node, action = parameters(request, self.site.options, 2)[1], form.get("action", "")
        topic = form.get("topic", "") if action == "tombstone" else ""
        if action not in ("dismiss", "drain", "undrain") and not is_valid_name(topic):
            raise HttpError(400, "Unknown action.")
        check_action(who_asks(request), action, topic)
        if action != "undrain":
            confirm(form, topic or node)
        actor = self.site.access.actor(request)
        if action == "dismiss":
            if not await self.monitor.dismiss(node):
                raise HttpError(409, f"Node {node} is not down. Only a node that is down can be dismissed.")
            self.actions.note("dismiss", node, actor)
            return self._url("nodes", did=action)
        if action == "tombstone":
            check_outcome(await self.actions.tombstone(topic, node, actor))
        else:
            await self.site.queries.node(node)
            await self.actions.at_node(action, node, f"/node/{action}", {}, actor)
        return self._url("nodes", node, did=action)

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
        at = next((one.asked for one in found.nodes if one.asked), "")
        await self.actions.at_node("forget", at, "/cluster/forget", {"node": node}, self.site.access.actor(request))
        return self._url("cluster", did="forget")

    async def _promote_log(self, request: Request, form: Form, found: ClusterState) -> str:
        """Have a node promote the log of a lost node though its copy may lack something."""
        node, log_id, by = form["node"], form.get("log", ""), form.get("by", "")
        lost = next((one for one in found.logs if one.log_id == log_id and str(one.node) == node), None)
        if lost is None or lost.state != LOST:
            raise HttpError(409, f"No responding node has lost the leader of this log of node {node}.")
        if by not in (str(one.node) for one in lost.takers if one.may_promote):
            raise FieldError("by", f"Node {by[:20]} has no complete copy of this log, or is promoting it.", 409)
        at = next((one.asked for one in found.nodes if str(one.node) == by), "")
        await self.actions.at_node("promote", at, "/cluster/promote", {"log": log_id}, self.site.access.actor(request))
        return self._url("cluster", did="promote")

    async def create_or_forget(self, request: Request, form: Form) -> str:
        """Create or delete a topic, and perhaps create a channel, at nsqlookupd."""
        topic, channel, actor = form.get("topic", ""), form.get("channel", ""), self.site.access.actor(request)
        action = "delete" if form.get("action") == "delete" else "create"
        if not is_valid_name(topic):
            raise FieldError("topic", _INVALID_NAME)
        check_action(who_asks(request), action, topic)
        if action == "delete":
            check_outcome(await self.actions.delete(topic, "", actor))
        else:
            await self._create(topic, channel, actor)
        return self._url("lookup", did=action)

    async def _create(self, topic: str, channel: str, actor: Actor) -> None:
        """Create a topic, and a channel if it has a name. Raises FieldError."""
        if channel and not is_valid_name(channel):
            raise FieldError("channel", _INVALID_NAME)
        check_outcome(await self.actions.create(topic, channel, actor))

    def _url(self, *parts: str, **arguments: str) -> str:
        return self.site.renderer.url(*parts, **arguments)
