"""Steps of tasks that act on many messages of several nodes."""

import pytest

from admin.messages import bulk
from admin.messages.bulk import BulkWork
from admin.nodes.upstreams import Refused, UpstreamError
from tests.admin.asking import in_loop
from tests.admin.fake_nodes import FakeNode, upstreams_of

ASKED = {"topic": "t", "channel": "c"}


def work_of(nodes: dict[str, FakeNode], action: str = "kick", **filters: str) -> BulkWork:
    return BulkWork(upstreams_of(**nodes), list(nodes), "/channel/messages", action, "buried", ASKED, filters)


def done_by(work: BulkWork, total: int, step: int = 10) -> int:
    """Run the steps like a task does. Return how many messages it acted on."""

    async def run() -> int:
        done = 0
        while done < total:
            acted = await work.step(min(step, total - done))
            if acted == 0:
                break
            done += acted or 0
        return done

    return in_loop(run)


def node(count: int, **more: object) -> FakeNode:
    return FakeNode({one: one for one in range(count)}, **more)  # type: ignore[arg-type]


def test_one_total_over_all_nodes_one_after_the_other() -> None:
    nodes = {"a": node(25), "b": node(5), "c": node(25)}
    assert done_by(work_of(nodes), 40) == 40
    assert [len(one.acted) for one in nodes.values()] == [25, 5, 10]
    assert done_by(work_of(nodes), 1000) == 15
    nodes = {"a": node(3)}
    assert done_by(work_of(nodes, "move"), 3) == 3
    assert nodes["a"].acted == [0, 1, 2]


def test_a_redrive_moves_messages_with_the_header_and_names_no_topic() -> None:
    nodes = {"a": node(30)}
    assert done_by(work_of(nodes, "redrive", contains="2"), 100) == sum("2" in str(one) for one in range(30))
    assert {one["header"] for one in nodes["a"].asked} == {"dead-letter-topic"}


def test_a_redrive_lists_nothing_while_it_finds_only_dead_letters() -> None:
    nodes = {"a": node(30), "b": node(5)}
    assert done_by(work_of(nodes, "redrive"), 100) == 35
    assert [len(one.asked) for one in nodes.values()] == [1, 1]


def test_only_messages_that_match_a_filter() -> None:
    nodes = {"a": node(2500), "b": node(30)}
    matches = sum("7" in str(one) for one in [*range(2500), *range(30)])
    assert done_by(work_of(nodes, contains="7"), 10_000, 1000) == matches
    assert all("7" in str(one) for each in nodes.values() for one in each.acted)
    assert all(asked["preview"] == "0" for one in nodes.values() for asked in one.asked)


def test_more_matches_than_are_looked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MOST_CHOSEN", 50)
    for nodes in ({"a": node(500, most=20)}, {"a": node(500, most=20, counts=True)}):
        assert done_by(work_of(nodes, contains=""), 10_000, 7) == 500
        assert nodes["a"].messages == {}


def test_messages_that_do_not_match_are_listed_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MOST_CHOSEN", 50)
    nodes = {"a": node(20_000)}
    assert done_by(work_of(nodes, contains="7"), 20_000) == sum("7" in str(one) for one in range(20_000))
    assert len(nodes["a"].asked) <= 2 * 20


def test_messages_that_cannot_be_acted_on_do_not_keep_a_task_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MOST_CHOSEN", 5)
    stuck = node(30)
    stuck.act = lambda path, arguments: {"kicked": 0}  # type: ignore[method-assign]
    assert done_by(work_of({"a": stuck, "b": node(2)}, contains=""), 1000) == 2


def test_a_node_that_fails_is_skipped_and_reported_at_the_end() -> None:
    nodes = {"a": node(3), "b": node(3, failure=UpstreamError("b is gone")), "c": node(3)}
    work = work_of(nodes)
    with pytest.raises(UpstreamError, match="b is gone; the last step there may have been executed"):
        done_by(work, 100)
    assert [len(one.acted) for one in nodes.values()] == [3, 0, 3]
    nodes = {"a": node(3, failure=Refused("no such channel", 404)), "b": node(3)}
    assert done_by(work_of(nodes), 100) == 3


def test_a_node_that_cannot_read_so_many_at_once_is_asked_for_fewer() -> None:
    nodes = {"a": node(30, most=4)}
    assert done_by(work_of(nodes), 100) == 30
    nodes = {"a": node(30, most=4)}
    assert done_by(work_of(nodes, contains="1"), 100) == sum("1" in str(one) for one in range(30))


def test_a_node_that_cannot_filter_is_not_acted_on_and_one_whose_list_does_not_go_on_is_left() -> None:
    nodes = {"a": node(30, has_filters=False)}
    with pytest.raises(UpstreamError, match="a cannot filter messages: upgrade it"):
        done_by(work_of(nodes, contains="7"), 100)
    assert nodes["a"].acted == []
    stuck = node(5)
    stuck.list_messages = lambda arguments: {"scanned": 5, "messages": [], "next": "4"}  # type: ignore[method-assign]
    with pytest.raises(UpstreamError, match="a lists the same messages again and again"):
        done_by(work_of({"a": stuck}, contains="7"), 100)
