"""The use of this node by each identity of the auth file, and its limits. One account for each name.

Connections keep counters anyway; an account adds them up on demand, so identities without limits cost nothing. The time is
passed in. See docs/contributing/decisions/0098-who-is-over-its-rate-is-not-read.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from nsqd.core.limits import TooMany
from nsqd.core.receives import Receive
from nsqd.core.topic import Topic
from nsqd.core.work_queue.worker import CountedHolder
from nsqd.protocols.outbox import Outbox
from shared.values import MILLISECOND, SECOND

if TYPE_CHECKING:  # a node without an auth file does not load what reads one
    from shared.auth.limits import Limits

MOST_RATES = 8  # different limits of one name at once; the oldest is forgotten
NO_LIMIT = 1 << 62
LOOK_AGAIN = 20 * MILLISECOND  # ns between two checks for room in flight


class AccountClient(Protocol):
    """A connection, as its account sees it."""

    outbox: Outbox

    def published(self) -> tuple[int, int]:
        """Return the number of messages that the connection has published, and the bytes of their bodies.

        All messages of a batch count from its beginning on. Neither falls, unless a batch fails.
        """

    def in_flight(self) -> int:
        """Return the number of messages and jobs that the connection has in flight."""

    @property
    def is_executing(self) -> bool:
        """Return True while a command is half done: it is finished first."""

    def hold_back(self) -> None:
        """Get no more messages or jobs if the account has no room for them, until `Usage.room` says otherwise."""

    def pause_ended(self, now: int) -> None:
        """Continue at `now` (ns), when the connection is read again: a publish that `Usage.debt` has held back is retried."""

    def debt_began(self) -> None:
        """Ask `Usage.debt` again before the next publish."""

    def joined_account(self, account: Account) -> None:
        """Note that the connection is counted in this account from now on."""

    def limits_changed(self) -> None:
        """Apply the limits of the usage, which have changed."""


class Blocked(Protocol):
    """A consumer without room in flight."""

    def wake(self) -> None:
        """Ask for messages again: it is the consumer's turn."""


class Bucket:
    """A token bucket: `rate` units a second, and at most those of one second at once, or one command of any size."""

    __slots__ = ("_empty_at", "rate")

    def __init__(self, rate: int, now: int) -> None:
        """Begin full. `rate`: units a second; `now`: ns."""
        self.rate = rate
        self._empty_at = now - SECOND  # when the bucket has been empty, or will have paid its debt (ns)

    def charge(self, units: int, now: int) -> int:
        """Take units, even if there are too few. Return the time (ns) from which more may be taken."""
        self._empty_at = max(self._empty_at, now - SECOND) - -units * SECOND // self.rate
        return self._empty_at


class Rates:
    """The buckets of one entry's limits."""

    __slots__ = ("_bytes", "_messages")

    def __init__(self, limits: Limits, now: int) -> None:
        self._messages = Bucket(limits.messages, now) if limits.messages else None
        self._bytes = Bucket(limits.bytes, now) if limits.bytes else None

    def charge(self, messages: int, size: int, now: int) -> int:
        """Take messages with `size` bytes of bodies. Return the time (ns) from which more may be taken."""
        one = self._messages.charge(messages, now) if self._messages is not None else 0
        return max(one, self._bytes.charge(size, now) if self._bytes is not None else 0)


@dataclass(frozen=True, slots=True)
class AccountFigures:
    """The use by one name now, and since the start."""

    name: str
    connections: int
    in_flight: int
    output: int  # bytes
    messages: int  # published
    bytes: int  # of their bodies
    throttled: int  # times that a connection was not read
    throttled_ms: int
    refused: int  # connections, requests over HTTP, and topics
    topics: int  # existing ones that it created


