"""Consumers of a channel without messages: what an idle connection costs."""

from __future__ import annotations

from dataclasses import dataclass

from bench.crowd import Crowd, Member, Message
from bench.outcome import Outcome


@dataclass
class Idle:
    """A load of idle consumers (see bench.load). The fields are the plan; everything else is state."""

    host: str
    ports: dict[str, int]
    topic: str
    channel: str
    connections: int
    seconds: float

    def prepare(self) -> None:
        self._crowd = Crowd(self.host, self.ports["TCP"], _refuse)
        self._crowd.subscribe((self.topic, self.channel, 1, {}) for _ in range(self.connections))

    def run(self) -> Outcome:
        self._crowd.serve(self.seconds)
        return Outcome(0, self.seconds)


def _refuse(member: Member, messages: list[Message], now: int) -> bytes:
    raise SystemExit("idle: a message came")
