"""Handle buried messages (dead letters) over HTTP: list, finish and kick them. POST changes, GET only looks.

    GET  /channel/buried?topic=t&channel=c[&limit=100][&after=ID][&body=true]
    POST /channel/buried/finish?topic=t&channel=c&id=ID[,ID...]     or  &count=N, the first buried first
    POST /channel/buried/kick?topic=t&channel=c&id=ID[,ID...]       or  &count=N

Each has its attempts, its failures, and the reason of its burial (docs/how-to/dead-letters.md).
To finish more than one message needs the right to delete. A kicked message is ready again, as if it had never been delivered.
The answers of the POSTs leave after the turn's commit. In a cluster, a message that waits for its copies is listed without
its body.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.broker import Broker
from nsqd.core.channel import actions
from nsqd.core.channel.buried import DeadLetter
from nsqd.core.channel.channel import Channel
from nsqd.core.message.frame import HEADER_SIZE, STAMP
from nsqd.http.arguments import TOPIC_AND_CHANNEL, read_message_id
from nsqd.http.node import Node
from nsqd.http.parts import parts_of_channel
from shared.auth.verbs import Verb
from shared.http.api import json_response
from shared.http.argument import Argument, bounded, flag, listed
from shared.http.errors import HttpError
from shared.http.route import Need, Route, on_channel

LIMIT = 100  # messages in an answer unless the request gives another number
MOST = 1000  # messages in an answer, or in one request that acts
READS, READ_PAUSE = 200, 0.01  # tries to get messages that are being read from disk, and s between them
MOST_BODY = 4 * 1024 * 1024  # bytes of bodies in an answer; a message that does not fit comes without its body
CHOICE = (  # of dead letters: `id`, or `count`
    *TOPIC_AND_CHANNEL,
    listed("id", read_message_id, MOST, "ids", "INVALID_ID"),
    bounded("count", MOST, 0, 1, "INVALID_COUNT"),
)
LetterRow = tuple[bytes, DeadLetter, bytes, bool]  # id, dead letter, frame, and whether the message has its copies


class DeadLetters:
    """The three routes for buried messages."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /channel/buried", self.buried, on_channel(Verb.READ),
                  (*TOPIC_AND_CHANNEL, bounded("limit", MOST, LIMIT, 1, "INVALID_LIMIT"), Argument("after", str.encode, None),
                   flag("body", ("true", "1"))),
                  "List dead letters"),
            Route("POST /channel/buried/finish", self._action_handler("finished", actions.finish_buried),
                  Need(Verb.ACT, "topic", "channel", finishing="id"), CHOICE,
                  "Finish the dead letters with an `id`, or the first `count`"),
            Route("POST /channel/buried/kick", self._action_handler("kicked", actions.kick), on_channel(Verb.ACT), CHOICE,
                  "Make the dead letters with an `id`, or the first `count`, ready again"),
        ]  # fmt: skip

    async def buried(
        self, request: Request, topic: str, channel: str, limit: int, after: bytes | None, body: bool
    ) -> Response:
        """Answer a page of the buried messages, the first buried first."""
        for _ in range(READS):
            total, found = await self._node.bridge.call(
                lambda: _find_page(self._node.broker, topic, channel, after, limit)
            )
            if all(frame for _, _, frame, _ in found):
                break
            await asyncio.sleep(READ_PAUSE)  # some messages are still being read from disk
        return json_response({"buried_count": total, "messages": _describe(found, body)})

    def _action_handler(
        self, done: str, act: Callable[[Channel, list[bytes]], int]
    ) -> Callable[..., Awaitable[Response]]:
        async def handler(request: Request, topic: str, channel: str, id_: list[bytes], count: int) -> Response:
            if not id_ and not count:
                raise HttpError(400, "MISSING_ARG_ID")

            def work() -> int:
                done = 0
                for _, found in parts_of_channel(self._node.broker, topic, channel):
                    done += act(found, id_ or found.buried.oldest(count - done))
                return done

            return json_response({done: await self._node.bridge.call(work)})

        return handler


def _find_page(
    broker: Broker, topic: str, channel: str, after: bytes | None, limit: int
) -> tuple[int, list[LetterRow]]:
    """Return the number of buried messages, and up to `limit` of them. Runs in the trio thread."""
    parts = parts_of_channel(broker, topic, channel)
    begun = next((index for index, (_, found) in enumerate(parts) if after in found.buried), 0)
    rows: list[LetterRow] = []
    for source, found in parts[begun:]:
        rows += [
            (message_id, letter, source.frame(letter.ordinal), letter.ordinal < source.journal.copied_end())
            for message_id, letter in found.buried.after(after, limit - len(rows))
        ]
    return sum(len(found.buried) for _, found in parts), rows


def _describe(found: list[LetterRow], bodies: bool) -> list[dict[str, Any]]:
    room, entries = MOST_BODY if bodies else 0, []
    for message_id, letter, frame, is_copied in found:
        body = frame[HEADER_SIZE:]
        entry = {
            "id": message_id.decode(),
            "timestamp": int.from_bytes(frame[STAMP], "big"),
            "attempts": letter.attempts,
            "failures": letter.failures,
            "reason": letter.reason,
            "buried_at": letter.buried,
            "body_size": len(body),
        }
        if bodies and is_copied and len(body) <= room:
            room -= len(body)
            entry["body"] = base64.b64encode(body).decode()
        entries.append(entry)
    return entries
