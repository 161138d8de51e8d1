"""Tubes by name: shown while they have users, and in beanstalkd's order."""

from nsqd.core.work_queue.tube_list import TubeList
from nsqd.core.work_queue.worker import Names


def test_the_place_of_a_name_that_goes_is_taken_by_the_last() -> None:
    names = Names("a", "b", "c", "d")
    names.add("b")
    names.remove("b")
    assert list(names) == ["a", "d", "c"]
    names.remove("c")
    assert list(names) == ["a", "d"]
    assert len(names) == 2
    assert "a" in names
    assert "b" not in names


def test_a_tube_is_shown_while_it_has_users_and_default_always() -> None:
    listed = TubeList()
    listed.use("t")
    listed.watch("t")
    listed.counters["t"]["delete"] += 1
    assert (listed.users["t"].using, listed.users["t"].watching) == (1, 1)
    assert not listed.leave("t")
    listed.hide("t")
    assert list(listed.names) == ["t"]
    assert listed.ignore("t")
    listed.check()
    listed.show("t")
    assert listed.counters["t"]["delete"] == 1  # showing it again forgets nothing
    listed.hide("t")
    listed.hide("t")
    assert not len(listed.names)
    assert not listed.counters
    listed.check()
    listed = TubeList()
    listed.show("default")
    listed.hide("default")
    assert list(listed.names) == ["default"]
