"""When nsq_to_file syncs, touches and tries again. Pure: `now` is monotonic seconds.

Invariant: a message that waits for a sync is touched before its server-side timeout, and never waits for other messages
longer than the interval.
"""

from dataclasses import dataclass

QUIET = 0.25  # s without a message after which an nsqd may have sent all that it is allowed to
FOLLOWS = 0.1  # s after the answers in which an nsqd that waited for them sends more
TOUCH = 5.0  # s; the server's timeout is unknown, and 60 s by default
SHORTEST_TOUCH = 0.2  # s
FIRST_RETRY, LAST_RETRY = 1.0, 30.0  # s; doubled after each failure in a row


class SyncWindow:
    """Finds out how many messages come before the nsqds wait for their answers.

    An nsqd sends no more than its share of max_in_flight, and which shares the nsqds have is not known here. So when
    fewer messages wait and none has come for QUIET seconds, a sync is tried: if messages follow at once, the nsqds were
    waiting, and that number is the limit until the topic is idle. If none follow, attempts grow rare, unless twice as
    many messages wait: an idle topic is synced by time, and its gzip file has few members.
    """

    def __init__(self, max_in_flight: int, interval: float, now: float) -> None:
        self.limit = max_in_flight  # a sync is due when this number of messages waits
        self._most = max_in_flight
        self._interval = interval
        self._next_at = now + interval  # when a sync by time is due
        self._arrived_at = now  # when a message came last
        self._synced_at = now  # when messages were synced last
        self._attempt_at = now  # when an attempt may be made, however few messages wait
        self._pause = QUIET  # s from an attempt to the next one
        self._tried = 0  # messages of the last attempt
        self._awaits_news = False  # an attempt was made, and no message has come since then

    def arrived(self, now: float, waiting: int) -> None:
        """Record that messages came, so that `waiting` wait now."""
        since = now - self._synced_at
        if self._awaits_news and since <= FOLLOWS:
            self.limit, self._pause, self._attempt_at = self._tried, QUIET, now
        elif since > QUIET:
            self.limit = self._most
        self._awaits_news = False
        self.limit = min(self._most, max(self.limit, waiting))
        self._arrived_at = now

    def is_due(self, now: float, waiting: int) -> bool:
        """Return whether the messages that wait are to be synced now."""
        if self.is_time(now) or waiting >= self.limit:
            return True
        may_try = now >= self._attempt_at or waiting >= 2 * self._tried
        return waiting > 0 and may_try and now - self._arrived_at >= QUIET

    def is_time(self, now: float) -> bool:
        """Return whether the interval has passed, with or without messages."""
        return now >= self._next_at

    def synced(self, now: float, count: int) -> None:
        """Record a sync of `count` messages."""
        if count:
            self._synced_at = now
            self._awaits_news = count < self.limit and now - self._arrived_at >= QUIET
            if self._awaits_news:
                self._tried = count
                self._pause = min(2 * self._pause, self._interval)
                self._attempt_at = now + self._pause
        if self.is_time(now):
            self._next_at = now + self._interval


class Touches:
    """When the messages that wait are touched.

    A message that is redelivered while it waits timed out, or its connection was lost. So the touches then come more often,
    and slowly return to the first interval.
    """

    def __init__(self, timeout: float, now: float) -> None:
        """Take the server-side timeout in seconds; 0: unknown."""
        self._longest = timeout / 3 if timeout > 0 else TOUCH
        self.interval = self._longest  # s
        self._at = now + self.interval  # when the next touch is due

    def too_late(self, now: float) -> None:
        """Record that a message was redelivered while it waited."""
        self.interval = max(min(SHORTEST_TOUCH, self._longest), self.interval / 3)
        self._at = min(self._at, now + self.interval)

    def is_due(self, now: float) -> bool:
        """Return whether the touch is due, and if so begin the next interval."""
        if now < self._at:
            return False
        self._at = now + self.interval
        self.interval = min(self._longest, 1.1 * self.interval)
        return True


@dataclass(slots=True)
class Retry:
    """The pauses between attempts while writing fails."""

    at: float = 0.0  # when the next attempt is due; 0: writing works
    delay: float = FIRST_RETRY

    @property
    def is_failing(self) -> bool:
        """Return whether the last attempt failed."""
        return self.at > 0

    def failed(self, now: float) -> float:
        """Record a failure and return the seconds until the next attempt."""
        delay = self.delay
        self.at = now + delay
        self.delay = min(2 * delay, LAST_RETRY)
        return delay

    def worked(self) -> bool:
        """Record a success and return whether it ended a failure."""
        was_failing = self.is_failing
        self.at, self.delay = 0.0, FIRST_RETRY
        return was_failing
