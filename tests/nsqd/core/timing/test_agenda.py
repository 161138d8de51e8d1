"""The agenda's reclaimer: work is done in the order in which it came, some steps in each turn."""

from collections.abc import Iterator

from nsqd.core.timing.agenda import AT_ONCE, Agenda


def steps(done: list[str], name: str, count: int) -> Iterator[None]:
    for step in range(count):
        done.append(f"{name}{step}")
        yield


def test_what_came_first_is_finished_first_and_all_of_it_now_if_asked() -> None:
    agenda, done = Agenda(), list[str]()
    agenda.reclaimer.add(steps(done, "a", 2 * AT_ONCE))
    agenda.reclaimer.add(steps(done, "b", 2 * AT_ONCE))
    while agenda.awake:
        agenda.serve()
    first = [f"a{step}" for step in range(AT_ONCE)] + [f"b{step}" for step in range(AT_ONCE)]
    assert done[: 2 * AT_ONCE] == first
    assert done[2 * AT_ONCE :] == [f"{name}{step}" for name in "ab" for step in range(AT_ONCE, 2 * AT_ONCE)]
    agenda, done = Agenda(), list[str]()
    agenda.reclaimer.add(steps(done, "a", 3 * AT_ONCE))
    agenda.reclaimer.finish()
    agenda.serve()
    assert len(done) == 3 * AT_ONCE
    assert not agenda.awake
