"""The budget of buffers: bounded, fair to other addresses, and always given back in full."""

import threading

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nsqd.options import NsqdOptions
from shared.budget import FREE, Budget, Share

LIMIT = 100 * FREE


def test_an_address_gets_half_and_clients_of_a_unix_socket_have_none() -> None:
    budget = Budget(LIMIT)
    assert budget.reserve(LIMIT // 2, "10.0.0.1")
    assert not budget.reserve(1, "10.0.0.1")
    assert budget.reserve(LIMIT // 2, "10.0.0.2")
    assert budget.is_full
    assert not budget.reserve(1, "10.0.0.3")
    assert budget.figures().refused == 2
    budget.release(LIMIT // 2, "10.0.0.1")
    assert budget.reserve(1, "10.0.0.3")
    budget = Budget(LIMIT)
    assert budget.reserve(LIMIT // 2, "")
    assert budget.reserve(LIMIT // 2, "")


def test_what_is_larger_than_the_budget_is_granted_alone_and_what_is_there_is_counted() -> None:
    budget = Budget(LIMIT)
    assert budget.reserve(3 * LIMIT, "10.0.0.1")
    assert not budget.reserve(1, "10.0.0.2")
    budget.release(3 * LIMIT, "10.0.0.1")
    assert budget.figures() == type(budget.figures())(LIMIT, 0, 3 * LIMIT, 1)
    budget = Budget(LIMIT)
    budget.charge(2 * LIMIT, "10.0.0.1")
    assert budget.is_full
    assert not budget.reserve(1, "10.0.0.2")


def test_threads_lose_nothing() -> None:
    budget = Budget(LIMIT)

    def work(owner: str) -> None:
        share = Share(budget, owner)
        for round in range(2_000):
            share.hold((round % 7) * FREE)
        share.hold(0)

    threads = [threading.Thread(target=work, args=(f"10.0.0.{number % 2}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.figures().used == 0


class Shares(RuleBasedStateMachine):
    """Any sequence of holding, charging and letting go, by connections of three addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(LIMIT)
        self.shares = [Share(self.budget, owner) for owner in ("", "10.0.0.1", "10.0.0.1", "10.0.0.2")]

    @rule(which=st.integers(0, 3), size=st.integers(0, LIMIT))
    def hold(self, which: int, size: int) -> None:
        before, fits = self.shares[which].held, self.shares[which].fits(size, is_counted=True)
        assert self.shares[which].hold(size) == fits
        assert self.shares[which].held == ((size if size > FREE else 0) if fits else before)

    @rule(which=st.integers(0, 3), size=st.integers(0, LIMIT // 4))
    def charge(self, which: int, size: int) -> None:
        self.shares[which].charge(size)

    @invariant()
    def adds_up(self) -> None:
        assert self.budget.figures().used == sum(share.held for share in self.shares)

    def teardown(self) -> None:
        for share in self.shares:
            share.hold(0)
        assert self.budget.figures().used == 0
        assert self.budget._owners == {}


TestShares = Shares.TestCase


@given(st.lists(st.integers(1, LIMIT), max_size=20))
def test_the_limit_holds_for_what_is_asked_for(sizes: list[int]) -> None:
    budget = Budget(LIMIT)
    granted = [size for number, size in enumerate(sizes) if budget.reserve(size, f"10.0.0.{number}")]
    assert budget.figures().used == sum(granted) <= LIMIT


def test_a_budget_that_the_largest_request_hardly_fits_into_is_odd() -> None:
    assert NsqdOptions().oddities() == []
    assert NsqdOptions(buffer_budget=10 << 20, max_body_size=5 << 20).oddities() == []
    (odd,) = NsqdOptions(buffer_budget=10 << 20, max_body_size=6 << 20).oddities()
    assert odd.startswith("--buffer-budget is less than twice --max-body-size")
