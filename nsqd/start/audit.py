"""The audit of a node: where its records go, and what is recorded that no client asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.registry import Change, ChangeKind
from nsqd.storage.directory import DirectoryError
from shared.audit.event import NODE, Event, Note, Outcome
from shared.log import log
from shared.version import PENSTOCK_VERSION

if TYPE_CHECKING:
    from nsqd.options import NsqdOptions
    from shared.audit.trail import Trail

_ACTIONS = {
    ChangeKind.TOPIC_CREATED: "topic/created",
    ChangeKind.TOPIC_DELETED: "topic/deleted",
    ChangeKind.CHANNEL_CREATED: "channel/created",
    ChangeKind.CHANNEL_DELETED: "channel/deleted",
}
WRITTEN_WITHIN = 2.0  # s for the last records before the log is closed


@contextlib.contextmanager
def open_trail(options: NsqdOptions) -> Iterator[Trail | None]:
    """Begin the audit, and record that the node starts; None: there is none. In the end, write what is left.

    Raises DirectoryError.
    """
    if not options.audit_file and not options.audit_topic:
        yield None
        return
    from shared.audit.trail import Trail

    try:
        trail = Trail(options.audit_file, options.node_number(), publishes=bool(options.audit_topic))
    except OSError as error:
        raise DirectoryError(f"failed to open --audit-file {options.audit_file} - {error.strerror or error}") from None
    trail.start()
    trail.note(Event(NODE, "process/start", PENSTOCK_VERSION))
    try:
        yield trail
    finally:
        trail.close()


def note_signal(trail: Trail | None, action: str, is_done: bool = True) -> None:
    """Record a signal to the node, or a change of its auth file."""
    if trail is not None:
        trail.note(Event(NODE, action, outcome=Outcome.DONE if is_done else Outcome.FAILED))


class NodeAudit:
    """The audit as the reactor's thread knows it: it publishes the records, and records what happens without a request."""

    def __init__(self, trail: Trail | None, broker: Broker, topic: str, wake: Callable[[], None]) -> None:
        """`trail` None: nothing is recorded. `topic`: to which records are published, "": to none.

        `wake` makes the turn that seals them.
        """
        self.trail, self._broker, self._topic, self._wake = trail, broker, topic, wake
        self.note: Note | None = trail.note if trail is not None else None
        self._has_complained = False

    def publish_from(self, run_soon: Callable[[Callable[[], None]], None]) -> None:
        """Publish records as they are written. `run_soon` has a function run in the reactor's thread, between turns."""
        if self.trail is not None and self._topic:
            self.trail.on_lines = lambda: run_soon(self.publish)
            run_soon(self.publish)  # the records that were written before

    def stop_publishing(self) -> None:
        """Leave the records that come to another NodeAudit: the log takes nothing more."""
        self._topic = ""

    def publish(self) -> None:
        """Publish the records that were written. That is no change, so it is not recorded."""
        lines = self.trail.take_lines() if self.trail is not None and self._topic else []
        if not lines:
            return
        why = self._publish(lines)
        if not why:
            self._wake()
        elif self.trail is not None:
            self.trail.not_published(len(lines))
            if not self._has_complained:
                log.error("AUDIT: cannot publish records to the topic %s: %s", self._topic, why)
        self._has_complained = bool(why)

    def _publish(self, lines: list[bytes]) -> str:
        """Publish lines. Returns why that is not possible, or ""."""
        try:
            self._broker.admit(self._topic).publish(lines, sum(map(len, lines)))
        except TooMany as error:
            return str(error)
        return ""

    def publish_rest(self) -> None:
        """Publish what was recorded so far, before the log is closed."""
        if self.trail is not None and self._topic:
            self.trail.flush(WRITTEN_WITHIN)
            self.publish()

    def record_changes(self, changes: Sequence[Change]) -> None:
        """Record topics and channels that came and went, except for ephemeral ones. Another record may say who made one."""
        if self.note is None:
            return
        for change in changes:
            action = _ACTIONS.get(change.kind)
            if action is not None and change.lasting:
                self.note(Event(NODE, action, f"{change.topic} {change.channel}".rstrip()))

    def record_peer_refused(self, ip: str) -> None:
        """Record that a connection at the cluster port was refused."""
        if self.note is not None:
            self.note(Event("cluster", "connect", outcome=Outcome.REFUSED, address=ip))
