"""Accounts of identities: token buckets by passed-in time, and what is counted by name."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.protocols.account import MOST_RATES, Account, Accounts, Bucket, Usage
from nsqd.protocols.outbox import Outbox
from shared.auth.limits import Limits
from tests.nsqd.core.node import SECOND

NOW = 1000 * SECOND


class Connection:
    """A connection that says what the test says. Implements AccountClient, and the transport of its outbox."""

    is_scarce = False

    def __init__(self) -> None:
        self.outbox = Outbox(self)  # type: ignore[arg-type]
        self.messages = self.bytes = self.held = 0
        self.is_executing = False
        self.resumed: list[int] = []

    def published(self) -> tuple[int, int]:
        return self.messages, self.bytes

    def in_flight(self) -> int:
        return self.held

    def hold_back(self) -> None: ...

    def joined_account(self, account: Account) -> None: ...

    def limits_changed(self) -> None: ...

    def pause_ended(self, now: int) -> None:
        self.resumed.append(now)

    def publish(self, messages: int, size: int = 0) -> None:
        self.messages += messages
        self.bytes += size


def joined(accounts: Accounts, limits: Limits, name: str = "a") -> tuple[Usage, Connection]:
    connection = Connection()
    usage = accounts.join(name, limits, connection, is_new=True)
    assert usage is not None
    return usage, connection


# buckets


STEPS = st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(1, 5000)), min_size=1, max_size=60)


@given(st.integers(1, 10**6), STEPS)
def test_never_more_than_the_burst_the_rate_and_one_command(rate: int, steps: list[tuple[int, int]]) -> None:
    """Of a client that sends whenever it may, in every stretch of time."""
    bucket, now, free_at = Bucket(rate, NOW), NOW, NOW
    taken: list[tuple[int, int]] = []
    for pause, units in steps:
        now = max(now + pause, free_at)
        free_at = bucket.charge(units, now)
        taken.append((now, units))
    for first in range(len(taken)):
        total = 0
        for at, units in taken[first:]:
            assert total * SECOND <= rate * SECOND + rate * (at - taken[first][0]), "the last command may exceed it"
            total += units


# accounts


def test_a_connection_that_publishes_waits_until_its_account_is_out_of_debt() -> None:
    accounts, limits = Accounts(), Limits(messages=10)
    usage, connection = joined(accounts, limits)
    connection.publish(10)
    assert usage.charge(NOW) == 0
    assert usage.charge(NOW) == 0
    connection.publish(5)
    assert usage.charge(NOW) == NOW + SECOND // 2
    assert usage.is_paused
    usage.end_pause(NOW + SECOND // 2)
    assert connection.resumed == [NOW + SECOND // 2]
    use = accounts.account("a").figures()
    assert (use.throttled, use.throttled_ms) == (1, 500)
    accounts, limits = Accounts(), Limits(bytes=100)
    (first, one), (second, two), (consumer, _) = (joined(accounts, limits) for _ in range(3))
    one.publish(1, 100)
    assert first.charge(NOW) == 0
    two.publish(1, 100)
    two.is_executing = True
    assert second.charge(NOW) == 0, "a command that is half done is finished first"
    two.is_executing = False
    assert second.charge(NOW) == NOW + SECOND
    assert accounts.account("a").admit(limits, 1, 1, NOW) == SECOND  # over HTTP, too
    assert consumer.charge(NOW) == 0
    other, connection = joined(accounts, limits, "b")
    connection.publish(1, 100)
    assert other.charge(NOW) == 0


def test_entries_of_one_name_share_what_is_used_and_have_limits_of_their_own() -> None:
    account = Account("a")
    strict, lax = Limits(messages=10), Limits(messages=1000)
    assert account.charge(strict, 10, 0, NOW) <= NOW
    assert account.charge(lax, 100, 0, NOW) <= NOW
    assert account.charge(strict, 0, 0, NOW) == NOW + 10 * SECOND
    for rate in range(1, 3 * MOST_RATES):
        account.charge(Limits(messages=rate), 1, 0, NOW)
    assert len(account._rates) == MOST_RATES
    account = Account("b")
    assert account.admit(strict, 30, 300, NOW) == 0, "over HTTP it is taken whole or not at all"
    assert account.admit(strict, 1, 10, NOW) == 2 * SECOND
    assert account.admit(strict, 1, 10, NOW + 2 * SECOND) == 0
    use = account.figures()
    assert (use.messages, use.bytes, use.refused) == (31, 310, 0)  # who answers counts refusals
    assert account.admit(Limits(), 5, 5, NOW) == 0  # without limits it is counted


def test_output_counts_all_connections() -> None:
    accounts = Accounts()
    usage, connection = joined(accounts, Limits(output=100))
    other_usage, other = joined(accounts, Limits(output=100))
    connection.outbox.size, connection.outbox.unsent = 1, 50
    other.outbox.unsent = 49
    assert not usage.has_output
    connection.outbox.unsent = 51
    assert usage.has_output
    assert other_usage.has_output
    other.outbox.unsent, connection.outbox.unsent = 0, 1000
    assert not other_usage.has_output
    usage.limits = Limits()
    assert not usage.has_output
