"""Filters of a listing of messages, as messages.py describes them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nsqd.core.channel.listing import ListedMessage
from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.message.frame import HEADER_SIZE, STAMP, message_id
from penstock.protocol.nsq import MAX_ATTEMPTS
from shared.http.argument import bounded, short_text

MOST_NUMBER = (1 << 63) - 1
MOST_TEXT = 256  # characters of each text
MOST_SEARCHED = 64 * 1024  # bytes of a body that are searched


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages are asked for: those that meet all conditions that are set."""

    min_attempts: int = 0
    published_before: int = 0  # ns since the epoch; 0: at any time
    published_after: int = 0  # ns since the epoch
    reason: str = ""
    header: str = ""
    contains: str = ""

    def __bool__(self) -> bool:
        """Return whether any condition is set."""
        return self != _EVERYTHING

    def meets_listing(self, one: ListedMessage) -> bool:
        """Return whether a message meets the conditions that do not depend on its content."""
        return one.attempts >= self.min_attempts and self.reason.lower() in one.reason.lower()

    def meets_content(self, frame: bytes, attributes: Attributes | None) -> bool:
        """Return whether a message meets the other conditions. `attributes` None: its content is not to be shown."""
        if not self.needs_content:
            return True
        if not frame:
            return False
        published = int.from_bytes(frame[STAMP], "big")
        if self.published_before and published >= self.published_before:
            return False
        if self.published_after and published < self.published_after:
            return False
        if not self.header and not self.contains:
            return True
        if attributes is None:
            return False
        return self._has_header(attributes) and self._has_text(frame, attributes)

    @property
    def needs_content(self) -> bool:
        """Return whether any condition needs the frame of a message."""
        return bool(self.published_before or self.published_after or self.header or self.contains)

    def _has_header(self, attributes: Attributes) -> bool:
        if not self.header:
            return True
        name, has_value, value = self.header.partition("=")
        return any(
            key.lower() == name.lower() and (not has_value or found == value) for key, found in attributes.headers
        )

    def _has_text(self, frame: bytes, attributes: Attributes) -> bool:
        if not self.contains:
            return True
        wanted = self.contains.lower()
        body = frame[HEADER_SIZE : HEADER_SIZE + MOST_SEARCHED].decode("utf-8", "replace")
        lines = [
            message_id(frame).decode(),
            attributes.key,
            *(f"{name}: {value}" for name, value in attributes.headers),
        ]
        return wanted in body.lower() or any(wanted in line.lower() for line in lines)


_EVERYTHING = MessageFilter()
FILTER = (
    bounded("min_attempts", MAX_ATTEMPTS, 0),
    bounded("published_before", MOST_NUMBER, 0),
    bounded("published_after", MOST_NUMBER, 0),
    *(short_text(name, MOST_TEXT, "") for name in ("reason", "header", "contains")),
)


def matching(
    wanted: MessageFilter,
    listed: list[ListedMessage],
    frames: dict[int, bytes],
    attributes: dict[int, Attributes],
    is_held: Callable[[int], bool],
) -> list[ListedMessage]:
    """Return those of the messages that match. `is_held`: whether the content of a message is not to be shown."""
    return [
        one
        for one in listed
        if wanted.meets_content(
            frames.get(one.ordinal, b""), None if is_held(one.ordinal) else attributes.get(one.ordinal, NONE)
        )
    ]
