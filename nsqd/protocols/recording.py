"""Record what clients do as operators, and what they are refused, in the node's audit, if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.audit.event import UNKNOWN, Event, Note, Outcome

if TYPE_CHECKING:
    from shared.auth.auth_file import Identity


def name_of(identity: Identity | None) -> tuple[str, str]:
    """Return the name of an identity, and by what it was proved; None: nobody is known."""
    return (identity.name, identity.kind) if identity is not None else ("", "")


def record(
    note: Note | None,
    port: str,
    address: str,
    who: tuple[str, str],
    action: str,
    target: str = "",
    outcome: Outcome = Outcome.DONE,
    count: int = UNKNOWN,
) -> None:
    """Record an action. `note`: the audit; None: there is none. `who`: the client, as `name_of` says."""
    if note is not None:
        note(Event(port, action, target, outcome, *who, address=address, count=count))
