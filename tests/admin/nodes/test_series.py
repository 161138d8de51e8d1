"""Series of several nodes, summed step by step."""

from typing import Any

from admin.nodes.series import MOST_LIVES, MOST_STEPS, NAMES, QUARTER, Lives, extended, recent, spans, summed
from tests.cases import each

DAY = 86_400  # s


def steps(first: int, *values: int | None, step: int = 10) -> dict[str, Any]:
    return {"step": step, "from": first} | {name: list(values) for name in NAMES}


def test_steps_are_summed_where_they_are_known() -> None:
    both = summed([steps(100, 1, 2, None, 4), steps(120, 10, None, 30)])
    assert (both["from"], both["step"], both["depth"]) == (100, 10, [1, 2, 12, 14, 30])  # a level continues
    assert summed([steps(100, 1, 2), None, steps(100, 5, step=20)]) == steps(100, 1, 2)
    assert summed([]) is None
    assert summed([None, None]) is None


@each("lie", [
        7, {}, steps(100), steps(101, 1), steps(100, 1, step=0), steps(-100, 1), steps(100, *[1] * (MOST_STEPS + 1)),
        steps(100, 1) | {"depth": [1, 2]}, steps(100, 1) | {"depth": ["x"]}, steps(100, 1) | {"depth": [True]},
        steps(100, 1) | {"step": True}, steps(100, 1) | {"from": 1 << 50},
        {name: values for name, values in steps(100, 1).items() if name != "buried"},
    ])  # fmt: skip
def test_lies_are_left_out(lie: object) -> None:
    assert summed([lie]) is None
    assert summed([lie, steps(100, 3)]) == steps(100, 3)


def test_a_level_continues_over_short_gaps_only() -> None:
    gone = summed([steps(100, 5, None, None, None, 5, None, None, None, None, 7)])
    assert gone["depth"] == [5, 5, 5, 5, 5, None, None, None, None, 7]  # it did not run for so long
    assert gone["published"] == [5, None, None, None, 5, None, None, None, None, 7]
    assert len(summed([steps(100, 1), steps(10 * 86_400, 2)])["depth"]) <= MOST_STEPS, "a node of another time"


def lives_of(*answers: dict[str, Any]) -> Lives:
    lives: Lives = {}
    for answer in answers:
        lives = extended(lives, answer)
    return lives


def test_spans() -> None:
    hour = steps(1000, *range(200))
    found = spans([lives_of({"hour": hour, "day": steps(0, 9, step=300)})])
    assert (found["hour"], found["day"]["depth"]) == (hour, [9])
    assert (found["quarter"]["from"], found["quarter"]["depth"]) == (1000 + 110 * 10, list(range(110, 200)))
    assert len(found["quarter"]["depth"]) * 10 == QUARTER
    assert spans([lives_of({})]) == {"quarter": None, "hour": None, "day": None}
    assert spans([lives_of({"hour": steps(0, 7, step=3600)})])["quarter"] is None


def test_steps_before_a_span_do_not_displace_the_past_of_a_node_that_is_gone() -> None:
    died, now = 10 * DAY, 10 * DAY + 3600
    gone = lives_of({"day": steps(died - DAY, *[1] * 288, step=300)})
    new = lives_of({"day": steps(died + 300, *[2] * 11, step=300)})
    found = spans(recent(one, now) for one in (new, gone))
    assert found["day"]["depth"] == [1] * (288 - 12) + [None] + [2] * 11
    assert recent(gone, now + DAY)["day"] == []


def test_a_restarted_node_keeps_its_earlier_series() -> None:
    before, after = {"hour": steps(1000, 1, 2, 3)}, {"hour": steps(1100, 8, 9)}
    lives = lives_of(before, after)
    assert lives["hour"] == [steps(1000, 1, 2, 3), steps(1100, 8, 9)]
    assert spans([lives])["hour"]["depth"] == [1, 2, 3, *[None] * 7, 8, 9]
    assert lives_of(before, {"hour": steps(1020, 4, 5)})["hour"] == [steps(1000, 1, 2, 4, 5)]  # one life
    assert lives_of(before, {"hour": None})["hour"] == [steps(1000, 1, 2, 3)]
    assert lives_of(before, {"hour": steps(1100, 8, step=20)})["hour"] == [steps(1100, 8, step=20)]
    assert lives_of(after, before)["hour"] == [steps(1000, 1, 2, 3)]  # its clock was set back


def test_lives_are_bounded() -> None:
    many = lives_of(*({"hour": steps(100 * number, number)} for number in range(1, 50)))["hour"]
    assert [one["depth"] for one in many] == [[number] for number in range(50 - MOST_LIVES, 50)]
    [one] = lives_of({"hour": steps(0, *range(300))}, {"hour": steps(3000, *range(300))})["hour"]
    assert (one["from"], len(one["depth"])) == (6000 - 3600, 360)
    [one] = lives_of({"hour": steps(0, *range(900), step=1)}, {"hour": steps(900, *range(900), step=1)})["hour"]
    assert len(one["depth"]) == MOST_STEPS
