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
from admin.nodes.upstreams import Gathered
from admin.nodes.views import job_view, message_view, whole
from admin.output.layout import HEADERS, Fields, parameters
from admin.output.message_filters import read_filters
from admin.output.site import Site
from admin.output.tables import TUBES
from admin.users.access import who_asks
from admin.users.roles import Who
from shared.auth.verbs import Verb
from shared.http.api import Routes, query
from shared.http.errors import HttpError
from shared.json_fields import JsonObject, number, objects, text

MOST_LISTED = 100  # tubes on a page
MOST_PASSED = 20  # pages of tubes to skip that the user may not see
PREVIEW = 16 * 1024  # bytes of a body
_CONTENTS = ("body", "body_base64", "headers", "key")
BulkActions = Mapping[str, tuple[str, ...]]  # names of actions, by state
BULK_ACTIONS: BulkActions = {  # actions on all messages in a state: those that lead out of it
    "ready": ("bury", "move", "finish"),
    "in_flight": ("requeue", "bury", "move", "finish"),
    "deferred": ("requeue", "bury", "move", "finish"),
    "buried": ("kick", "move", "finish"),
}
BULK_JOB_ACTIONS: BulkActions = {
    "ready": ("bury", "delete"),
    "reserved": ("release", "delete"),
    "delayed": ("kick", "bury", "delete"),
    "buried": ("kick", "delete"),
}
MOST_NAME, MOST_CLIENT = 64, 255  # characters of a topic's name, and of what a client says of itself
MOST_TARGETS = 1000  # topics that are offered as targets
QUEUE_PAUSES = ("in", "out", "all")  # what PAUSE of Disque's clients pauses: jobs that come, jobs that go, or both
MOST_DIGITS = 20  # digits of a number of 64 bits


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
        filters = read_filters(asked, state)
        if filters.asks_about_contents and not shows:
            raise HttpError(403, "Filtering by body or header requires permission to view message bodies.")
        nodes = await self.nodes_of(topic)
        listed = await self.nodes_of(topic, node) if node else nodes[:MOST_NODES]
        arguments = {"topic": topic, "channel": name, "state": state, "preview": str(PREVIEW if shows else 0)}
        arguments |= filters.asked(time.time_ns())
        find = self.lists.search if filters else self.lists.page
        found = await find(listed, arguments, asked.get("after", ""))
        chosen = {"node": node, "state": state, **filters.fields()}
        return {
            "page_of": "messages",
            "title": f"Messages of {name}",
            "topic_name": topic,
            "name": name,
            "node": node,
            "nodes": nodes,
            "chosen": chosen,
            "filters": filters,
            "is_filtered": bool(filters),
            "scanned": found.scanned,
            "counts": found.counts,
            "silent": found.silent,
            "shows_bodies": shows,
            "messages": await asyncio.to_thread(_views, found.messages),
            "errors": found.errors + _unlisted(nodes, node),
            "table": _table([_exported(one) for one in found.messages], shows),
            **_common(asked, state, _page_data(found, state), BULK_ACTIONS),
            **(_count_of_matches(asked, found) if filters else {}),
            **await self._publishing(asked, who, topic, state, shows),
        }

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
        """Return the fields about actions that publish: which are offered, and to which topics messages may be moved."""
        may_publish = who.identity.rights.any_of(Verb.PUBLISH)
        return {
            "may_republish": shows and who.may("publish", topic),
            "may_move": may_publish,
            "can_many": [one for one in BULK_ACTIONS[state] if one != "move" or may_publish],
            "targets": await self._targets(asked, who),
            "to": asked.get("to", "")[:MOST_NAME],
        }

    async def _targets(self, asked: dict[str, str], who: Who) -> list[str]:
        """Return names of topics to which messages may be moved, if the page asks for one."""
        if asked.get("many") != "move":
            return []
        named = (await self.site.queries.cache.get("topics", self.site.queries.cluster.topics)).now.names
        return sorted(name for name in named if who.may("publish", name))[:MOST_TARGETS]

    async def body(self, request: Request) -> Response:
        """Return the whole body of one message, as a download."""
        _, topic, channel = parameters(request, self.site.options, 3)
        asked = query(request)
        node, offset = asked.get("node", ""), one_number(asked.get("offset", ""), "offset")
        if not self.shows_bodies(who_asks(request), topic, channel):
            raise HttpError(403, "You do not have permission to view message bodies.")
        await self.site.queries.carrying(topic, node)
        arguments = {"topic": topic, "channel": channel, "offset": offset}
        content = await self.site.queries.direct.get_bytes(node, "/channel/message", arguments)
        named = {"Content-Disposition": f'attachment; filename="message-{whole(offset, 0)}.bin"'}
        return Response(content, 200, HEADERS | named, "application/octet-stream")

    def shows_bodies(self, who: Who, topic: str, channel: str = "") -> bool:
        """Return whether the bodies of a channel, or of a tube, are shown to this user."""
        return self.site.options.show_bodies and who.identity.rights.may(Verb.READ, topic, channel)

    async def tubes(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        penstock_nodes = await self.site.queries.all_penstock_nodes()
        arguments = {"limit": str(MOST_LISTED)} | ({"after": asked["after"]} if asked.get("after") else {})
        gathered = await self._tubes_seen(penstock_nodes, arguments, who)
        listed = [
            _tube_row(node, one)
            for node, answer in gathered.answers.items()
            for one in objects(answer.get("tubes"))[:MOST_LISTED]
        ]
        names = sorted({one["tube_name"] for one in listed})[:MOST_LISTED]
        shown = set(who.visible(names))
        rows = sorted(
            (one for one in listed if one["tube_name"] in shown), key=lambda one: (one["tube_name"], one["node"])
        )
        full = any(len(objects(answer.get("tubes"))) == MOST_LISTED for answer in gathered.answers.values())
        return {
            "page_of": "tubes",
            "title": "Tubes",
            "rows": TUBES.sorted(rows, asked),
            "following": rows[-1]["tube_name"] if full and rows else "",
            "errors": gathered.errors,
            "table": rows,
        }

    async def _tubes_seen(
        self, penstock_nodes: list[Producer], arguments: dict[str, str], who: Who
    ) -> Gathered[JsonObject]:
        """Return a page with tubes that the user sees, if there are any. Up to MOST_PASSED pages are looked through."""
        for _ in range(MOST_PASSED):
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
        data = await self.site.queries.direct.get_object(
            node, "/tube/jobs", {"tube": name, **_page(asked, state, shows)}
        )
        return {
            "page_of": "tube",
            "may": who.offered(name),
            "title": f"Tube {name}",
            "name": name,
            "node": node,
            "shows_bodies": shows,
            "tube": _tube_row(node, figures if isinstance(figures := data.get("tube"), dict) else {}),
            "pause_left": number(data.get("pause_left")),
            "jobs": [job_view(one) for one in objects(data.get("jobs"))[:MOST_SHOWN]],
            "table": _table(data.get("jobs"), shows),
            **_common(asked, state, data, BULK_JOB_ACTIONS),
        }


def one_number(text: str, name: str) -> str:
    """Return the digits of one whole number, since nodes accept several with commas. Raises HttpError 400."""
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise HttpError(400, f"{name.capitalize()} must be one whole number.")
    return text


def _state(asked: dict[str, str], many: BulkActions) -> str:
    """Return the requested state. Raises HttpError 400 for an unknown one, or one that the requested action does not leave."""
    state, action = asked.get("state", "") or "ready", asked.get("many", "")
    if state not in many or (action and action not in many[state]):
        raise HttpError(400, f"Unknown state {state[:64]}, or the action is not available in it.")
    return state


def _page(asked: dict[str, str], state: str, shows: bool) -> dict[str, str]:
    """Return a node's arguments for one page of messages or jobs."""
    after = {"after": asked["after"]} if "after" in asked else {}
    return {"state": state, "limit": str(MOST_SHOWN), "preview": str(PREVIEW if shows else 0)} | after


def _common(asked: dict[str, str], state: str, data: JsonObject, many: BulkActions) -> Fields:
    """Return the template fields that pages of messages and jobs share."""
    total = number(data.get("total"))
    return {
        "state": state,
        "states": list(many),
        "total": total,
        "following": text(data.get("next")),
        "after": asked.get("after", ""),
        "can_many": many[state],
        "many": asked.get("many", ""),
        "count": min(total, whole(asked.get("count", ""), total)) or total,
        "per_second": max(1, whole(asked.get("per_second", ""), 1000)),
        "still": True,
    }


def _table(data: object, shows: bool) -> list[JsonObject]:
    """Return the rows for exports, without contents that the user may not see."""
    return [{name: one[name] for name in one if shows or name not in _CONTENTS} for one in objects(data)[:MOST_FOUND]]


def _tube_row(node: str, data: JsonObject) -> JsonObject:
    """Return what a page shows of a tube, with the clients of each protocol. Those of Disque watch only while they wait."""
    names = ("ready", "urgent", "reserved", "delayed", "buried", "job", "using", "watching", "waiting")
    counts = {f"{name}_count": number(data.get(f"{name}_count")) for name in names}
    disque, nodes = (number(data.get(f"{name}_waiting_count")) for name in ("disque", "node"))
    paused = text(data.get("queue_paused"))
    return {
        "tube_name": text(data.get("tube_name")),
        "node": node,
        **counts,
        "watching_count": max(0, counts["watching_count"] - disque),
        "waiting_count": max(0, counts["waiting_count"] - disque - nodes),
        "disque_waiting_count": disque,
        "node_waiting_count": nodes,
        "queue_paused": paused if paused in QUEUE_PAUSES else "none",
        "pause_left": number(data.get("pause_left")),
    }


def _views(messages: list[JsonObject]) -> list[JsonObject]:
    return [message_view(one) | _found_at(one) for one in messages]


def _found_at(one: JsonObject) -> JsonObject:
    """Return where a message is, and which client has it in flight."""
    client = one.get("client")
    told = client if isinstance(client, dict) else {}
    names = ("client_id", "hostname", "remote_address", "user_agent")
    shown = {name: text(told.get(name))[:MOST_CLIENT] for name in names}
    return {"node": one["node"], "client": shown if told else None}


def _exported(one: JsonObject) -> JsonObject:
    """Return a message for exports, whose cells have no objects: the address of its client stands for it."""
    client = one.get("client")
    return one | ({"client": text(client.get("remote_address"))} if isinstance(client, dict) else {})


def _page_data(found: MessageList, state: str) -> JsonObject:
    """Return a page of several nodes as one node would answer it."""
    return {"total": found.counts[state], "next": found.following}


def _count_of_matches(asked: dict[str, str], found: MessageList) -> Fields:
    """Return how many messages a bulk action with filters is for, if the page has all that match."""
    if found.following or found.silent or asked.get("after") or not found.messages:
        return {}
    matches = len(found.messages)
    return {"count": min(matches, whole(asked.get("count", ""), matches)) or matches}


def _unlisted(nodes: list[str], node: str) -> list[str]:
    left = len(nodes) - MOST_NODES
    return [f"{left} more nodes have this topic. Choose a node to list its messages."] if left > 0 and not node else []
