"""How often one may show a wrong proof. Time is the test's."""

from hypothesis import given
from hypothesis import strategies as st

from shared.auth.failures import FAILURES_WITHIN, MOST_FAILURES, Failures, network_of
from tests.cases import each


class World:
    def __init__(self, most: int = MOST_FAILURES, most_keys: int = 10) -> None:
        self.now = 1000.0
        self.failures = Failures(lambda: self.now, most, FAILURES_WITHIN, most_keys)


def test_after_too_many_nothing_is_looked_at_until_the_time_since_the_first_failure_is_over() -> None:
    world = World()
    assert not world.failures.note("a")
    world.now += FAILURES_WITHIN - 1
    assert [world.failures.note("a") for _ in range(MOST_FAILURES + 1)] == [False] * (MOST_FAILURES - 2) + [
        True,
        False,
        False,
    ]
    assert (world.failures.wait("a"), world.failures.wait("b")) == (1, 0)
    world.now += 1
    assert world.failures.wait("a") == 0
    assert not world.failures.note("a")
    assert world.failures.wait("a") == 0


def test_what_was_right_is_taken_back() -> None:
    world = World(most=2)
    for _ in range(5):
        world.failures.note("a")
        world.failures.take_back("a")
    assert (world.failures.wait("a"), len(world.failures)) == (0, 0)
    world.failures.note("a")
    world.failures.note("a")
    assert world.failures.wait("a") > 0
    world.failures.take_back("a")
    assert world.failures.wait("a") == 0
    world.failures.take_back("b")
    assert len(world.failures) == 1


def test_a_clock_that_is_set_back_blocks_no_address_for_long() -> None:
    world = World(most=1)
    world.failures.note("a")
    world.now -= 5
    assert world.failures.wait("a") == FAILURES_WITHIN + 5
    world.now += FAILURES_WITHIN + 5
    assert world.failures.wait("a") == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=100))
def test_what_is_remembered_is_bounded_and_who_failed_longest_ago_goes_first(steps: list[tuple[int, bool]]) -> None:
    world, counts = World(most=2, most_keys=4), dict[int, int]()
    for key, fails in steps:
        if fails:
            world.failures.note(key)
            count = counts.pop(key, 0)
            if len(counts) >= 4:
                del counts[next(iter(counts))]
            counts[key] = count + 1
        else:
            world.failures.take_back(key)
            if counts.get(key):
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]
        assert {one for one in range(10) if world.failures.wait(one)} == {one for one in counts if counts[one] >= 2}
        assert len(world.failures) == len(counts)


@each("address, counted", [
    ("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ("fe80::1%eth0", "fe80::/64"), ("user 1000", "user 1000"), ("", ""),
])  # fmt: skip
def test_a_network_of_one_owner_counts_as_one_address(address: str, counted: str) -> None:
    assert network_of(address) == counted