class Account:
    """The use of the node by all clients of one name."""

    __slots__ = (
        "_bytes", "_messages", "_rates", "_unpaid", "blocked", "holder", "name", "receives", "refused", "throttled",
        "throttled_ns", "topics", "unaware", "usages",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.usages: dict[Usage, None] = {}  # of the open connections
        self._messages = self._bytes = 0  # published over HTTP, and by closed connections
        self._rates: dict[Limits, Rates] = {}
        self._unpaid = 0, 0  # messages and bytes that closed connections published, not charged yet
        self.unaware: dict[Usage, None] = {}  # connections that publish without asking until `debt_began`
        self.holder = CountedHolder()  # has the jobs that clients of Disque have fetched
        self.receives: dict[Receive, None] = {}  # over HTTP: those that wait, or have messages in flight
        self.blocked: dict[Blocked, None] = {}  # consumers for whom there was no room in flight, the first one first
        self.throttled = self.throttled_ns = self.refused = 0  # as in AccountFigures
        self.topics = 0  # as Maker has them

    # rates

    def charge(self, limits: Limits, messages: int, size: int, now: int) -> int:
        """Charge a publish, even if it is too much. Return the time (ns) from which these limits allow more."""
        rates = self._rates.get(limits)
        if rates is None:
            if len(self._rates) >= MOST_RATES:
                del self._rates[next(iter(self._rates))]
            rates = self._rates[limits] = Rates(limits, now)
        messages, size, self._unpaid = messages + self._unpaid[0], size + self._unpaid[1], (0, 0)
        for other in self._rates.values():
            if other is not rates:
                other.charge(messages, size, now)
        until = rates.charge(messages, size, now)
        if until > now and self.unaware:
            unaware, self.unaware = self.unaware, {}
            for usage in unaware:
                usage.client.debt_began()
        return until

    def admit(self, limits: Limits, messages: int, size: int, now: int) -> int:
        """Count a publish over HTTP and return 0, or count nothing and return the ns until there is room."""
        if limits.has_rates:
            left = self.charge(limits, 0, 0, now) - now
            if left > 0:
                return left
            self.charge(limits, messages, size, now)
        self._messages += messages
        self._bytes += size
        return 0

    # topics

    def make_topic(self, limits: Limits, name: str, topics: Mapping[str, Topic], make: Callable[[], object]) -> Topic:
        """Create a topic with `make` that is not among `topics`, and count it until it is deleted. Raises TooMany."""
        if 0 < limits.topics <= self.topics:
            self.refused += 1
            raise TooMany(f"topics of {self.name} exceed limit of {limits.topics}")
        try:
            make()
        finally:
            topic = topics.get(name)
            if topic is not None:
                topic.maker = self
                self.topics += 1
        return topics[name]

    # at once

    def in_flight(self) -> int:
        of_connections = sum(usage.client.in_flight() for usage in self.usages)
        return len(self.holder.jobs) + of_connections + sum(receive.in_flight for receive in self.receives)

    def output(self) -> int:
        return sum(usage.client.outbox.size + usage.client.outbox.unsent for usage in self.usages)

    def hold_back(self) -> None:
        """Give no more jobs to connections that wait for one, while there is no room in flight."""
        for usage in list(self.usages):
            usage.client.hold_back()

    def leave(self, usage: Usage) -> None:
        """Remove a connection that is gone. Its counts and its debt stay."""
        if usage in self.usages:
            messages, size = usage.uncharged()
            self._unpaid = self._unpaid[0] + messages, self._unpaid[1] + size
            del self.usages[usage]
            self.unaware.pop(usage, None)
            messages, size = usage.published()
            self._messages += messages
            self._bytes += size

    def figures(self) -> AccountFigures:
        own = [usage.published() for usage in self.usages]
        return AccountFigures(
            self.name,
            len(self.usages),
            self.in_flight(),
            self.output(),
            self._messages + sum(messages for messages, _ in own),
            self._bytes + sum(size for _, size in own),
            self.throttled,
            self.throttled_ns // 1_000_000,
            self.refused,
            self.topics,
        )


class Usage:
    """The part of one connection in an account, since its client is known by that name. Implements Meter."""

    __slots__ = ("_before", "_charged", "_until", "account", "client", "is_paused", "limits")

    def __init__(self, account: Account, limits: Limits, client: AccountClient) -> None:
        self.account, self.limits, self.client = account, limits, client
        self.is_paused = False  # the connection is not read, because its client has published too much
        self._before = self._charged = client.published()
        self._until = 0  # ns: until when not to read the connection, once its current command is complete

    def published(self) -> tuple[int, int]:
        """Return the number of messages published under this name, and the bytes of their bodies."""
        messages, size = self.client.published()
        return messages - self._before[0], size - self._before[1]

    def charge(self, now: int) -> int:
        self.charge_published(now)
        if not self._until or self.client.is_executing:
            return 0
        until, self._until = self._until, 0
        if until <= now:
            return 0
        self.account.throttled += 1
        self.account.throttled_ns += until - now
        self.is_paused = True
        return until

    def charge_published(self, now: int) -> None:
        """Charge what was published since the last time, at `now` (ns)."""
        messages, size = self.uncharged()
        if messages or size:
            self._charged = self.client.published()
            until = self.account.charge(self.limits, messages, size, now)
            if until > now:
                self._until = max(self._until, until)

    def uncharged(self) -> tuple[int, int]:
        """Return the number of messages published since the last charge, and the bytes of their bodies."""
        (messages, size), charged = self.client.published(), self._charged
        return max(0, messages - charged[0]), max(0, size - charged[1])

    def debt(self, now: int) -> bool:
        """Return whether the account is in debt at `now` (ns): then the client publishes nothing, and is not read for a while.

        A client that may publish now does not have to ask again before `debt_began`.
        """
        if not self.limits.has_rates:
            return False
        until = self.account.charge(self.limits, 0, 0, now)
        if until > now:
            self._until = max(self._until, until)
            return True
        self.account.unaware[self] = None
        return False

    @property
    def has_rates(self) -> bool:
        return self.limits.has_rates

    @property
    def is_held(self) -> bool:
        return self._until > 0

    def end_pause(self, now: int) -> None:
        if self.is_paused:
            self.is_paused = False
            self.client.pause_ended(now)

    def room(self) -> int:
        """Return the number of further messages or jobs in flight that there is room for; at most 0: none."""
        most = self.limits.in_flight
        return most - self.account.in_flight() if most else NO_LIMIT

    @property
    def has_output(self) -> bool:
        outbox, most = self.client.outbox, self.limits.output
        return most > 0 and (outbox.size > 0 or outbox.unsent > 0) and self.account.output() > most


class Accounts:
    """The accounts of a node, by name. There are as many as names in the auth file since the start, at most."""

    def __init__(self) -> None:
        self.by_name: dict[str, Account] = {}

    def account(self, name: str) -> Account:
        """Return the account of that name, and create it if needed."""
        account = self.by_name.get(name)
        if account is None:
            account = self.by_name[name] = Account(name)
        return account

    def join(self, name: str, limits: Limits, client: AccountClient, is_new: bool) -> Usage | None:
        """Return the usage of a connection whose client is known now; None if it is new and there are too many."""
        account = self.account(name)
        if is_new and 0 < limits.connections <= len(account.usages):
            account.refused += 1
            return None
        usage = Usage(account, limits, client)
        account.usages[usage] = None
        return usage

    def figures(self) -> list[AccountFigures]:
        """Return the statistics of all accounts, the most bytes first."""
        found = [account.figures() for account in self.by_name.values()]
        return sorted(found, key=lambda one: (-one.bytes, -one.messages, one.name))

    def __repr__(self) -> str:
        return f"<Accounts of {len(self.by_name)} names>"
