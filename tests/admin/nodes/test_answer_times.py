"""Answer times of nodes, the failing and the slowest first, in bounded memory."""

from admin.nodes.answer_times import KEPT, MOST, AnswerTime, AnswerTimes


def test_the_failing_and_the_slowest_come_first() -> None:
    times = AnswerTimes()
    for place in range(100):
        times.note("http://a:1", place + 1.0)
    times.note("https://b:1", 500.0)
    times.note("http://c:1", 5.0, failed=True)
    assert times.all() == [
        AnswerTime("c:1", 0, 1, True, 0.0, 0.0),
        AnswerTime("b:1", 1, 0, False, 500.0, 500.0),
        AnswerTime("a:1", 100, 0, False, 51.0, 100.0),
    ]
    times.note("http://c:1", 0.1)
    assert [(one.server, one.is_failing) for one in times.all()] == [("b:1", False), ("a:1", False), ("c:1", False)]


def test_old_times_and_old_servers_are_forgotten() -> None:
    times = AnswerTimes()
    for _ in range(KEPT):
        times.note("http://a:1", 9.0)
    for _ in range(KEPT):
        times.note("http://a:1", 1.0)
    assert (times.all()[0].p99, times.all()[0].answers) == (1.0, 2 * KEPT)
    for place in range(MOST):
        times.note(f"http://h{place}:1", 0.0)
    assert len(times.all()) == MOST
    assert "a:1" not in [one.server for one in times.all()]
