"""How many jobs of a queue came from other nodes lately."""

from nsqd.core.imports import WINDOW, Imports
from tests.nsqd.core.node import SECOND


def test_the_rate_counts_jobs_of_the_last_seconds_and_what_is_old_goes() -> None:
    imports, now = Imports(), 1000 * SECOND
    assert (imports.rate("q", now), imports.lenders("q", now), imports.names(now)) == (0, [], [])
    imports.count("q", 3, now)
    assert (imports.rate("q", now), imports.lenders("q", now), imports.names(now)) == (1, [3], ["q"])
    for _ in range(9):
        imports.count("q", 1, now + 1)
    assert (imports.rate("q", now + 2), imports.lenders("q", now + 2)) == (10, [1, 3])
    assert imports.rate("q", now + SECOND) == 5
    assert imports.rate("q", now + 3 * SECOND) == 3
    assert imports.rate("q", now + WINDOW) == 2
    assert imports.lenders("q", now + WINDOW) == [1]
    assert imports.rate("q", now + WINDOW + 1) == 0
    assert (imports.names(now + WINDOW + 1), imports.lenders("q", now + WINDOW + 1)) == ([], [])
    imports = Imports()
    for number in range(100):
        imports.count(f"q{number}", 1, number * SECOND)
    assert imports.names(99 * SECOND) == [f"q{number}" for number in range(95, 100)]
    for number in range(100):
        imports.count("steady", 1, (100 + number) * SECOND)
    assert imports.rate("steady", 199 * SECOND) == 1
