"""Pages that list messages of channels and jobs of tubes in every state, and search them. They change nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from admin.messages.message_list import MOST_FOUND, MOST_NODES, MOST_SHOWN, MessageList, MessageLists
from admin.nodes.cluster import Producer
from admin.nodes.merge import fields
from admin.nodes.upstreams import Gathered
from admin.nodes.views import job_view, message_view, whole
from admin.output.layout import HEADERS, Fields, parameters
from admin.output.message_filters import Filters, read_filters
from admin.output.site import Site
from admin.output.tables import TUBES
from admin.users.access import who_asks
from admin.users.roles import Who
from shared.auth.verbs import Verb
from shared.counted import counted
from shared.http.api import Routes, query
from shared.http.errors import HttpError
from shared.json_fields import JsonObject, number, objects, text
from shared.values import whole_number

MOST_LISTED = 100  # tubes on a page
MOST_SKIPPED = 20  # pages of tubes that the user may not see
PREVIEW = 16 * 1024  # bytes of a body
_CONTENTS = ("body", "body_base64", "headers", "key")
BulkActions = Mapping[str, tuple[str, ...]]  # names of actions, by state
BULK_ACTIONS: BulkActions = {  # on all messages in a state: the actions that lead out of it
    "ready": ("bury", "move", "redrive", "finish"),
    "in_flight": ("requeue", "bury", "move", "redrive", "finish"),
    "deferred": ("requeue", "bury", "move", "redrive", "finish"),
    "buried": ("kick", "move", "redrive", "finish"),
}
BULK_JOB_ACTIONS: BulkActions = {
    "ready": ("bury", "delete"),
    "reserved": ("release", "delete"),
    "delayed": ("kick", "bury", "delete"),
    "buried": ("kick", "delete"),
}
MOST_NAME, MOST_CLIENT = 64, 255  # characters of a topic's name, and of a field about a client
MOST_TARGETS = 1000  # topics that are offered as targets
QUEUE_PAUSES = ("in", "out", "all")  # of Disque's PAUSE: jobs that are added, jobs that are delivered, or both
MOST_NUMBER = (1 << 64) - 1  # of a job or an offset


@dataclass(slots=True)
class Browsing:
    """The request handlers of the browsing pages."""

    site: Site
    lists: MessageLists = field(init=False)

    def __post_init__(self) -> None:
        self.lists = MessageLists(self.site.queries)

    def routes(self) -> Routes:
        """Return the handlers of every path, by method."""
        shown = {"/messages/{topic}/{channel}": self.messages, "/tubes": self.tubes, "/tube": self.tube}
        routes = {path: {"GET": self.site.renderer.page_handler(view)} for path, view in shown.items()}
        return {**routes, "/body/{topic}/{channel}": {"GET": self.site.renderer.raw_handler(self.body)}}

    async def messages(self, request: Request) -> Fields:
        _, topic, name = parameters(request, self.site.options, 3)
        asked, who = query(request), who_asks(request)
        shows, node, state = self.shows_bodies(who, topic, name), asked.get("node", ""), _state(asked, BULK_ACTIONS)
        filters = self.allowed_filters(request, asked, state, topic, name)
        nodes = await self.nodes_of(topic)
        listed = await self.nodes_of(topic, node) if node else nodes[:MOST_NODES]
        arguments = {"topic": topic, "channel": name, "state": state, "preview": str(PREVIEW if shows else 0)}
        arguments |= filters.asked(time.time_ns())
        find = self.lists.search if filters else self.lists.page
        found = await find(listed, arguments, asked.get("after", ""))
        chosen = {"node": node, "state": state, **filters.fields()}
        return {
            "page_of": "messages", "title": f"Messages of {name}", "topic_name": topic, "name": name,
            "node": node, "nodes": nodes, "chosen": chosen, "filters": filters, "is_filtered": bool(filters),
            "scanned": found.scanned, "counts": found.counts, "silent": found.silent, "shows_bodies": shows,
            "messages": await asyncio.to_thread(lambda: [message_view(one) | _found_at(one) for one in found.messages]),
            "errors": found.errors + _unlisted(nodes, node),
            "table": _table([_exported(one) for one in found.messages], shows),
            **_common(asked, state, {"total": found.counts[state], "next": found.following}, BULK_ACTIONS),
            **(_count_of_matches(asked, found) if filters else {}),
            **await self._publishing(asked, who, topic, state, shows),
        }  # fmt: skip

    def allowed_filters(self, request: Request, asked: dict[str, str], state: str, topic: str, channel: str) -> Filters:
        """Return the filters in the arguments. Raises HttpError 400, or 403 if the user may not see what they compare."""
        filters = read_filters(asked, state)
        if filters.asks_about_contents and not self.shows_bodies(who_asks(request), topic, channel):
            raise HttpError(403, "Filtering by body or header requires permission to view message bodies.")
        return filters

    async def nodes_of(self, topic: str, node: str = "") -> list[str]:
        """Return the nodes that have the topic and list messages; with `node`, only that one. Raises HttpError 404."""
        if node:
            await self.site.queries.carrying(topic, node)
            return [node]
        found = await self.site.queries.penstock_nodes((await self.site.queries.producers_of(topic)).producers)
        if not found:
            raise HttpError(404, f"No node that lists messages has topic {topic}. Only Penstock's nsqd list messages.")
        return [one.address for one in found]

    async def _publishing(self, asked: dict[str, str], who: Who, topic: str, state: str, shows: bool) -> Fields:
        """Return the fields about actions that publish, with the topics to which messages may be moved if the page asks."""
        may_publish, names, queries = who.identity.rights.any_of(Verb.PUBLISH), list[str](), self.site.queries
        hidden = {name for name, may in (("move", may_publish), ("redrive", who.may("publish", ""))) if not may}
        if asked.get("many") == "move":
            names = (await queries.cache.get("topics", queries.cluster.topics)).now.names
        return {
            "may_republish": shows and who.may("publish", topic),
            "may_move": may_publish,
            "can_many": [one for one in BULK_ACTIONS[state] if one not in hidden],
            "targets": sorted(name for name in names if who.may("publish", name))[:MOST_TARGETS],
            "to": asked.get("to", "")[:MOST_NAME],
        }

    async def body(self, request: Request) -> Response:
        """Return the whole body of one message, as a download."""
        node, arguments = await self.one_message(request)
        content = await self.site.queries.direct.get_bytes(node, "/channel/message", arguments)
        named = {"Content-Disposition": f'attachment; filename="message-{whole(arguments["offset"], 0)}.bin"'}
        return Response(content, 200, HEADERS | named, "application/octet-stream")

    async def one_message(self, request: Request) -> tuple[str, dict[str, str]]:
        """Return the node of a message, and the arguments that name it there. Raises HttpError if the user may not read it."""
        _, topic, channel = parameters(request, self.site.options, 3)
        asked = query(request)
        node, offset = asked.get("node", ""), one_number(asked.get("offset", ""), "offset")
        if not self.shows_bodies(who_asks(request), topic, channel):
            raise HttpError(403, "You do not have permission to view message bodies.")
        await self.site.queries.carrying(topic, node)
        return node, {"topic": topic, "channel": channel, "offset": offset}

    def shows_bodies(self, who: Who, topic: str, channel: str = "") -> bool:
        """Return whether the bodies of a channel, or of a tube, are shown to this user."""
        return self.site.options.show_bodies and who.identity.rights.may(Verb.READ, topic, channel)

    async def tubes(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        penstock_nodes = await self.site.queries.all_penstock_nodes()
        arguments = {"limit": str(MOST_LISTED)} | ({"after": asked["after"]} if asked.get("after") else {})
        gathered = await self._visible_tubes(penstock_nodes, arguments, who)
        tubes = {node: objects(answer.get("tubes"))[:MOST_LISTED] for node, answer in gathered.answers.items()}
        listed = [_tube_row(node, one) for node, found in tubes.items() for one in found]
        listed.sort(key=lambda one: (one["tube_name"], one["node"]))
        names = list(dict.fromkeys(one["tube_name"] for one in listed))[:MOST_LISTED]
        shown = set(who.visible(names))
        rows = [one for one in listed if one["tube_name"] in shown]
        full = any(len(found) == MOST_LISTED for found in tubes.values())
        return {
            "page_of": "tubes", "title": "Tubes", "rows": TUBES.sorted(rows, asked), "table": rows, "errors": gathered.errors,
            "following": rows[-1]["tube_name"] if full and rows else "",
        }  # fmt: skip

    async def _visible_tubes(
        self, penstock_nodes: list[Producer], arguments: dict[str, str], who: Who
    ) -> Gathered[JsonObject]:
        """Return a page with tubes that the user may see, if there is one among the next MOST_SKIPPED pages."""
        for _ in range(MOST_SKIPPED):
            gathered = await self.site.queries.ask_nodes(penstock_nodes, "/tubes", arguments)
            listed = [
                [text(one.get("tube_name")) for one in objects(answer.get("tubes"))]
                for answer in gathered.answers.values()
            ]
            ends = [names[-1] for names in listed if len(names) == MOST_LISTED]
            if not ends or any(who.visible(names) for names in listed):
                break
            arguments = arguments | {"after": min(ends)}
        return gathered

    async def tube(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        name, node = asked.get("name", ""), asked.get("node", "")
        state, shows = _state(asked, BULK_JOB_ACTIONS), self.shows_bodies(who, name)
        if not who.identity.rights.may(Verb.BROWSE, name):
            raise HttpError(403, "FORBIDDEN")
        await self.site.queries.node(node)
        arguments = {"tube": name, "state": state, "limit": str(MOST_SHOWN), "preview": str(PREVIEW if shows else 0)}
        arguments |= {"after": asked["after"]} if "after" in asked else {}
        data = await self.site.queries.direct.get_object(node, "/tube/jobs", arguments)
        return {
            "page_of": "tube", "title": f"Tube {name}", "name": name, "node": node,
            "may": who.offered(name), "shows_bodies": shows,
            "tube": _tube_row(node, fields(data.get("tube"))),
            "pause_left": number(data.get("pause_left")),
            "jobs": [job_view(one) for one in objects(data.get("jobs"))[:MOST_SHOWN]],
            "table": _table(data.get("jobs"), shows),
            **_common(asked, state, data, BULK_JOB_ACTIONS),
        }  # fmt: skip


def one_number(text: str, name: str) -> str:
    """Return the digits of one whole number, since nodes accept several with commas. Raises HttpError 400."""
    try:
        return str(whole_number(text, 0, MOST_NUMBER))
    except ValueError:
        raise HttpError(400, f"{name.capitalize()} must be one whole number.") from None


def _state(asked: dict[str, str], many: BulkActions) -> str:
    """Return the requested state. Raises HttpError 400 for an unknown one, or one that the requested action does not leave."""
    state, action = asked.get("state", "") or "ready", asked.get("many", "")
    if state not in many or (action and action not in many[state]):
        raise HttpError(400, f"Unknown state {state[:64]}, or the action is not available in it.")
    return state


def _common(asked: dict[str, str], state: str, data: JsonObject, many: BulkActions) -> Fields:
    """Return the template fields that pages of messages and jobs share."""
    total = number(data.get("total"))
    return {
            "state": state, "states": list(many), "total": total,
            "following": text(data.get("next")), "after": asked.get("after", ""),
            "can_many": many[state], "many": asked.get("many", ""),
        "count": min(total, whole(asked.get("count", ""), total)) or total,
        "per_second": max(1, whole(asked.get("per_second", ""), 1000)),
    }  # fmt: skip


def _table(data: object, shows: bool) -> list[JsonObject]:
    """Return the rows for exports, without contents that the user may not see."""
    return [{name: one[name] for name in one if shows or name not in _CONTENTS} for one in objects(data)[:MOST_FOUND]]


def _tube_row(node: str, data: JsonObject) -> JsonObject:
    """Return the row of a tube, with the clients of each protocol. Those of Disque watch only while they wait."""
    names = ("ready", "urgent", "reserved", "delayed", "buried", "job", "using", "watching", "waiting")
    counts = {f"{name}_count": number(data.get(f"{name}_count")) for name in names}
    disque, nodes = (number(data.get(f"{name}_waiting_count")) for name in ("disque", "node"))
    paused = text(data.get("queue_paused"))
    return {
        "tube_name": text(data.get("tube_name")), "node": node, **counts,
        "watching_count": max(0, counts["watching_count"] - disque),
        "waiting_count": max(0, counts["waiting_count"] - disque - nodes),
        "disque_waiting_count": disque, "node_waiting_count": nodes,
        "queue_paused": paused if paused in QUEUE_PAUSES else "none", "pause_left": number(data.get("pause_left")),
        "oldest": number(data.get("oldest")), "oldest_job": number(data.get("oldest_job")),
    }  # fmt: skip


def _found_at(one: JsonObject) -> JsonObject:
    """Return the node of a message, and the client that has it in flight."""
    client = fields(one.get("client"))
    names = ("client_id", "hostname", "remote_address", "user_agent")
    shown = {name: text(client.get(name))[:MOST_CLIENT] for name in names}
    return {"node": one["node"], "client": shown if client else None}


def _exported(one: JsonObject) -> JsonObject:
    """Return a message for exports, whose cells have no objects: the address of its client stands for it."""
    client = one.get("client")
    return one | ({"client": text(client.get("remote_address"))} if isinstance(client, dict) else {})


def _count_of_matches(asked: dict[str, str], found: MessageList) -> Fields:
    """Return the count for a bulk action with filters, if the page has all messages that match."""
    if found.following or found.silent or asked.get("after") or not found.messages:
        return {}
    matches = len(found.messages)
    return {"count": min(matches, whole(asked.get("count", ""), matches)) or matches}


def _unlisted(nodes: list[str], node: str) -> list[str]:
    left = len(nodes) - MOST_NODES
    return (
        [f"{counted(left, 'more node')} with this topic. Choose a node to list its messages."]
        if left > 0 and not node
        else []
    )
