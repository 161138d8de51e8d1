"""GET /debug/story: tell the last events that touched a message, a line each, in words. Only with -debug-routes.

    GET /debug/story?id=0000000000000001

404 if nothing is known of the message: it was published before the node was started, or too many other messages were published
since.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.story import Story, story_of
from nsqd.http.arguments import read_message_id
from nsqd.http.node import Node
from shared.http.api import text_response
from shared.http.argument import Argument
from shared.http.errors import HttpError
from shared.http.route import ADMIN, Route


class StoryRoute:
    """The route for the story of a message."""

    def __init__(self, node: Node, story: Story) -> None:
        self._node = node
        self._story = story

    def routes(self) -> list[Route]:
        return [
            Route("GET /debug/story", self.story, ADMIN, (Argument("id", read_message_id, expected="16 digits"),),
                  "Return the last events that touched a message"),
        ]  # fmt: skip

    async def story(self, request: Request, id_: bytes) -> Response:
        """Answer the events of one message, a line each."""
        events = await self._node.bridge.observe(self._story.events)
        lines = await asyncio.to_thread(story_of, events, id_)
        if not lines:
            raise HttpError(404, "MESSAGE_NOT_FOUND")
        return text_response("\n".join(lines) + "\n")
