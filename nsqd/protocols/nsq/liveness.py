"""How long a client may be silent, and when it gets a heartbeat.

A client is given up when it sends no first command in time, when its TLS handshake takes too long, and later when nothing
comes for two heartbeat intervals. What it is given up by is the last IDENTIFY's interval, what it gets heartbeats by the first
one's (as in the original).
"""

from nsqd.protocols.transport import NEVER


class Liveness:
    """See above. All times in ns."""

    __slots__ = (
        "_heartbeat_interval",
        "_identify_timeout",
        "_opened",
        "handshake_due",
        "heartbeat_due",
        "interval",
        "last_activity",
    )

    def __init__(self, now: int, identify_timeout: int, interval: int) -> None:
        self._opened = now
        self._identify_timeout = identify_timeout
        self._heartbeat_interval = interval  # as the first IDENTIFY agreed
        self.heartbeat_due = now + interval
        self.interval = interval  # as the last IDENTIFY agreed; 0: no heartbeats
        self.handshake_due = NEVER  # when a TLS handshake under way must be done
        self.last_activity = -1  # of the last complete command; negative: there was none

    def agree(self, interval: int, is_first: bool, now: int) -> None:
        """IDENTIFY was answered; 0: no heartbeats."""
        self.interval = interval
        if is_first:
            self._heartbeat_interval = interval
            self.heartbeat_due = now + (interval or NEVER)

    @property
    def is_established(self) -> bool:
        """True once a command was completed, unless a handshake is under way: heartbeats keep the connection."""
        return self.last_activity >= 0 and self.handshake_due == NEVER

    def deadline(self) -> int:
        """When a client that sends nothing is given up."""
        if self.last_activity < 0:
            return self._opened + self._identify_timeout
        if self.handshake_due != NEVER:
            return self.handshake_due
        return self.last_activity + 2 * self.interval if self.interval else NEVER

    def takes_heartbeat(self, now: int) -> bool:
        """True if a heartbeat is due: it counts as sent."""
        if now < self.heartbeat_due:
            return False
        self.heartbeat_due = now + self._heartbeat_interval
        return True
