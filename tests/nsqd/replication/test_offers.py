"""How many nodes a start waits for before it continues its log."""

from itertools import combinations

import pytest

from nsqd.replication.offers import is_enough
from nsqd.storage.log.followers import Followers


def test_without_followers_nobody_is_waited_for() -> None:
    assert is_enough(Followers(), set())


def test_if_no_publish_asked_for_copies_all_that_count_are_waited_for() -> None:
    assert not is_enough(Followers((1, 2)), {1, 3})
    assert is_enough(Followers((1, 2)), {1, 2})


@pytest.mark.parametrize(
    ("followers", "fewest"), [((1,), 2), ((1, 2), 2), ((1, 2), 3), ((1, 2, 3), 3), ((1, 2, 3, 4), 2), ((1, 2, 3, 4), 4)]
)
def test_enough_answers_contain_one_that_has_what_was_acknowledged(followers: tuple[int, ...], fewest: int) -> None:
    for count in range(len(followers) + 1):
        for silent in combinations(followers, count):
            heard = set(followers) - set(silent)
            always_one = all(heard & set(having) for having in combinations(followers, fewest - 1))
            assert is_enough(Followers(followers, fewest, fewest), heard) == always_one
