"""Manage the named cursors of clients that read a topic back: position, lag, and what is held for them.

    GET  /topic/cursors?topic=t[&log=ID]
    POST /topic/cursor?topic=t&name=n[&to=PLACE][&owner=o][&hold=24h][&hold_bytes=N][&log=ID]    make it, or change it
    POST /topic/cursor/delete?topic=t&name=n[&owner=o][&log=ID]

A PLACE is one of those in read_back.py; a new cursor stands at the earliest message unless `to` says otherwise. Messages that a
cursor has not passed are retained for `hold` after their publish, and within the newest `hold_bytes`, even when the topic's
retention has passed them: within both bounds if both are given. So an abandoned cursor does not fill the disk. A cursor with an
owner is moved and deleted only by requests that name that owner: 403 OTHER_OWNER. 409 NOT_RETAINED if the topic retains
nothing, 429 TOO_MANY_CURSORS beyond 100 in a topic.

`log` is as in read_back.py. A promoted log has the cursors that it had at its node, and they hold its messages here. Those of a
replica can be listed, and not be changed: 409 READ_ONLY_LOG.
"""

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.retention.cursors import MOST, Cursor
from nsqd.core.retention.history import Window
from nsqd.core.topic import Topic
from nsqd.http.arguments import topic_name
from nsqd.http.logs import Replicas, find_topic
from nsqd.http.node import Node
from nsqd.http.offsets import (
    EARLIEST,
    OffsetArgument,
    OffsetFinder,
    check_offset,
    read_offset_argument,
)
from penstock.protocol.names import is_valid_name
from shared.auth.verbs import Verb
from shared.http.api import json_response, query
from shared.http.errors import HttpError
from shared.http.route import Route, on_topic
from shared.values import format_duration, parse_duration, parse_int

MOST_OWNER = 200  # bytes


class Cursors:
    """The three routes for the cursors of a topic."""

    def __init__(self, node: Node, replicas: Replicas) -> None:
        self._node = node
        self._replicas = replicas
        self._offset_finder = OffsetFinder(node, replicas)

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET /topic/cursors", self.cursors, on_topic(Verb.STATS), "topic, ?log", "List the cursors of a topic"
            ),
            Route(
                "POST /topic/cursor",
                self.move,
                on_topic(Verb.READ),
                "topic, name, ?to, ?owner, ?hold, ?hold_bytes, ?log",
                "Create or change a cursor",
            ),
            Route(
                "POST /topic/cursor/delete",
                self.delete,
                on_topic(Verb.CONFIGURE),
                "topic, name, ?owner, ?log",
                "Delete a cursor",
            ),
        ]

    async def cursors(self, request: Request) -> Response:
        """Answer all cursors of a topic, by name."""
        arguments = query(request)
        name, log_id = topic_name(arguments), arguments.get("log", "")
        replica = await self._replicas.open(log_id)

        def work() -> tuple[dict[str, Cursor], Window]:
            found = find_topic(self._node, name, log_id, 0, replica)
            return dict(found.cursors), found.window

        cursors, window = await self._node.bridge.call(work)
        cursors_told = [describe_cursor(cursor_name, cursor, window) for cursor_name, cursor in sorted(cursors.items())]
        return json_response({"topic": name, "log": window.log, "cursors": cursors_told})

    async def move(self, request: Request) -> Response:
        """Create a cursor, or change it, and answer its new state."""
        arguments = query(request)
        topic, name, owner = _names(arguments)
        log_id, changes = arguments.get("log", ""), _changes(arguments)
        offset, named = None, 0
        if "to" in arguments:
            place = read_offset_argument(arguments, "to", OffsetArgument(word=EARLIEST))
            offset, named = await self._offset_finder.offset(topic, log_id, place), place.offset or 0
        replica = await self._replicas.open(log_id)

        def work() -> tuple[Cursor, Window]:
            found = find_topic(self._node, topic, log_id, named, replica, named)
            return self._moved(found.changeable(), found.window, name, owner, offset, changes), found.window

        return json_response(describe_cursor(name, *await self._node.bridge.call(work)))

    def _moved(
        self, topic: Topic, window: Window, name: str, owner: str, offset: int | None, changes: dict[str, int]
    ) -> Cursor:
        """Create or change the cursor, and return it. Runs in the trio thread. Raises HttpError."""
        before = topic.cursors.get(name)
        if before is None and not self._node.broker.limits.policy.over(topic.config).retains:
            raise HttpError(409, "NOT_RETAINED")
        if before is None and len(topic.cursors) >= MOST:
            raise HttpError(429, "TOO_MANY_CURSORS")
        _check_owner(before, owner)
        if offset is not None:
            check_offset(offset, window)
        cursor = before or Cursor(window.first, owner)
        cursor = replace(
            cursor,
            offset=cursor.offset if offset is None else offset,
            hold=changes.get("hold", cursor.hold),
            hold_bytes=changes.get("hold_bytes", cursor.hold_bytes),
            updated=self._node.broker.wall,
        )
        topic.set_cursor(name, cursor)
        return cursor

    async def delete(self, request: Request) -> Response:
        """Delete a cursor, and answer its last state."""
        arguments = query(request)
        topic, name, owner = _names(arguments)
        log_id = arguments.get("log", "")
        replica = await self._replicas.open(log_id)

        def work() -> tuple[Cursor, Window]:
            found = find_topic(self._node, topic, log_id, 0, replica)
            changed, cursor = found.changeable(), found.cursors.get(name)
            if cursor is None:
                raise HttpError(404, "CURSOR_NOT_FOUND")
            _check_owner(cursor, owner)
            changed.set_cursor(name, None)
            return cursor, found.window

        return json_response(describe_cursor(name, *await self._node.bridge.call(work)))


def describe_cursor(name: str, cursor: Cursor, window: Window) -> dict[str, Any]:
    """Return a cursor as a dict for JSON."""
    return {
        "name": name,
        "offset": cursor.offset,
        "lag": max(0, window.next - cursor.offset),
        "gone": max(0, window.first - cursor.offset),  # how many messages of the lag retention has removed
        "owner": cursor.owner,
        "hold": format_duration(cursor.hold),
        "hold_bytes": cursor.hold_bytes,
        "updated": cursor.updated,
    }


def _names(arguments: dict[str, str]) -> tuple[str, str, str]:
    """Return the topic, the cursor's name and the owner. Raises HttpError 400."""
    topic = topic_name(arguments)
    if "name" not in arguments:
        raise HttpError(400, "MISSING_ARG_NAME")
    if not is_valid_name(arguments["name"]):
        raise HttpError(400, "INVALID_ARG_NAME")
    owner = arguments.get("owner", "")
    if len(owner.encode(errors="replace")) > MOST_OWNER or not owner.isprintable():
        raise HttpError(400, "INVALID_ARG_OWNER")
    return topic, arguments["name"], owner


def _changes(arguments: dict[str, str]) -> dict[str, int]:
    changes = {}
    for name, read in (("hold", parse_duration), ("hold_bytes", parse_int)):
        if name in arguments:
            try:
                changes[name] = read(arguments[name])
                if changes[name] < 0:
                    raise ValueError("expected no negative value")
            except ValueError:
                raise HttpError(400, f"INVALID_ARG_{name.upper()}") from None
    return changes


def _check_owner(cursor: Cursor | None, owner: str) -> None:
    if cursor is not None and cursor.owner and cursor.owner != owner:
        raise HttpError(403, "OTHER_OWNER")
