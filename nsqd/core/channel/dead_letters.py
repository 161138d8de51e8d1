"""The headers of a message that a channel sends to a dead-letter topic: why, when and where from.

    dead-letter-topic: orders          the topics that it comes from, with commas, the last one last
    dead-letter-reason: timed out      as of a burial
    dead-letter-channel: billing
    dead-letter-at: 2026-11-30T08:00:00.000+00:00
    dead-letter-attempts: 5            deliveries in that channel
    dead-letter-id: 0f...              the id that it had there
    dead-letter-node: 3                the number of the node that moved it

The message keeps its own headers, except for `ttl`: it would expire there again. If together they would be more than a message
may have, the last of these are left out. One without room even for the first is not moved, because that one ends a loop of
topics: a message never leaves a topic twice.
"""

from datetime import UTC, datetime

from nsqd.core.channel.buried import DeadLetter
from nsqd.core.channel.channel import Channel
from penstock.protocol.headers import DEAD_LETTER, DEAD_LETTER_TOPIC, TTL, Headers, TooManyHeaders, check_headers
from shared.values import SECOND


def forwarded_headers(
    headers: Headers, channel: Channel, message_id: bytes, letter: DeadLetter, node: int
) -> Headers | None:
    """Return the headers with which a message goes to the dead-letter topic of its channel; None: it stays there, buried."""
    sources = dead_letter_sources(headers)
    if channel.topic_name in sources:
        return None
    own = tuple((name, value) for name, value in without_dead_letter(headers) if name != TTL)
    added = {
        "topic": ",".join([*sources, channel.topic_name]),
        "reason": letter.reason,
        "channel": channel.name,
        "at": datetime.fromtimestamp(letter.buried / SECOND, UTC).isoformat(timespec="milliseconds"),
        "attempts": str(letter.attempts),
        "id": message_id.decode(),
        "node": str(node),
    }
    while added:
        found = own + tuple((DEAD_LETTER + name, value) for name, value in added.items())
        try:
            check_headers(found)
        except TooManyHeaders:
            added.popitem()
            continue
        return found
    return None


def dead_letter_sources(headers: Headers) -> list[str]:
    """Return the topics from which a message came as a dead letter, the last one last."""
    value = dict(headers).get(DEAD_LETTER_TOPIC, "")
    return value.split(",") if value else []


def without_dead_letter(headers: Headers) -> Headers:
    """Return the headers that a message has of its own."""
    return tuple((name, value) for name, value in headers if not name.startswith(DEAD_LETTER))
