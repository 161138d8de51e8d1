"""Which commands are recorded in the node's audit, and what a record says: those of operators, and what clients are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from nsqd.protocols.disque.arguments import Refused
from nsqd.protocols.disque.rights import need_of
from shared.audit.event import MOST_TEXT, Outcome
from shared.auth.verbs import Verb

_RECORDED = (Verb.ACT, Verb.DELETE, Verb.ADMIN)
_SUBCOMMANDS = {
    b"config": (b"get", b"set", b"resetstat", b"rewrite"),
    b"client": (b"kill", b"list", b"pause", b"reply", b"setname", b"getname", b"id", b"setinfo"),
    b"cluster": (b"meet", b"forget", b"reset", b"leaving", b"nodes", b"info", b"myid", b"saveconfig", b"slots"),
    b"debug": (b"flushall", b"error"),
}
MOST_IDS = 3  # of jobs that a record names


class Recorder(Protocol):
    """A client, as far as its commands are recorded."""

    asks_others: bool  # other nodes were asked to do its command

    def record(self, arguments: Sequence[bytes], outcome: Outcome = Outcome.DONE) -> None:
        """Record a command, if there is an audit."""


C = TypeVar("C", bound=Recorder)


def audited(command: bytes, handler: Callable[[C, list[bytes]], None]) -> Callable[[C, list[bytes]], None]:
    """Return a handler that does the same, and records it if it needs a right of operators; for others the same handler."""
    if need_of(command, ()).verb not in _RECORDED:
        return handler

    def recorded(client: C, arguments: list[bytes]) -> None:
        try:
            handler(client, arguments)
        except Refused:
            if _is_recorded(command, arguments):
                client.record(arguments, Outcome.FAILED)
            raise
        if _is_recorded(command, arguments):
            client.record(arguments, Outcome.UNCERTAIN if client.asks_others else Outcome.DONE)

    return recorded


def note_answer(client: Recorder, arguments: Sequence[bytes], is_refused: bool) -> None:
    """Record the reply of other nodes to a command, as `audited` does if no other node is asked."""
    if is_refused:
        client.record(arguments, Outcome.REFUSED)
    elif _is_recorded(arguments[0].lower(), arguments):
        client.record(arguments)


def _is_recorded(command: bytes, arguments: Sequence[bytes]) -> bool:
    """Return whether a command is for operators, and not a PAUSE that only asks."""
    asks = command == b"pause" and [word.lower() for word in arguments[2:]] == [b"state"]
    return need_of(command, arguments).verb in _RECORDED and not asks


def describe(arguments: Sequence[bytes]) -> tuple[str, str]:
    """Return the action and the target of a command: only names of queues and settings, ids of jobs and addresses."""
    command = arguments[0].lower()
    action = command
    if len(arguments) > 1 and arguments[1].lower() in _SUBCOMMANDS.get(command, ()):  # other words make no kinds
        action += b" " + arguments[1]
    return _text(action).upper(), _target(command, arguments)


def _target(command: bytes, arguments: Sequence[bytes]) -> str:
    """Return the names in a command, whoever has sent it."""
    need = need_of(command, arguments)
    if need.queue:
        return _text(arguments[need.queue]) if len(arguments) > need.queue else ""
    if need.jobs:
        return " ".join(map(_text, arguments[need.jobs : need.jobs + MOST_IDS]))
    if command == b"config":
        return _text(arguments[2]) if len(arguments) > 2 else ""
    return " ".join(map(_text, arguments[2:4])) if command in (b"client", b"cluster") else ""


def _text(word: bytes) -> str:
    return word[:MOST_TEXT].decode("utf-8", "backslashreplace")
