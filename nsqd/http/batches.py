"""/batch and /batches: messages that belong together, and what is published when all of them are finished (nsqd/core/batches).

    POST /pub?topic=jobs&batch=B           a member; the first one makes the batch (publish.py, with after=B, too)
    POST /batch/close?batch=B              the batch is done once no member is pending
    GET  /batch?batch=B[&counts=true][&wait=60s]     answers as soon as the batch is done, or else after `wait` (0)
    GET  /batches[?limit=100][&after=B]

A batch that does not exist is made by closing it, and is done at once. Closing one that is closed or done changes nothing. To
close a batch needs `publish` on all topics with members, or on any topic if there are none or it is done, and to see it
`stats`. The answer to /batch/close is empty, and leaves when that is as durable as the members. 400 INVALID_BATCH for a bad
name.

    {"batch": "B", "state": "closed", "created": S, "changed": S, "members": 3, "follow_ups": 1,
     "pending": 1, "finished": 2, "buried": 0}

`state` is open, closed or done. `changed` is when the last member was published, or when the batch was closed or done; times
are in s since the epoch. The last three are there if the batch is done, or with `counts`, which looks at every member. The list
is sorted by name and without these; its `after` is the last name of the page, "" on the last one. 404 BATCH_NOT_FOUND.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.batches.batches import MOST_NAME, Batches, BatchRefused, MemberState, check_name, outcome_of
from nsqd.core.batches.table import BatchState, NamedBatch, totals
from nsqd.core.limits import HeaderRefused
from nsqd.http.arguments import page_after
from nsqd.http.node import Node
from shared.auth.verbs import Verb
from shared.http.api import empty_response, json_response
from shared.http.argument import REQUIRED, Argument, any_text, bounded, duration, flag
from shared.http.errors import HttpError
from shared.http.route import KNOWN, STATS, Route
from shared.values import SECOND

MOST, LIMIT = 1000, 100  # batches in a page
MOST_WAIT = 60 * SECOND
LOOKED_AT = 1000  # members in a turn: less than a millisecond
STATUS = {"BATCH_NOT_FOUND": 404, "BATCH_DONE": 409, "BATCH_CYCLE": 409, "TOO_MANY_BATCHES": 503, "TOO_MANY_FOLLOW_UPS": 503,
          "BATCH_TOO_LARGE": 503}  # fmt: skip


def batch_name(name: str, default: Any = REQUIRED) -> Argument:
    """Declare the name of a batch."""

    def read(text: str) -> str:
        try:
            check_name(text)
        except BatchRefused as refused:
            raise ValueError(str(refused)) from None
        return text

    return Argument(name, read, default, f"1 to {MOST_NAME} printable ASCII characters", "INVALID_BATCH")


NAME = batch_name("batch")


def refused_header(refused: HeaderRefused) -> HttpError:
    """Return the answer to a publish that is refused for its headers, or to a request about a batch."""
    return HttpError(STATUS.get(str(refused), 400), str(refused))


class BatchRoutes:
    """The routes that close and show batches."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("POST /batch/close", self.close, KNOWN, (NAME,), "Let a batch be done when its members are"),
            Route("GET /batch", self.show, KNOWN,
                  (NAME, flag("counts", ("true", "1")), duration("wait", 0, 0, MOST_WAIT)), "Return a batch"),
            Route("GET /batches", self.list, STATS, (bounded("limit", MOST, LIMIT, 1), any_text("after", "")),
                  "List the batches of the node"),
        ]  # fmt: skip

    @property
    def _batches(self) -> Batches:
        return self._node.broker.context.batches

    async def close(self, request: Request, batch: str) -> Response:
        """Close a batch, and answer when that is durable."""

        def act() -> None:
            self._require(request, Verb.PUBLISH, batch)
            try:
                self._batches.close(batch, self._node.broker.wall // SECOND)
            except BatchRefused as refused:
                raise refused_header(refused) from None

        await self._node.until_started()
        await self._node.bridge.call(act)
        return empty_response()

    async def show(self, request: Request, batch: str, counts: bool, wait: int) -> Response:
        """Answer a batch as a JSON object: when it is done, and at the latest after `wait` ns."""
        observe, done = self._node.bridge.observe, asyncio.Event()

        def find() -> dict[str, Any]:
            self._require(request, Verb.STATS, batch)
            parts = self._batches.parts(batch)
            if not parts:
                raise HttpError(404, "BATCH_NOT_FOUND")
            return _describe(parts)

        def find_or_wait() -> dict[str, Any]:
            found = find()
            if wait and found["state"] != "done":
                self._batches.wait(batch, notify)
            return found

        def notify() -> None:
            self._node.bridge.post(done.set)

        found = await observe(find_or_wait)
        if wait and found["state"] != "done":
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), wait / SECOND)
            await observe(lambda: self._batches.end_wait(batch, notify))
            found = await observe(find)
        if counts and found["state"] != "done":
            found |= await self._count(batch, found["members"])
        return json_response(found)

    async def _count(self, name: str, members: int) -> dict[str, int]:
        """Return the number of members of a batch in each state."""
        walk, found = self._batches.members(name), Counter[MemberState]()
        moved = await self._node.bridge.observe(lambda: sum(part.moved for part in self._batches.parts(name)))
        while part := await self._node.bridge.observe(lambda: list(map(outcome_of, islice(walk, LOOKED_AT)))):
            found.update(part)
        ended = max(0, members - found[MemberState.PENDING])
        buried = min(ended, found[MemberState.BURIED] + moved)
        return {"pending": found[MemberState.PENDING], "finished": ended - buried, "buried": buried}

    async def list(self, request: Request, limit: int, after: str) -> Response:
        """Answer a page of the batches."""
        tables = self._batches.shards
        names = await self._node.bridge.observe(lambda: {name for table in tables for name in table.known})
        page, last = page_after(names, after, limit)

        def find() -> list[dict[str, Any]]:
            return [_describe(parts) for name in page if (parts := self._batches.parts(name))]

        found = await self._node.bridge.observe(find)
        return json_response({"batches": found, "count": len(names), "after": last or ""})

    def _require(self, request: Request, verb: Verb, name: str) -> None:
        """Raise HttpError 403 if the sender of a request lacks the right to a topic with members of the batch.

        Of one without members, or that is done, the node knows no topics: a right to any topic is enough.
        """
        identity = getattr(request.state, "identity", None)
        if identity is not None and not identity.rights.may_each(verb, self._batches.topics_of(name)):
            raise HttpError(403, "FORBIDDEN")


def _describe(parts: list[NamedBatch]) -> dict[str, Any]:
    """Return a batch, of which these are the parts in several logs, as it is in answers."""
    state, (members, buried) = min(part.state for part in parts), totals(parts)
    found = {
        "batch": parts[0].name,
        "state": state.name.lower(),
        "created": min(part.created for part in parts),
        "changed": max(part.changed for part in parts),
        "members": members,
        "follow_ups": sum(len(part.follow_ups) for part in parts),
    }
    if state is BatchState.DONE:
        found |= {"pending": 0, "finished": members - buried, "buried": buried}
    return found
