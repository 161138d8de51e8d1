"""Which identities of the auth file use a node the most, as the node reports it. Pure; nodes may lie."""

from __future__ import annotations

from dataclasses import dataclass

from shared.json_fields import JsonObject, number, objects, text

MOST = 10  # identities


@dataclass(frozen=True, slots=True)
class Talker:
    """One identity, and what it uses of the node."""

    name: str
    connections: int
    in_flight: int
    messages: int  # published since the start
    bytes: int  # of their bodies
    throttled: int  # how often a connection was not read
    throttled_ms: int
    refused: int


def top_talkers(answer: JsonObject) -> list[Talker]:
    """Return those that have published the most bytes, the first one first, from the answer of /identities."""
    found = [
        Talker(
            text(one.get("name")),
            *(number(one.get(name)) for name in ("connections", "in_flight", "messages", "bytes")),
            *(number(one.get(name)) for name in ("throttled", "throttled_ms", "refused")),
        )
        for one in objects(answer.get("identities"))[: 10 * MOST]
    ]
    return sorted(found, key=lambda one: (-one.bytes, one.name))[:MOST]
