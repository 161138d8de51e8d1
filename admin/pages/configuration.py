"""The page of a topic's settings on each of its nodes.

A change is previewed by GET, which changes nothing, and confirmed by POST. Only Penstock's nodes have these settings.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from starlette.requests import Request

from admin.messages.actions import Actions
from admin.nodes.cluster import Outcome, Producer
from admin.nodes.upstreams import UpstreamError
from admin.output import topic_settings
from admin.output.error_pages import check_outcome
from admin.output.form_answers import refuse_field
from admin.output.form_state import FieldError
from admin.output.layout import Fields, Form
from admin.output.requests import confirm
from admin.output.site import Site
from admin.output.topic_settings import NodeSettings, read_changes
from admin.users.access import check_action, place_of, who_asks
from penstock.protocol.names import is_ephemeral
from shared.http.api import Routes, query
from shared.http.bounded import AnswerError, parse_json
from shared.http.errors import HttpError
from shared.topic_config import AS_NODE, NO_TOPIC, SETTINGS
from shared.values import format_duration

PATH = "/configuration/{topic}"
LIMITS = {  # options of nsqd that bound messages, and their labels; constant while a node runs
    "max_msg_size": "Message size (bytes)",
    "max_msg_timeout": "Message timeout",
    "max_req_timeout": "Requeue delay",
}
_OUTDATED = "The settings have changed since this preview. Check the changes below. Nothing was changed."
MOST_NODES = 50  # whose limits are asked for
LONGEST = 1.5  # s that the page waits for them
MOST_MEMORY = 64 * 1024  # bytes of a limit's value


@dataclass(slots=True)
class Configuration:
    """The request handlers of a topic's configuration."""

    site: Site
    actions: Actions

    def routes(self) -> Routes:
        """Return the handlers of the path, by method."""
        shown = self.site.renderer.page_handler(self.page)
        return {PATH: {"GET": shown, "POST": self.site.renderer.form_handler(self.change, PATH, shown)}}

    async def page(self, request: Request) -> Fields:
        """Show the settings; with arguments, what they would change."""
        [topic], asked, who = place_of(request), query(request), who_asks(request)
        nodes, producers, penstock_nodes, errors = await self._settings(topic)
        changes: dict[str, str] = {}
        try:
            changes = read_changes(asked)
        except FieldError as error:
            refuse_field(request, asked, error)
        _, buried = await self.site.queries.ages(penstock_nodes, topic)
        return {
            "page_of": "configuration", "title": f"Configuration of {topic}", "still": True, "name": topic, "nodes": nodes,
            "settings": SETTINGS,
            "is_ephemeral": is_ephemeral(topic), "errors": errors,
            "others": sorted({one.address for one in producers} - {one.address for one in penstock_nodes}),
            "buried": sorted((name, count) for name, count in buried.items() if count),
            "limits": await self._limits(penstock_nodes) if who.sees_all else {}, "limit_labels": LIMITS,
            "latest": await self.site.audit.latest("configure", topic),
            "asked": changes, "changes": topic_settings.differences(nodes, changes),
            "removes": topic_settings.may_remove(nodes, changes),
            "differing": topic_settings.differing(nodes), "state": topic_settings.state_of(nodes),
            "table": [{"node": one.node, **one.values, "set_for_topic": " ".join(sorted(one.own))} for one in nodes],
        }  # fmt: skip

    async def change(self, request: Request, form: Form) -> str:
        """Change the settings that were previewed, on all nodes of the topic."""
        [topic] = place_of(request)
        if form.get("action") != "configure":
            raise HttpError(400, "Unknown action.")
        check_action(who_asks(request), "configure", topic)
        self.site.queries.cache.invalidate()  # the settings as they are now, not as they were a second ago
        nodes, _, _, errors = await self._settings(topic)
        changes = topic_settings.differences(nodes, asked := read_changes(form))
        if (target := asked.get("dead_letter", NO_TOPIC)) not in (NO_TOPIC, AS_NODE):
            check_action(who_asks(request), "publish", target)
        if not nodes:
            raise HttpError(502, "; ".join(errors) or "No node of this topic has these settings.")
        if not changes:
            raise HttpError(409, "All nodes already have these settings. Nothing was changed.")
        if form.get("state") != topic_settings.state_of(nodes):
            raise HttpError(409, _OUTDATED)
        if topic_settings.may_remove(nodes, asked):
            confirm(form, topic)
        try:
            outcome = await self.actions.configure(
                topic,
                [one.node for one in nodes],
                {one.name: one.after for one in changes},
                self.site.access.actor(request),
                {one.name: one.description for one in changes},
            )
        finally:
            self.site.queries.cache.invalidate()
        check_outcome(outcome + Outcome(errors))
        return self.site.renderer.url("configuration", topic, did="configure")

    async def _settings(self, topic: str) -> tuple[list[NodeSettings], list[Producer], list[Producer], list[str]]:
        """Return the settings on the nodes, the topic's nodes, Penstock's among them, and errors. Raises HttpError 404."""
        found = await self.site.queries.producers_of(topic)
        if not found.producers:
            raise HttpError(404, f"No nsqd has topic {topic}.")
        penstock_nodes = await self.site.queries.penstock_nodes(found.producers)
        gathered = await self.site.queries.ask_nodes(penstock_nodes, "/topic/config", {"topic": topic})
        nodes = [topic_settings.node_settings(node, answer) for node, answer in gathered.answers.items()]
        return nodes, found.producers, penstock_nodes, [*found.errors, *gathered.errors]

    async def _limits(self, nodes: Iterable[Producer]) -> dict[str, dict[str, str]]:
        """Return the limits of each node, as far as it shows them within LONGEST, by its address and their names."""
        asked = [(one.address, name) for one in islice(nodes, MOST_NODES) for name in LIMITS]
        values = await asyncio.gather(*(self._limit(node, name) for node, name in asked))
        found: dict[str, dict[str, str]] = {}
        for (node, name), value in zip(asked, values, strict=True):
            if value:
                found.setdefault(node, {})[name] = value
        return found

    async def _limit(self, node: str, name: str) -> str:
        try:
            async with asyncio.timeout(LONGEST):
                content = await self.site.queries.direct.get_bytes(node, f"/config/{name}", {})
        except (UpstreamError, TimeoutError):  # nsqadmin may have no right to see it; the page is useful without it
            return ""
        return limit_text(name, content)


def limit_text(name: str, content: bytes) -> str:
    """Return the value of an option of nsqd as the page shows it, or "" if it is none."""
    try:
        value = parse_json(content, MOST_MEMORY)
    except AnswerError:
        value = content.decode("utf-8", "replace")
    if type(value) is int and 0 <= value < 2**63:
        return format_duration(value) if name.endswith("timeout") else f"{value:,}"
    return value[:40] if isinstance(value, str) else json.dumps(value)[:40]
