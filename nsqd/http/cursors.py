"""Manage the named cursors of clients that read a topic back: position, lag, and what is held for them.

    GET  /topic/cursors?topic=t[&log=ID]
    POST /topic/cursor?topic=t&name=n[&to=PLACE][&owner=o][&hold=24h][&hold_bytes=N][&log=ID]    make it, or change it
    POST /topic/cursor/delete?topic=t&name=n[&owner=o][&log=ID]

A PLACE is as for /topic/read; a new cursor is at the earliest message unless `to` says otherwise. Messages that a
cursor has not passed are retained for `hold` after their publish, and within the newest `hold_bytes`, even when the topic's
retention has passed them: within both bounds if both are given. So an abandoned cursor does not fill the disk. A cursor with an
owner is moved and deleted only by requests that name that owner: 403 OTHER_OWNER. 409 NOT_RETAINED if the topic retains
nothing, 429 TOO_MANY_CURSORS beyond 100 in a topic.

`log` is as for /topic/read. A promoted log has the cursors that it had at its node, and they hold its messages here. Those of a
replica can be listed, and not be changed: 409 READ_ONLY_LOG.
"""

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.retention.cursors import MOST, Cursor
from nsqd.core.retention.history import OffsetRange
from nsqd.core.topic import Topic
from nsqd.http.arguments import LOG, TOPIC
from nsqd.http.logs import ReplicaReader, find_topic
from nsqd.http.node import Node
from nsqd.http.offsets import (
    OffsetArgument,
    OffsetFinder,
    check_offset,
    place,
)
from shared.auth.verbs import Verb
from shared.http.api import json_response
from shared.http.argument import Argument, bounded, duration, legal_name
from shared.http.errors import HttpError
from shared.http.route import Route, on_topic
from shared.values import format_duration

MOST_OWNER = 200  # bytes
MOST_HOLD_BYTES = (1 << 63) - 1


class Cursors:
    """The three routes for the cursors of a topic."""

    def __init__(self, node: Node, replicas: ReplicaReader) -> None:
        self._node = node
        self._replicas = replicas
        self._offset_finder = OffsetFinder(node, replicas)

    def routes(self) -> list[Route]:
        return [
            Route("GET /topic/cursors", self.cursors, on_topic(Verb.STATS), (TOPIC, LOG), "List the cursors of a topic"),
            Route("POST /topic/cursor", self.move, on_topic(Verb.READ),
                  (*_CURSOR, place("to"), duration("hold", None), bounded("hold_bytes", MOST_HOLD_BYTES, None)),
                  "Create or change a cursor"),
            Route("POST /topic/cursor/delete", self.delete, on_topic(Verb.CONFIGURE), _CURSOR, "Delete a cursor"),
        ]  # fmt: skip

    async def cursors(self, request: Request, topic: str, log: str) -> Response:
        """Answer all cursors of a topic, by name."""
        replica = await self._replicas.open(log)

        def work() -> tuple[dict[str, Cursor], OffsetRange]:
            found = find_topic(self._node, topic, log, 0, replica)
            return dict(found.cursors), found.window

        cursors, window = await self._node.bridge.call(work)
        described = [describe_cursor(cursor_name, cursor, window) for cursor_name, cursor in sorted(cursors.items())]
        return json_response({"topic": topic, "log": window.log, "cursors": described})

    async def move(
        self,
        request: Request,
        topic: str,
        name: str,
        owner: str,
        log: str,
        to: OffsetArgument | None,
        hold: int | None,
        hold_bytes: int | None,
    ) -> Response:
        """Create a cursor, or change it, and answer its new state."""
        offset, named = None, 0
        if to is not None:
            offset, named = await self._offset_finder.offset(topic, log, to), to.offset or 0
        replica = await self._replicas.open(log)
        changes = {"offset": offset, "hold": hold, "hold_bytes": hold_bytes}

        def work() -> tuple[Cursor, OffsetRange]:
            found = find_topic(self._node, topic, log, named, replica, named)
            return self._moved(found.changeable(), found.window, name, owner, changes), found.window

        return json_response(describe_cursor(name, *await self._node.bridge.call(work)))

    def _moved(
        self, topic: Topic, window: OffsetRange, name: str, owner: str, changes: dict[str, int | None]
    ) -> Cursor:
        """Create or change the cursor, and return it. None: no change. Runs in the trio thread. Raises HttpError."""
        before = topic.cursors.get(name)
        if before is None and not self._node.broker.limits.policy.over(topic.config).retains:
            raise HttpError(409, "NOT_RETAINED")
        if before is None and len(topic.cursors) >= MOST:
            raise HttpError(429, "TOO_MANY_CURSORS")
        _check_owner(before, owner)
        given: dict[str, Any] = {field: value for field, value in changes.items() if value is not None}
        if "offset" in given:
            check_offset(given["offset"], window)
        cursor = replace(before or Cursor(window.first, owner), updated=self._node.broker.wall, **given)
        topic.set_cursor(name, cursor)
        return cursor

    async def delete(self, request: Request, topic: str, name: str, owner: str, log: str) -> Response:
        """Delete a cursor, and answer its last state."""
        replica = await self._replicas.open(log)

        def work() -> tuple[Cursor, OffsetRange]:
            found = find_topic(self._node, topic, log, 0, replica)
            changed, cursor = found.changeable(), found.cursors.get(name)
            if cursor is None:
                raise HttpError(404, "CURSOR_NOT_FOUND")
            _check_owner(cursor, owner)
            changed.set_cursor(name, None)
            return cursor, found.window

        return json_response(describe_cursor(name, *await self._node.bridge.call(work)))


def describe_cursor(name: str, cursor: Cursor, window: OffsetRange) -> dict[str, Any]:
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


def _read_owner(text: str) -> str:
    if len(text.encode()) > MOST_OWNER or not text.isprintable():
        raise ValueError("not the name of an owner")
    return text


_CURSOR = (
    TOPIC,
    legal_name("name"),
    Argument("owner", _read_owner, "", f"up to {MOST_OWNER} printable bytes"),
    LOG,
)


def _check_owner(cursor: Cursor | None, owner: str) -> None:
    if cursor is not None and cursor.owner and cursor.owner != owner:
        raise HttpError(403, "OTHER_OWNER")
