"""The pages of records: the history that a lake holds, tasks, and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from admin.messages.tasks import Tasks
from admin.nodes.history import GRAINS, History, history_view
from admin.nodes.views import whole
from admin.output.layout import Fields, View, parameters
from admin.output.site import Site
from admin.users.access import place_of, who_asks
from shared.http.api import query
from shared.http.errors import HttpError

MOST_LISTED = 100  # records on a page of the audit trail


@dataclass(slots=True)
class RecordPages:
    """The views of the record pages. They return the fields of their templates."""

    site: Site
    tasks: Tasks
    past: History

    def views(self) -> Mapping[str, View]:
        """Return the view function of each path."""
        return {
            "/history": self.history, "/history/{topic}": self.history, "/tasks": self.all_tasks,
            "/tasks/{task}": self.task, "/audit": self.audit,
        }  # fmt: skip

    async def history(self, request: Request) -> Fields:
        if not self.site.options.lake:
            raise HttpError(
                404, "History is not configured: start nsqadmin with -lake, the output of penstock archive."
            )
        topic = "".join(place_of(request))
        view = history_view(await self.past.rollups(topic, query(request).get("grain", "hour")))
        return {
            "page_of": "history", "title": f"History of {topic}" if topic else "History", "still": True, "topic": topic,
            "lake": self.site.options.lake, "grains": list(GRAINS), "history": view,
            "table": [{key: bar[key] for key in ("at", "messages", "bytes")} for bar in view["bars"]],
        }  # fmt: skip

    async def all_tasks(self, request: Request) -> Fields:
        who = who_asks(request)
        tasks = [task for task in self.tasks.all() if who.may("cancel", task.topic, task.channel)]
        return {"page_of": "tasks", "title": "Tasks", "tasks": tasks}

    async def task(self, request: Request) -> Fields:
        task = self.tasks.find(whole(parameters(request, self.site.options, 2)[1], 0))
        if task is None or not who_asks(request).may("cancel", task.topic, task.channel):
            raise HttpError(404, "Task not found. The audit log records what earlier tasks did.")
        return {"page_of": "task", "title": f"Task {task.number}", "task": task}

    async def audit(self, request: Request) -> Fields:
        asked = query(request)
        text, before = asked.get("q", "")[:200], asked.get("before", "")[:40]
        records = await self.site.audit.search(text, before, MOST_LISTED)
        return {
            "page_of": "audit", "title": "Audit", "records": records, "q": text, "path": self.site.audit.path,
            "following": records[-1]["time"] if len(records) == MOST_LISTED else "", "still": bool(before),
            "table": records,
        }  # fmt: skip
