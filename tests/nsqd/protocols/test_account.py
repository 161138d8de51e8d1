"""Accounts of identities: token buckets by passed-in time, and what is counted by name."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.protocols.account import MOST_RATES, NO_LIMIT, Account, Accounts, Bucket, Rates, Usage
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


def test_a_second_of_burst_and_then_the_rate_of_messages_and_bytes() -> None:
    bucket = Bucket(10, NOW)
    assert bucket.charge(10, NOW) == NOW
    assert bucket.charge(1, NOW) == NOW + SECOND // 10
    assert bucket.charge(5, NOW + SECOND // 10) == NOW + 6 * SECOND // 10
    assert bucket.charge(10, NOW + 100 * SECOND) == NOW + 100 * SECOND  # it never has more than one second's worth
    bucket = Bucket(10, NOW)
    assert bucket.charge(1000, NOW) == NOW + 99 * SECOND
    assert bucket.charge(0, NOW + 99 * SECOND) == NOW + 99 * SECOND
    for second in range(100, 110):  # who keeps to the rate never waits
        assert bucket.charge(10, NOW + second * SECOND) == NOW + second * SECOND
    assert Rates(Limits(messages=10, bytes=1000), NOW).charge(20, 1000, NOW) == NOW + SECOND
    assert Rates(Limits(messages=10, bytes=1000), NOW).charge(1, 3000, NOW) == NOW + 2 * SECOND
    assert Rates(Limits(bytes=1000), NOW).charge(10**6, 0, NOW) <= NOW


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


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, SECOND), st.integers(0, 4), st.integers(1, 50)), max_size=80),
)
def test_of_several_connections_each_may_exceed_it_by_one_command(rate: int, steps: list[tuple[int, int, int]]) -> None:
    bucket, now = Bucket(rate, NOW), NOW
    free_at, last, total = [NOW] * 5, [0] * 5, 0
    for pause, which, units in steps:
        now += pause
        if now < free_at[which]:
            continue  # this connection is not read
        free_at[which] = bucket.charge(units, now)
        last[which] = units
        total += units
        assert (total - sum(last)) * SECOND <= rate * SECOND + rate * (now - NOW)


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


def test_too_many_connections() -> None:
    accounts, limits = Accounts(), Limits(connections=2)
    first, _ = joined(accounts, limits)
    joined(accounts, limits)
    assert accounts.join("a", limits, Connection(), is_new=True) is None
    assert accounts.join("a", limits, Connection(), is_new=False) is not None  # it was open before there was a limit
    accounts.account("a").leave(first)
    assert accounts.join("a", limits, Connection(), is_new=True) is None
    assert accounts.account("a").figures().refused == 2


def test_counts_stay_when_a_connection_is_gone() -> None:
    accounts = Accounts()
    connection = Connection()
    connection.publish(100, 100)  # before it was known by this name
    usage = accounts.join("a", Limits(), connection, is_new=True)
    assert usage is not None
    connection.publish(3, 30)
    connection.held = 2
    connection.outbox.size, connection.outbox.unsent = 5, 6
    one = accounts.account("a").figures()
    assert (one.messages, one.bytes, one.connections, one.in_flight, one.output) == (3, 30, 1, 2, 11)
    for _ in range(2):
        accounts.account("a").leave(usage)
        one = accounts.account("a").figures()
        assert (one.messages, one.bytes, one.connections, one.in_flight, one.output) == (3, 30, 0, 0, 0)
    joined(accounts, Limits(), "b")[1].publish(1, 31)
    assert [one.name for one in accounts.figures()] == ["b", "a"]


def test_room_in_flight_and_output_count_all_connections() -> None:
    accounts = Accounts()
    usage, connection = joined(accounts, Limits(in_flight=10))
    _, other = joined(accounts, Limits())
    connection.held, other.held = 3, 4
    accounts.account("a").holder.hold(1, 5, NOW)
    accounts.account("a").holder.hold(1, 5, NOW + 1)  # the same job
    assert usage.room() == 2
    accounts.account("a").holder.lost(1, 5)
    accounts.account("a").holder.lost(1, 5)
    assert usage.room() == 3
    usage.limits = Limits()
    assert usage.room() == NO_LIMIT
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
