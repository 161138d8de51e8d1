"""Look at messages of a channel or jobs of a tube: the page asked for, frames from memory or disk, and bodies in JSON.

    [&limit=100][&after=NEXT][&preview=256]     for a page: how many messages, after which one, and bytes of each body

Looking changes nothing. A body is `body` if it is text, else `body_base64`; a body that does not fit into the answer is left
out, and only its `body_size` is given. So is the body of a message that waits for its copies on other nodes, which has
`waiting_for_copies` instead: consumers do not get it yet either (docs/contributing/design/cluster-protocol.md#the-gate). The
answer is 413 TOO_MUCH_AT_ONCE if more than 64 MiB of messages had to be read from disk.
"""

import base64
from collections.abc import Callable
from typing import Any

from nsqd.core.channel.listing import Steps
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.frame import HEADER_SIZE
from nsqd.core.retention.history import Plan, read_messages
from nsqd.core.topic import Topic
from nsqd.http.node import Node
from nsqd.http.offsets import OffsetFinder
from shared.http.argument import any_text, bounded
from shared.http.errors import HttpError

LIMIT, MOST = 100, 1000  # messages in an answer
PREVIEW, MOST_PREVIEW = 256, 64 * 1024  # bytes of a body
MOST_READ = 64 * 1024 * 1024  # bytes of messages that are read from disk for one request
MOST_BODY = 4 * 1024 * 1024  # bytes of bodies in an answer; those that do not fit are left out
# which page a request asks for; `after`: where to continue, "": at the first message
PAGE = (bounded("limit", MOST, LIMIT), any_text("after", ""), bounded("preview", MOST_PREVIEW, PREVIEW))
# returns, in the trio thread, a topic and ordinals of some of its messages; None: there is no topic
Choose = Callable[[], Steps[tuple[Topic | None, list[int]]]]


class FrameLookup:
    """The frames of messages, taken from memory and from disk."""

    def __init__(self, node: Node, attributes: bool = True) -> None:
        """Look up nothing yet. `attributes`: they are wanted, too; then messages that have any are read from disk."""
        self._node = node
        self._with_attributes = attributes
        self.frames: dict[int, bytes] = {}  # by ordinal; b"" for a message that cannot be read
        self.attributes: dict[int, Attributes] = {}  # by ordinal, of the messages that have any
        self._copied_end = 0  # ordinal from which on messages may wait for their copies

    async def fetch(self, choose: Choose) -> None:
        """Take the frames of the messages that `choose` names, in the turn of its last step.

        Raises HttpError, and everything that `choose` raises.
        """

        async def plan() -> list[Plan]:
            plans: list[Plan] = []

            def steps() -> Steps[None]:
                plans[:] = self._plan(*(yield from choose()))

            await self._node.bridge.call_each(steps())
            return plans

        await OffsetFinder.from_disk(plan, self._read)

    def is_held(self, ordinal: int) -> bool:
        """Return True if the message may wait for its copies: its content is not to be shown."""
        return ordinal >= self._copied_end

    def _plan(self, topic: Topic | None, ordinals: list[int]) -> list[Plan]:
        """Take the frames that are in memory, and return plans to read the rest. Runs in the trio thread."""
        if topic is None:
            return []
        look = topic.journal.frame_in_memory
        self._copied_end = topic.journal.copied_end()
        self.frames = {ordinal: look(ordinal, self._with_attributes) for ordinal in ordinals}
        missing = [ordinal for ordinal, frame in self.frames.items() if not frame]
        history = topic.context.history
        return [] if topic.ephemeral or history is None else list(history.plans_of(topic.number, missing))

    def _read(self, plans: list[Plan]) -> None:
        """Read the messages that are only on disk. Runs in any thread.

        Raises MessagesGone, OSError, and HttpError 413 if that is too much at once.
        """
        room = MOST_READ
        for ordinal, frame, attributes in read_messages(plans, self.frames):
            self.frames[ordinal] = frame
            if attributes and self._with_attributes:
                self.attributes[ordinal] = attributes
            room -= len(frame)
            if room < 0:
                raise HttpError(413, "TOO_MUCH_AT_ONCE")


class Bodies:
    """The bodies of one answer, within a common limit."""

    def __init__(self, preview: int) -> None:
        self._preview = preview
        self._room = MOST_BODY

    def describe(self, frame: bytes, is_held: bool) -> dict[str, Any]:
        """Return a message's body for JSON, or its beginning, as far as there is room for it, and unless it `is_held`."""
        size = len(frame) - HEADER_SIZE
        if is_held:
            return {"body_size": size, "waiting_for_copies": True}
        part = frame[HEADER_SIZE : HEADER_SIZE + self._preview]
        if len(part) > self._room:
            return {"body_size": size}
        self._room -= len(part)
        return {"body_size": size, **_text_or_base64(part, len(part) < size)}


def _text_or_base64(part: bytes, cut: bool) -> dict[str, str]:
    """Return the text or base64 of a body, or of its beginning; `cut`: its last character may be incomplete."""
    try:
        return {"body": part.decode()}
    except UnicodeDecodeError as error:
        if cut and error.start >= len(part) - 3 and error.reason == "unexpected end of data":
            return {"body": part[: error.start].decode()}
        return {"body_base64": base64.b64encode(part).decode()}
