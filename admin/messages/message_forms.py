"""The actions of forms on messages and jobs. Each returns the path of the next page. Errors are raised, and shown as a page."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from admin.messages.actions import Actions, counted_of
from admin.messages.browsing import BULK_ACTIONS, BULK_JOB_ACTIONS, QUEUE_PAUSES, Browsing, one_number
from admin.messages.bulk import DONE_WORDS, BulkWork, route_of
from admin.messages.tasks import FASTEST, NotAllowed, Tasks, TooManyTasks
from admin.nodes.upstreams import UpstreamError
from admin.nodes.views import MOST_WHOLE
from admin.output.error_pages import Partly
from admin.output.form_state import MOST_SECONDS, FieldError, number_of
from admin.output.layout import Form, parameters
from admin.output.message_filters import read_filters
from admin.output.requests import confirm, forgetting, printable
from admin.output.site import Site
from admin.users.access import check_action, who_asks
from admin.users.roles import Who
from penstock.protocol.names import is_valid_name
from shared.http.api import Handler, Routes
from shared.http.errors import HttpError

ON_MESSAGES = ("finish", "requeue", "kick", "bury", "move", "redrive")
ON_JOBS = ("delete", "kick", "bury", "release")
MOST_ADDRESS = 300  # characters of a client's address
MOST_PICKED = 300  # messages that are chosen on a page
_LABELS = {"count": "Count", "per_second": "Max. per second"}  # of form fields


@dataclass(slots=True)
class MessageForms:
    """The request handlers of forms that act on messages, jobs and tubes."""

    site: Site
    actions: Actions
    tasks: Tasks
    browsing: Browsing

    def routes(self, shown: Mapping[str, Mapping[str, Handler]]) -> Routes:
        """Return the handlers of every path, by method. `shown`: those of the pages, which have the forms."""
        posted = {"/messages/{topic}/{channel}": self.change_messages, "/tube": self.change_tube}
        handler, cache = self.site.renderer.form_handler, self.site.queries.cache
        return {path: {"POST": handler(forgetting(cache, do), path, shown[path]["GET"])} for path, do in posted.items()}

    # Messages and jobs

    async def change_messages(self, request: Request, form: Form) -> str:
        """Act on one message, on those that were selected, or on many as a task; or disconnect a client."""
        _, topic, channel = parameters(request, self.site.options, 3)
        action, state = form.get("action", ""), form.get("state", "")
        if action == "disconnect":
            return await self._disconnect(request, form, topic, channel)
        if action not in ON_MESSAGES or state not in BULK_ACTIONS:
            raise HttpError(400, "Unknown action.")
        who = who_asks(request)
        check_action(who, action, topic, channel)
        asked = {"topic": topic, "channel": channel} | (_target(who, form, topic) if action == "move" else {})
        if action == "redrive":
            check_action(who, "publish", "")
        if "count" in form:
            return await self._begin_messages(request, form, asked)
        picked = _picked(form)
        if action == "finish" and sum(map(len, picked.values())) > 1:
            check_action(who, "finish-many", topic, channel)
        for node in picked:
            await self.site.queries.carrying(topic, node)
        done = await self._act_on(request, action, asked, picked)
        only = form.get("node", "") if "ticked" in form else form.get("only", "")
        back = {"node": only, "state": state, **read_filters(form, state).fields(), "after": form.get("after", "")}
        return self.site.renderer.url("messages", topic, channel, **back, did=action, n=str(done))

    async def _act_on(self, request: Request, action: str, asked: dict[str, str], picked: dict[str, list[str]]) -> int:
        """Act on messages by their offsets, by node, and return their number. Raises Partly or HttpError 502 if nodes fail."""
        path, done, errors = route_of("/channel/messages", action), 0, list[str]()
        for node, offsets in picked.items():
            try:
                done += await self._at_node(request, node, path, asked | {"offset": ",".join(offsets)}, action)
            except UpstreamError as failure:
                errors.append(str(failure))
        if errors:
            raise Partly(errors) if len(errors) < len(picked) else HttpError(502, "; ".join(errors))
        return done

    async def _at_node(self, request: Request, node: str, path: str, asked: dict[str, str], action: str) -> int:
        """Act on messages or jobs at a node, and return their number. Raises UpstreamError."""
        key, actor = DONE_WORDS[action], self.site.access.actor(request)
        answer, _ = await self.actions.at_node(action, node, path, asked, actor, counted=key)
        return counted_of(answer, key)

    async def _begin_messages(self, request: Request, form: Form, asked: dict[str, str]) -> str:
        """Start a task for many messages, on one node or on all."""
        action, state, topic, channel = form["action"], form["state"], asked["topic"], asked["channel"]
        if action not in BULK_ACTIONS[state]:
            raise HttpError(400, f"{action.capitalize()} is not available for {state.replace('_', ' ')} messages.")
        filters = self.browsing.allowed_filters(request, form, state, topic, channel)
        node = form.get("node", "")
        nodes = await self.browsing.nodes_of(topic, node)
        matching = filters.asked(time.time_ns())
        work = BulkWork(self.site.queries.direct, nodes, "/channel/messages", action, state, asked, matching)
        target = f"{state} messages of {topic}/{channel} at {node or 'all nodes'}"
        target += f" to {asked['to']}" if action == "move" else ""
        target += " to where they come from" if action == "redrive" else ""
        target += "".join(f", {name} {value}" for name, value in filters.fields().items())
        return self._begin(request, form, topic, target, work)

    async def _disconnect(self, request: Request, form: Form, topic: str, channel: str) -> str:
        """End the connection of a consumer at one node."""
        node, client = form.get("node", ""), form.get("client", "")
        check_action(who_asks(request), "disconnect", topic, channel)
        await self.site.queries.carrying(topic, node)
        if not client or len(client) > MOST_ADDRESS:
            raise HttpError(400, "Name the address of the client.")
        asked = {"topic": topic, "channel": channel, "client": client}
        await self.actions.at_node("disconnect", node, "/client/disconnect", asked, self.site.access.actor(request))
        return self.site.renderer.url("topics", topic, channel, did="disconnect")

    async def change_tube(self, request: Request, form: Form) -> str:
        """Act on the jobs of a tube, or pause or unpause the tube."""
        name, node, state, action = (form.get(key, "") for key in ("name", "node", "state", "action"))
        who = who_asks(request)
        if action not in ("pause", "unpause") and (action not in ON_JOBS or state not in BULK_JOB_ACTIONS):
            raise HttpError(400, "Unknown action.")
        check_action(who, action, name)
        await self.site.queries.node(node)
        if action in ("pause", "unpause"):
            asked = {"tube": name, **_pause_of_tube(action, form, who.name)}
            await self.actions.at_node(action, node, "/tube/pause", asked, self.site.access.actor(request))
            return self.site.renderer.url("tube", name=name, node=node, state=state, did=action)
        asked = {"tube": name}
        if "count" not in form:
            asked["id"] = one_number(form.get("id", ""), "id")
            done = await self._at_node(request, node, f"/tube/jobs/{action}", asked, action)
            back = {"name": name, "node": node, "state": state, "after": form.get("after", "")}
            did = "deletejob" if action == "delete" else action
            return self.site.renderer.url("tube", **back, did=did, n=str(done))
        if action not in BULK_JOB_ACTIONS[state]:
            raise HttpError(400, f"{action.capitalize()} is not available for {state} jobs.")
        work = BulkWork(self.site.queries.direct, [node], "/tube/jobs", action, state, asked)
        return self._begin(request, form, name, f"{state} jobs of tube {name} at {node}", work)

    def _begin(self, request: Request, form: Form, topic: str, target: str, work: BulkWork) -> str:
        """Start a task for many messages or jobs. Actions that lose them need a confirmation."""
        action, channel, to = work.action, work.asked.get("channel", ""), work.asked.get("to", "")
        who, is_loss, publishes = who_asks(request), action in ("finish", "delete"), action in ("move", "redrive")
        total, per_second = (_positive(form.get(name, ""), name) for name in ("count", "per_second"))
        needed = ("finish-many" if action == "finish" and total > 1 else action, "cancel")
        for one in needed:
            check_action(who, one, topic, channel)
        if is_loss:
            confirm(form, str(total), "number")

        async def step(count: int) -> int | None:
            may = all(self.site.access.still_may(who, one, topic, channel) for one in needed)
            if not may or (publishes and not self.site.access.still_may(who, "publish", to)):
                raise NotAllowed(f"{who.name or 'anonymous'} no longer has permission for this action")
            done = await work.step(count)
            self.site.queries.cache.invalidate()
            return done

        try:
            task = self.tasks.begin(
                action, topic, target, total, min(FASTEST, per_second), self.site.access.actor(request), step, channel
            )
        except TooManyTasks as full:
            raise HttpError(429, str(full)) from None
        return self.site.renderer.url("tasks", str(task.number))


def _target(who: Who, form: Form, topic: str) -> dict[str, str]:
    """Return the argument with the topic to which messages are moved. Raises HttpError 400 or 403."""
    to = form.get("to", "").strip()
    if not is_valid_name(to) or to == topic:
        raise FieldError("to", "Target topic must be the name of another topic.")
    check_action(who, "publish", to)
    return {"to": to}


def _picked(form: Form) -> dict[str, list[str]]:
    """Return the offsets of the chosen messages by node: of one, or of those that were selected. Raises HttpError 400."""
    if "ticked" not in form:
        return {form.get("node", ""): [one_number(form.get("offset", ""), "offset")]}
    chosen = [value.rpartition(" ") for name, value in form.items() if name.startswith("pick-")]
    if not chosen or len(chosen) > MOST_PICKED:
        raise HttpError(400, f"Select 1 to {MOST_PICKED} messages. Nothing was changed.")
    picked: dict[str, list[str]] = {}
    for node, _, offset in chosen:
        picked.setdefault(node, []).append(one_number(offset, "offset"))
    return picked


def _pause_of_tube(action: str, form: Form, by: str) -> dict[str, str]:
    """Return the arguments to pause or unpause a tube, or the queue of Disque's clients. Raises HttpError 400."""
    if "queue" in form:
        state = form["queue"] if action == "pause" else "none"
        if action == "pause" and state not in QUEUE_PAUSES:
            raise HttpError(400, "A queue is paused for jobs that are delivered, that are added, or both.")
        return {"queue": state} | ({"by": printable(by)} if by else {})
    seconds = form.get("seconds", "") if action == "pause" else "0"
    error = f"Pause duration must be a whole number from 0 to {MOST_SECONDS:,} seconds."
    return {"seconds": str(number_of("seconds", seconds, 0, MOST_SECONDS, error))}


def _positive(value: str, name: str) -> int:
    return number_of(name, value, 1, MOST_WHOLE, f"{_LABELS[name]} must be a whole number of at least 1.")
