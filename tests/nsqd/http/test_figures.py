"""Which topics and channels have series of their own in /metrics, and that the sum of the others never falls."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.http.figures import SUMMED_AT_ONCE, FigureRow, RowChoice, add

MOST = 5


def rows(*sizes: int, first: int = 0) -> list[FigureRow]:
    """A row for each of `sizes`: its backlog, its clients, and ten times the backlog as its counter."""
    return [FigureRow((f"t{first + place:04}",), (size, 1), (10 * size,)) for place, size in enumerate(sizes)]


def test_a_counter_that_began_anew_adds_what_it_has() -> None:
    chosen, all_but_one = RowChoice(MOST), rows(*[9] * MOST)
    for size, total in ((5, 50), (2, 50 + 20), (3, 50 + 20 + 10)):
        _, rest = chosen.choose(all_but_one + rows(size, first=MOST))
        assert rest.counters == (total,)


@given(st.lists(st.lists(st.integers(0, 12), unique=True), min_size=2, max_size=6))
def test_the_number_is_bounded_and_the_sum_never_falls(looks: list[list[int]]) -> None:
    chosen, last, before = RowChoice(MOST), 0, set[tuple[str, ...]]()
    for look, numbers in enumerate(looks):
        present = [FigureRow((f"t{number}",), (number, 1), (look * number,)) for number in numbers]
        picked, rest = chosen.choose(present)
        keys = {row.key for row in picked}
        assert len(keys) == min(MOST, len(numbers))
        assert before & {row.key for row in present} <= keys
        before = keys
        if rest is not None:
            assert rest.counters[0] >= last
            last = rest.counters[0]


def test_the_sum_of_very_many_is_taken_in_parts() -> None:
    many = [(number, 1) for number in range(2 * SUMMED_AT_ONCE * 10 + 1)]
    assert (add(many), add([])) == ((sum(range(len(many))), len(many)), ())
