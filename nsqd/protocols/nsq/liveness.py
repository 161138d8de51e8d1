"""The timeouts of a client, and its heartbeats.

A connection is closed when its client sends no first command in time, when its TLS handshake takes too long, and later when
nothing comes for two heartbeat intervals. The last IDENTIFY's interval decides that, and the first one's decides when the
client gets heartbeats (as in the original).
"""

from nsqd.protocols.transport import NEVER


class Liveness:
    """The deadlines of one client. All times are in ns."""

    __slots__ = (
        "_heartbeat_interval", "_identify_timeout", "_opened", "handshake_due", "heartbeat_due", "interval",
        "last_activity",
    )  # fmt: skip

    def __init__(self, now: int, identify_timeout: int, interval: int) -> None:
        self._opened = now
        self._identify_timeout = identify_timeout
        self._heartbeat_interval = interval  # as the first IDENTIFY agreed
        self.heartbeat_due = now + interval
        self.interval = interval  # as the last IDENTIFY agreed; 0: no heartbeats
        self.handshake_due = NEVER  # when a TLS handshake in progress must be done; NEVER: none is in progress
        self.last_activity = -1  # time of the last complete command; negative: there was none

    def agree(self, interval: int, is_first: bool, now: int) -> None:
        """Use the heartbeat interval of an IDENTIFY that was answered; 0: no heartbeats."""
        self.interval = interval
        if is_first:
            self._heartbeat_interval = interval
            self.heartbeat_due = now + (interval or NEVER)

    @property
    def is_established(self) -> bool:
        """Return True once a command was completed, unless a handshake is in progress: then heartbeats keep the connection."""
        return self.last_activity >= 0 and self.handshake_due == NEVER

    def deadline(self) -> int:
        """Return the time at which the connection of a client that sends nothing is closed."""
        if self.last_activity < 0:
            return self._opened + self._identify_timeout
        if self.handshake_due != NEVER:
            return self.handshake_due
        return self.last_activity + 2 * self.interval if self.interval else NEVER

    def takes_heartbeat(self, now: int) -> bool:
        """Return True if a heartbeat is due; it then counts as sent."""
        if now < self.heartbeat_due:
            return False
        # Not from `now`, as the original's ticker: so a client that stays silent gets a second one before it is given up.
        following = self.heartbeat_due + self._heartbeat_interval
        self.heartbeat_due = following if following > now else now + self._heartbeat_interval
        return True
