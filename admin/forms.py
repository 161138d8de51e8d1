"""The actions of the pages' forms. Each returns the path to go to next, with arguments that say what was done (see layout).

Errors are raised, and shown on the page of the form: FieldError for one of its fields, HttpError for the form as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request

from admin.access import Access, check_action, who_asks
from admin.actions import CHANGES, Actions, counted_of
from admin.api import parameters
from admin.audit import Actor
from admin.browsing import BULK_ACTIONS, BULK_JOB_ACTIONS, QUEUE_PAUSES, one_number
from admin.cluster import Outcome
from admin.cluster_state import DOWN, LOST, ClusterState
from admin.error_pages import Partly
from admin.form_state import MOST_DELAY, MOST_MINUTES, MOST_SECONDS, FieldError
from admin.layout import Do, Form, PageRenderer
from admin.options import AdminOptions
from admin.queries import Queries
from admin.tasks import FASTEST, NotAllowed, Tasks, TooManyTasks
from penstock.protocol.names import is_valid_name
from shared.http.api import Handler, Routes
from shared.http.errors import HttpError

ON_MESSAGES = ("finish", "requeue", "kick", "bury")
ON_JOBS = ("delete", "kick", "bury", "release")
DONE_WORDS = {
    "finish": "finished", "requeue": "requeued", "kick": "kicked", "bury": "buried", "delete": "deleted", "release": "released",
}  # fmt: skip
_LABELS = {"count": "Count", "per_second": "Max. per second"}  # of form fields
_HEADER = re.compile(r"([A-Za-z0-9_-]{1,64}):\s*(.*)")
_OF_A_NAME = 'Invalid name: use 1 to 64 of the characters . a-z A-Z 0-9 _ -, optionally followed by "#ephemeral".'


@dataclass(slots=True)
class Forms:
    """The request handlers of the forms."""

    options: AdminOptions
    queries: Queries
    renderer: PageRenderer
    access: Access
    actions: Actions
    tasks: Tasks

    def routes(self, shown: Mapping[str, Mapping[str, Handler]]) -> Routes:
        """Return the handlers of every path, by method. `shown`: those of the pages, which have the forms."""
        posted = {
            "/topics/{topic}": self.change,
            "/topics/{topic}/{channel}": self.change,
            "/messages/{topic}/{channel}": self.change_messages,
            "/tube": self.change_tube,
            "/nodes/{node}": self.change_node,
            "/cluster": self.change_cluster,
            "/tasks/{task}": self.cancel,
            "/lookup": self.create_or_forget,
        }
        handler = self.renderer.form_handler
        return {path: {"POST": handler(self._forgetting(do), path, shown[path]["GET"])} for path, do in posted.items()}

    def _forgetting(self, do: Do) -> Do:
        """Wrap an action so that pages see its effect at once, even if it failed."""

        async def work(request: Request, form: Form) -> str:
            try:
                return await do(request, form)
            finally:
                self.queries.cache.invalidate()

        return work

    # Topics and channels

    async def change(self, request: Request, form: Form) -> str:
        """Publish to a topic; or pause, unpause, empty or delete a topic or channel."""
        _, topic, *rest = parameters(request, self.options)
        channel, action, actor = "".join(rest), form.get("action", ""), self.access.actor(request)
        if action == "publish" and not channel:
            return await self._publish(request, topic, form)
        if action == "create" and not channel:
            return await self._create(request, topic, form.get("channel", ""))
        if action not in (*CHANGES, "delete"):
            raise HttpError(400, "Unknown action.")
        check_action(who_asks(request), action, topic, channel)
        if action in ("empty", "delete"):
            _confirm(form, channel or topic)
        before = await self._there(topic, channel) if action in ("empty", "delete") else {}
        if action == "delete":
            outcome = await self.actions.delete(topic, channel, actor, before)
        else:
            more = await self._of_pause(topic, form, actor.user) if action == "pause" else {}
            outcome = await self.actions.change(action, topic, channel, actor, before, **more)
        _check(outcome)
        if action == "delete":
            return self.renderer.url("topics", topic, did=action) if channel else self.renderer.url(did=action)
        return self.renderer.url("topics", topic, *rest, did=action)

    async def _there(self, topic: str, channel: str) -> dict[str, str]:
        """Return how many messages are about to be lost, for the audit record."""
        _, _, cached = await self.queries.topic(topic, channel)
        channels = [
            one for node in cached.now.topics for one in node["channels"] or () if channel in ("", one["channel_name"])
        ]
        held = sum(one["depth"] + one["in_flight_count"] + one["deferred_count"] for one in channels)
        return {"messages": str(held + (0 if channel else sum(node["depth"] for node in cached.now.topics)))}

    async def _of_pause(self, topic: str, form: Form, by: str) -> dict[str, str]:
        """Return who pauses and until when. Only Penstock's nsqd take these, so all of the topic's nodes must be such."""
        found = await self.queries.producers_of(topic)
        if len(await self.queries.penstock_nodes(found.producers)) < len(found.producers):
            if form.get("minutes"):
                raise FieldError(
                    "minutes", "Not all nodes of this topic support a pause duration. Leave the duration empty."
                )
            return {}
        more = {"by": _printable(by)} if by else {}
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
        producer = await self.queries.carrying(topic, node)
        is_penstock = bool(await self.queries.penstock_nodes([producer]))
        if (headers or key) and not is_penstock:
            raise FieldError("node", f"{node} does not support headers and deduplication keys.")
        asked = {"topic": topic} | {name: value for name, value in (("defer", delay), ("key", key)) if value}
        sent = {f"X-Nsq-Header-{name}": value for name, value in headers}
        actor = self.access.actor(request)
        published = await self.actions.publish(node, asked, actor, body, sent, names_id=is_penstock)
        done = {"published": published.message_id or "yes"}
        if published.is_duplicate:
            done = {"published": "duplicate", "key": key}
        return self.renderer.url("topics", topic, at=node, **done)

    # Messages and jobs

    async def change_messages(self, request: Request, form: Form) -> str:
        """Act on one message, by its offset; or on many, as a task."""
        _, topic, channel = parameters(request, self.options, 3)
        action, node, state = form.get("action", ""), form.get("node", ""), form.get("state", "")
        if action not in ON_MESSAGES or state not in BULK_ACTIONS:
            raise HttpError(400, "Unknown action.")
        check_action(who_asks(request), action, topic, channel)
        await self.queries.carrying(topic, node)
        asked = {"topic": topic, "channel": channel}
        if "count" not in form:
            asked["offset"] = one_number(form.get("offset", ""), "offset")
            path = f"/channel/messages/{action}"
            actor, word = self.access.actor(request), DONE_WORDS[action]
            answer, _ = await self.actions.at_node(action, node, path, asked, actor, counted=word)
            was = {name: form.get(name, "") for name in ("contains", "after")}
            done = {"did": action, "n": str(counted_of(answer, word))}
            return self.renderer.url("messages", topic, channel, node=node, state=state, **was, **done)
        if action not in BULK_ACTIONS[state]:
            raise HttpError(400, f"{action.capitalize()} is not available for {state.replace('_', ' ')} messages.")
        target = f"{state} messages of {topic}/{channel} at {node}"
        return self._begin(request, form, topic, target, "/channel/messages", asked)

    async def change_tube(self, request: Request, form: Form) -> str:
        """Act on the jobs of a tube, or pause or unpause the tube."""
        name, node, state, action = (form.get(key, "") for key in ("name", "node", "state", "action"))
        who, actor = who_asks(request), self.access.actor(request)
        if action not in ("pause", "unpause") and (action not in ON_JOBS or state not in BULK_JOB_ACTIONS):
            raise HttpError(400, "Unknown action.")
        check_action(who, action, name)
        await self.queries.node(node)
        if action in ("pause", "unpause"):
            asked = {"tube": name, **_pause_of_tube(action, form, who.name)}
            await self.actions.at_node(action, node, "/tube/pause", asked, actor)
            return self.renderer.url("tube", name=name, node=node, state=state, did=action)
        asked = {"tube": name}
        if "count" not in form:
            asked["id"] = one_number(form.get("id", ""), "id")
            word = DONE_WORDS[action]
            answer, _ = await self.actions.at_node(action, node, f"/tube/jobs/{action}", asked, actor, counted=word)
            done = {"did": "deletejob" if action == "delete" else action, "n": str(counted_of(answer, word))}
            return self.renderer.url("tube", name=name, node=node, state=state, after=form.get("after", ""), **done)
        if action not in BULK_JOB_ACTIONS[state]:
            raise HttpError(400, f"{action.capitalize()} is not available for {state} jobs.")
        return self._begin(request, form, name, f"{state} jobs of tube {name} at {node}", "/tube/jobs", asked)

    def _begin(self, request: Request, form: Form, topic: str, target: str, path: str, asked: dict[str, str]) -> str:
        """Start a task for many messages or jobs. Actions that lose them need a confirmation."""
        action, node, state, channel = form["action"], form["node"], form["state"], asked.get("channel", "")
        who, is_loss = who_asks(request), action in ("finish", "delete")
        needed = (action, "cancel", "empty") if is_loss else (action, "cancel")
        for one in needed:
            check_action(who, one, topic, channel)
        total, per_second = (_positive(form.get(name, ""), name) for name in ("count", "per_second"))
        if is_loss:
            _confirm(form, str(total), "number")
        word = DONE_WORDS[action]

        async def step(count: int) -> int:
            if not all(self.access.still_may(who, one, topic, channel) for one in needed):
                raise NotAllowed(f"{who.name or 'anonymous'} no longer has permission for this action")
            arguments = asked | {"state": state, "count": str(count)}
            answer = await self.queries.direct.post(node, f"{path}/{action}", arguments)
            self.queries.cache.invalidate()
            return counted_of(answer, word)

        try:
            task = self.tasks.begin(
                action, topic, target, total, min(FASTEST, per_second), self.access.actor(request), step, channel
            )
        except TooManyTasks as full:
            raise HttpError(429, str(full)) from None
        return self.renderer.url("tasks", str(task.number))

    async def cancel(self, request: Request, form: Form) -> str:
        """Cancel a task that the user may see."""
        word = parameters(request, self.options, 2)[1]
        task = self.tasks.find(int(word)) if word.isascii() and word.isdigit() and len(word) < 10 else None
        may_cancel = task is not None and who_asks(request).may("cancel", task.topic, task.channel)
        if task is None or not may_cancel or form.get("action") != "cancel":
            raise HttpError(404, "Task not found.")
        self.tasks.cancel(task.number, self.access.actor(request))
        return self.renderer.url("tasks", word)

    # Nodes

    async def change_node(self, request: Request, form: Form) -> str:
        """Tombstone a topic on a node, or drain the node, or end the drain."""
        node, action = parameters(request, self.options, 2)[1], form.get("action", "")
        actor = self.access.actor(request)
        if action in ("drain", "undrain"):
            check_action(who_asks(request), action, "")
            if action == "drain":
                _confirm(form, node)
            await self.queries.node(node)
            await self.actions.at_node(action, node, f"/node/{action}", {}, actor)
            return self.renderer.url("nodes", node, did=action)
        topic = form.get("topic", "")
        if action != "tombstone" or not is_valid_name(topic):
            raise HttpError(400, "Unknown action.")
        check_action(who_asks(request), "tombstone", topic)
        _confirm(form, topic)
        outcome = await self.actions.tombstone(topic, node, actor)
        _check(outcome)
        return self.renderer.url("nodes", node, did=action)

    async def change_cluster(self, request: Request, form: Form) -> str:
        """Have a cluster forget a node that is down, or have a node adopt the log of a lost one."""
        action, node = form.get("action", ""), form.get("node", "")
        if action not in ("forget", "adopt"):
            raise HttpError(400, "Unknown action.")
        check_action(who_asks(request), action, "")
        _confirm(form, node, "number")
        clusters = (await self.queries.clusters()).clusters
        found = next((one for one in clusters if one.name == form.get("cluster", "")), None)
        if found is None:  # so that a request cannot direct nsqadmin to other servers
            raise HttpError(404, "No node that answers is in this cluster.")
        return await (self._forget_node if action == "forget" else self._adopt_log)(request, form, found)

    async def _forget_node(self, request: Request, form: Form, found: ClusterState) -> str:
        """Have a cluster forget a node that is down, at a node that answers."""
        node = form["node"]
        gone = next((one for one in found.nodes if str(one.node) == node), None)
        if gone is None or gone.state != DOWN:
            raise HttpError(409, f"Node {node} is not down. Only a node that is down can be forgotten.")
        there = next((one.asked for one in found.nodes if one.asked), "")
        asked = {"node": node}
        await self.actions.at_node("forget", there, "/cluster/forget", asked, self.access.actor(request))
        return self.renderer.url("cluster", did="forget")

    async def _adopt_log(self, request: Request, form: Form, found: ClusterState) -> str:
        """Have a node adopt the log of a lost node though its copy may lack something."""
        node, log_id, by = form["node"], form.get("log", ""), form.get("by", "")
        lost = next((one for one in found.logs if one.log_id == log_id and str(one.node) == node), None)
        if lost is None or lost.state != LOST:
            raise HttpError(409, f"No node that answers has lost the owner of this log of node {node}.")
        if by not in (str(one.node) for one in lost.takers if one.may_adopt):
            raise FieldError("by", f"Node {by[:20]} has no complete copy of this log, or is adopting it.", 409)
        there = next((one.asked for one in found.nodes if str(one.node) == by), "")
        await self.actions.at_node("adopt", there, "/cluster/adopt", {"log": log_id}, self.access.actor(request))
        return self.renderer.url("cluster", did="adopt")

    async def create_or_forget(self, request: Request, form: Form) -> str:
        """Create or delete a topic, and perhaps create a channel, at nsqlookupd."""
        topic, channel, actor = form.get("topic", ""), form.get("channel", ""), self.access.actor(request)
        action = "delete" if form.get("action") == "delete" else "create"
        if not is_valid_name(topic):
            raise FieldError("topic", _OF_A_NAME)
        check_action(who_asks(request), action, topic)
        if action == "create":
            await self._created(topic, channel, actor)
        else:
            _check(await self.actions.delete(topic, "", actor))
        return self.renderer.url("lookup", did=action)

    async def _create(self, request: Request, topic: str, channel: str) -> str:
        """Create a channel of a topic, from the topic's page."""
        check_action(who_asks(request), "create", topic, channel)
        if not channel:
            raise FieldError("channel", _OF_A_NAME)
        await self._created(topic, channel, self.access.actor(request))
        return self.renderer.url("topics", topic, did="create")

    async def _created(self, topic: str, channel: str, actor: Actor) -> None:
        if channel and not is_valid_name(channel):
            raise FieldError("channel", _OF_A_NAME)
        _check(await self.actions.create(topic, channel, actor))


