"""The actions of forms on messages and jobs. Each returns the path to go to next. Errors are raised, and shown as a page."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from admin.access import Access, check_action, who_asks
from admin.actions import Actions, counted_of
from admin.api import parameters
from admin.browsing import BULK_ACTIONS, BULK_JOB_ACTIONS, QUEUE_PAUSES, one_number
from admin.forms import forgetting, printable
from admin.layout import Form, PageRenderer
from admin.options import AdminOptions
from admin.queries import Queries
from admin.tasks import FASTEST, NotAllowed, Tasks, TooManyTasks
from shared.http.api import Routes
from shared.http.errors import HttpError

ON_MESSAGES = ("finish", "requeue", "kick", "bury")
ON_JOBS = ("delete", "kick", "bury", "release")
DONE_WORDS = {
    "finish": "finished", "requeue": "requeued", "kick": "kicked", "bury": "buried", "delete": "deleted", "release": "released",
}  # fmt: skip
_LABELS = {"count": "Count", "per_second": "Max. per second"}  # of form fields


@dataclass(slots=True)
class MessageForms:
    """The request handlers of forms that act on messages, jobs and tubes."""

    options: AdminOptions
    queries: Queries
    renderer: PageRenderer
    access: Access
    actions: Actions
    tasks: Tasks

    def routes(self) -> Routes:
        """Return the handlers of every path, by method."""
        posted = {"/messages/{topic}/{channel}": self.change_messages, "/tube": self.change_tube}
        cache = self.queries.cache
        return {path: {"POST": self.renderer.form_handler(forgetting(cache, do))} for path, do in posted.items()}

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
        if is_loss and form.get("confirm") != str(total):
            raise HttpError(400, f"The number does not match. Type {total} to confirm. Nothing was changed.")
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


def _pause_of_tube(action: str, form: Form, by: str) -> dict[str, str]:
    """Return how a node is asked to pause a tube, or the queue of Disque's clients, or to resume it. Raises HttpError 400."""
    if "queue" in form:
        state = form["queue"] if action == "pause" else "none"
        if action == "pause" and state not in QUEUE_PAUSES:
            raise HttpError(400, "A queue is paused for jobs that go out, that come in, or both.")
        return {"queue": state} | ({"by": printable(by)} if by else {})
    seconds = form.get("seconds", "") if action == "pause" else "0"
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) < 10):
        raise HttpError(400, "Pause duration must be a whole number of seconds.")
    return {"seconds": seconds}


def _positive(value: str, name: str) -> int:
    if not (value.isascii() and value.isdigit() and 0 < len(value) < 10 and int(value)):
        raise HttpError(400, f"{_LABELS[name]} must be a whole number of at least 1.")
    return int(value)
