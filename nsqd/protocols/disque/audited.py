"""Record operators' commands, and refused ones, in the node's audit, if there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from nsqd.protocols.disque.arguments import Refused
from nsqd.protocols.disque.rights import need_of
from nsqd.protocols.job_client import JobContext
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


class AuditedClient(Protocol):
    """A client whose commands are recorded."""

    @property
    def context(self) -> JobContext: ...
    @property
    def asks_others(self) -> bool: ...
    def record(self, action: str, target: str, outcome: Outcome) -> None: ...


C = TypeVar("C", bound=AuditedClient)
Handler = Callable[[C, list[bytes]], None]


def audited(command: bytes, handler: Handler[C]) -> Handler[C]:
    """Return a handler that does the same, and records it if it needs a right of operators; for others the same handler."""
    if need_of(command, ()).verb not in _RECORDED:
        return handler

    def recorded(client: C, arguments: list[bytes]) -> None:
        if client.context.audit is None or not _is_recorded(command, arguments):
            handler(client, arguments)
            return
        try:
            handler(client, arguments)
        except Refused:
            note(client, arguments, Outcome.FAILED)
            raise
        note(client, arguments, Outcome.UNCERTAIN if client.asks_others else Outcome.DONE)

    return recorded


def note_answer(client: AuditedClient, arguments: Sequence[bytes], is_refused: bool) -> None:
    """Record the reply of other nodes to a command, as `audited` does for commands of this node."""
    if is_refused:
        note(client, arguments, Outcome.REFUSED)
    elif _is_recorded(arguments[0].lower(), arguments):
        note(client, arguments)


def _is_recorded(command: bytes, arguments: Sequence[bytes]) -> bool:
    """Return whether a command is for operators, and not a PAUSE that only asks."""
    asks = command == b"pause" and [word.lower() for word in arguments[2:]] == [b"state"]
    return need_of(command, arguments).verb in _RECORDED and not asks


def note(client: AuditedClient, arguments: Sequence[bytes], outcome: Outcome = Outcome.DONE) -> None:
    """Record a command. Of its arguments the record has names of queues and settings, ids of jobs and addresses only."""
    command = arguments[0].lower()
    action = command
    # another text of a client would be a kind of its own
    if len(arguments) > 1 and arguments[1].lower() in _SUBCOMMANDS.get(command, ()):
        action += b" " + arguments[1]
    client.record(_text(action).upper(), _target(command, arguments), outcome)


def _target(command: bytes, arguments: Sequence[bytes]) -> str:
    """Return the names in a command."""
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