def _check(outcome: Outcome) -> None:
    """Raise Partly if an action failed on some nodes, or HttpError 502 if it failed on all."""
    if outcome.errors:
        raise Partly(outcome.errors) if outcome.done else HttpError(502, "; ".join(outcome.errors))


def _confirm(form: Form, expected: str, what: str = "name") -> None:
    """Raise FieldError unless the user typed what the form asked for."""
    if not expected or form.get("confirm") != expected:
        raise FieldError(
            "confirm", f"The {what} does not match. Type {expected[:200]} to confirm. Nothing was changed."
        )


def headers_of(lines: str) -> list[tuple[str, str]]:
    """Return the headers in a form's text: NAME: VALUE, one per line. Raises HttpError 400."""
    found = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        match = _HEADER.fullmatch(line)
        if match is None or not (match[2].isascii() and match[2].isprintable()):
            raise FieldError("headers", f"Invalid header {line[:100]!r}: use Name: value (ASCII).")
        found.append((match[1], match[2]))
    return found


def _printable(name: str) -> str:
    """Return a user's name as nodes take it."""
    return "".join(one for one in name if one.isprintable())[:100]


def _pause_of_tube(action: str, form: Form, by: str) -> dict[str, str]:
    """Return how a node is asked to pause a tube, or the queue of Disque's clients, or to resume it. Raises HttpError 400."""
    if "queue" in form:
        state = form["queue"] if action == "pause" else "none"
        if action == "pause" and state not in QUEUE_PAUSES:
            raise HttpError(400, "A queue is paused for jobs that go out, that come in, or both.")
        return {"queue": state} | ({"by": _printable(by)} if by else {})
    seconds = form.get("seconds", "") if action == "pause" else "0"
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) < 11 and int(seconds) <= MOST_SECONDS):
        raise FieldError("seconds", f"Pause duration must be a whole number from 0 to {MOST_SECONDS:,} seconds.")
    return {"seconds": seconds}


def _positive(value: str, name: str) -> int:
    if not (value.isascii() and value.isdigit() and 0 < len(value) < 10 and int(value)):
        raise FieldError(name, f"{_LABELS[name]} must be a whole number of at least 1.")
    return int(value)
