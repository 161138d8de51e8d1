"""Lists of the messages of a channel over several nodes: merged, page by page, or searched within limits. It changes nothing.

Each node lists its messages in its own order. A page is merged from the nodes' pages, by the time that matters in the state.
The token for the next page has each node's own token, and the number of messages after it that were already shown, because a
node has tokens only between its pages.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import heapq
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from admin.nodes.merge import fields
from admin.nodes.queries import Queries
from admin.nodes.upstreams import Refused, UpstreamError
from shared.http.errors import HttpError
from shared.json_fields import JsonObject, number, objects, text

MOST_SHOWN = 20  # messages on a page
SCANNED_AT_ONCE = 200  # messages that all nodes together scan for one step of a search
MOST_SCANNED = 5000  # messages scanned for one page of search results
MOST_FOUND = MOST_SHOWN + SCANNED_AT_ONCE  # messages on a page of search results, with all of the last step
LONGEST_SCAN = 2.0  # s
PATIENCE, IMPATIENCE = 2.0, 0.3  # s for one answer: of a node, and of one that did not answer lately
MOST_PASSED = 60  # messages of a node's page that are skipped; beyond that the node is asked for a new token
MOST_TOKEN, MOST_NODES, LONGEST_POSITION = 12_000, 50, 100  # characters, nodes, characters
STATES = ("ready", "in_flight", "deferred", "buried")
_KEYS = {"deferred": "ready_at", "buried": "buried_at"}  # the field by which pages are merged, if not "timestamp"


@dataclass(frozen=True, slots=True)
class ListPosition:
    """The position at which the list of one node continues."""

    after: str = ""  # the node's token; "": at its first message
    passed: int = 0  # messages after the token that were shown already
    ended: bool = False  # True: the node has no more messages


ListPositions = dict[str, ListPosition]  # by address


@dataclass(slots=True)
class MessageList:
    """A page of messages of several nodes."""

    messages: list[JsonObject] = field(default_factory=list)  # each with the "node" that has it
    counts: Counter[str] = field(default_factory=Counter)  # messages of all nodes, by state
    errors: list[str] = field(default_factory=list)
    silent: int = 0  # nodes that gave no answer: they are in no count
    scanned: int = 0  # messages that a search has scanned
    following: str = ""  # the token of the next page; "": there is none


@dataclass(slots=True)
class MessageLists:
    """Makes lists of messages of one cluster."""

    queries: Queries

    async def page(self, nodes: Sequence[str], asked: Mapping[str, str], token: str) -> MessageList:
        """Return the page after a token. `asked`: the arguments for each node, without its page. Raises HttpError."""
        positions = read_token(token, nodes)
        open_lists = {node: position for node, position in positions.items() if not position.ended}
        answers, found = await self._ask(open_lists, dict(asked), MOST_SHOWN)
        positions |= open_lists
        pages = {
            node: objects(answer.get("messages"))[positions[node].passed :][:MOST_SHOWN]
            for node, answer in answers.items()
        }
        shown = merged(pages, asked["state"], MOST_SHOWN)
        taken = Counter(node for node, _ in shown)
        found.messages = [one | {"node": node} for node, one in shown]
        for node, answer in answers.items():
            if taken[node] < len(pages[node]):
                positions[node] = replace(positions[node], passed=positions[node].passed + taken[node])
            else:
                positions[node] = _following(answer)
        found.following = token_of(positions)
        return found

    async def search(
        self, nodes: Sequence[str], asked: Mapping[str, str], token: str, most: int = MOST_SHOWN
    ) -> MessageList:
        """Return messages after a token that match the filters in `asked`, found within the limits of one page."""
        until, positions, found = time.monotonic() + LONGEST_SCAN, read_token(token, nodes), MessageList()
        limit, failed = max(1, SCANNED_AT_ONCE // max(1, len(nodes))), set[str]()
        matches: list[tuple[str, JsonObject]] = []
        while True:
            wanted = {node: one for node, one in positions.items() if not one.ended and node not in failed}
            if not wanted or len(matches) >= most or found.scanned >= MOST_SCANNED or time.monotonic() > until:
                break
            answers, step = await self._ask(wanted, dict(asked), limit)
            found.errors += step.errors
            found.silent += step.silent
            found.counts = step.counts if not found.scanned else found.counts
            failed |= wanted.keys() - answers.keys()
            for node, answer in answers.items():
                found.scanned += min(limit, number(answer.get("scanned")))
                matches += [(node, one) for one in objects(answer.get("messages"))[:limit]]
                positions[node] = _following(answer)
        key = _KEYS.get(asked["state"], "timestamp")
        matches.sort(key=lambda one: (number(one[1].get(key)), one[0]))
        found.messages = [one | {"node": node} for node, one in matches[:MOST_FOUND]]
        found.following = token_of(positions)
        return found

    async def _ask(
        self, positions: ListPositions, asked: dict[str, str], limit: int
    ) -> tuple[dict[str, JsonObject], MessageList]:
        """Return the answers of the nodes that have the channel, and a list with their counts and the errors of the others.

        Raises HttpError 404 if no node has the channel.
        """
        stale = self.queries.fallback.stale()

        async def ask(node: str) -> JsonObject | UpstreamError:
            try:
                async with asyncio.timeout(IMPATIENCE if node in stale else PATIENCE):
                    return await self._page_at(node, positions, asked, limit)
            except TimeoutError:
                return UpstreamError(f"{node} did not answer in time. Its messages are not listed.")
            except UpstreamError as failure:
                return failure

        answers, found, absent = dict[str, JsonObject](), MessageList(), 0
        for node, answer in zip(positions, await asyncio.gather(*map(ask, positions)), strict=True):
            if isinstance(answer, Refused) and answer.status == 404:
                absent += 1
            elif isinstance(answer, UpstreamError):
                found.errors.append(str(answer))
                found.silent += 1
            else:
                answers[node] = answer
                counts = fields(answer.get("counts"))
                found.counts.update({state: number(counts.get(state)) for state in STATES})
        if positions and absent == len(positions):
            raise HttpError(404, "No node that answers has this channel.")
        return answers, found

    async def _page_at(self, node: str, positions: ListPositions, asked: dict[str, str], limit: int) -> JsonObject:
        """Return the page of a node at its position. The position changes if too many messages would be skipped."""
        position, get = positions[node], self.queries.direct.get_object
        if position.passed > MOST_PASSED:
            arguments = asked | {"limit": str(position.passed), "preview": "0"} | _after(position)
            position = positions[node] = _following(await get(node, "/channel/messages", arguments))
        arguments = asked | {"limit": str(limit + position.passed)} | _after(position)
        return await get(node, "/channel/messages", arguments)


def merged(pages: Mapping[str, list[JsonObject]], state: str, most: int) -> list[tuple[str, JsonObject]]:
    """Return up to `most` messages with their nodes. Each node keeps its order; the earliest of their next ones comes first."""
    key = _KEYS.get(state, "timestamp")
    heads = [(number(page[0].get(key)), node, 0) for node, page in pages.items() if page]
    heapq.heapify(heads)
    found: list[tuple[str, JsonObject]] = []
    while heads and len(found) < most:
        _, node, index = heapq.heappop(heads)
        page = pages[node]
        found.append((node, page[index]))
        if index + 1 < len(page):
            heapq.heappush(heads, (number(page[index + 1].get(key)), node, index + 1))
    return found


# tokens


def token_of(positions: ListPositions) -> str:
    """Return the token for the next page; "": all nodes have ended."""
    if all(position.ended for position in positions.values()):
        return ""
    rows = [[node, "" if one.ended else one.after, -1 if one.ended else one.passed] for node, one in positions.items()]
    packed = json.dumps(rows, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def read_token(token: str, nodes: Sequence[str]) -> ListPositions:
    """Return the position of each node. A node that the token does not name begins. Raises HttpError 400."""
    positions = {node: ListPosition() for node in nodes}
    if not token:
        return positions
    try:
        if len(token) > MOST_TOKEN:
            raise ValueError
        rows = json.loads(base64.b64decode(token.encode("ascii") + b"==", b"-_", validate=False))
        if not isinstance(rows, list) or len(rows) > MOST_NODES:
            raise ValueError
        for node, after, passed in rows:
            if not (isinstance(node, str) and isinstance(after, str) and type(passed) is int):
                raise ValueError
            if len(after) > LONGEST_POSITION or not -1 <= passed <= MOST_PASSED + MOST_SHOWN:
                raise ValueError
            if node in positions:  # a node that is gone ends silently, and no other server is asked
                positions[node] = ListPosition(ended=True) if passed < 0 else ListPosition(after, passed)
    except (ValueError, TypeError, RecursionError, binascii.Error):
        raise HttpError(400, "Invalid page: the address of this page is damaged. Begin at the first page.") from None
    return positions


def _following(answer: JsonObject) -> ListPosition:
    """Return the position after the page in a node's answer."""
    following = text(answer.get("next"))[:LONGEST_POSITION]
    return ListPosition(following) if following else ListPosition(ended=True)


def _after(position: ListPosition) -> dict[str, str]:
    return {"after": position.after} if position.after else {}
