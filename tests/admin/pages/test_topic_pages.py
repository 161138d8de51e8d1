"""Rates on the pages of topics: of the same nodes, and without what was only buried. No node is asked."""

import time
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from admin.nodes.cluster import Producer, Producers, Stats
from admin.nodes.fallback import FallbackUpstreams
from admin.nodes.merge import topic_of
from admin.nodes.overview import Overview, Rows, node_counts, rows_of
from admin.nodes.places import Settings
from admin.nodes.queries import Queries
from admin.nodes.response_cache import CachedAnswer, ResponseCache
from admin.pages.topic_pages import TopicPages, _channels_of, _totals
from tests.admin.asking import in_loop
from tests.admin.fake_nodes import Answering
from tests.async_tests import on_asyncio

A, B = (Producer("h", host, 1, 1, "1.3.0", capabilities=("log",)) for host in ("a", "b"))


def rows(nodes: Iterable[str], *messages: int) -> Rows:
    """The row of topic t, of which the nodes have these numbers of messages; the last ones do not answer now."""
    topics = [{"topic_name": "t", "messages": one, "channels": 1} for one in messages]
    found, addresses = rows_of(topics, []), list(nodes)
    found.answered = frozenset(addresses)
    known = zip([*addresses, "silent:1"], topics, strict=False)
    found.counts = {node: node_counts(["t"], [one]) for node, one in known}
    return found


def rate_of(now: Rows, before: Rows) -> float | None:
    """The rate that the list of topics shows after these two looks."""

    class Looked:
        async def rows(self, names: list[str]) -> CachedAnswer[Rows]:
            return CachedAnswer(now, before, 2.0)

    pages = TopicPages(*cast(Any, (SimpleNamespace(queries=Looked()), None)))
    [row] = in_loop(lambda: pages._rows(["t"], "", {}))
    return row.rate_in


def test_a_row_has_the_rates_of_the_nodes_that_are_left_and_none_if_a_node_is_new() -> None:
    assert rate_of(rows(["a:1", "b:1"], 5000), rows(["a:1"], 10)) is None
    assert rate_of(rows(["a:1", "b:1"], 5000, 0), rows(["a:1", "b:1"], 10, 0)) == 2495.0
    before = rows(["a:1", "b:1"], 10, 1000)
    assert rate_of(rows(["a:1"], 50), before) == 20.0
    assert rate_of(rows(["a:1"], 50, 1000), before) == 20.0, "the last answer of the other one does not count"
    before.counts.pop("a:1")
    assert rate_of(rows(["a:1"], 50), before) is None
    assert rate_of(rows([], 50), before) is None


def test_old_totals_have_their_time() -> None:
    for late, labels in ((0, []), (10_000_000_000, ["Totals as of"])):
        found = _totals(Overview(at=time.time_ns() - late))
        assert [label for label, _ in found if label.startswith("Totals")] == labels


def buried(**counts: int) -> Answering:
    """Nodes with topic t, which answer with how many messages of its channel c are buried."""

    def answer(address: str, path: str, _: object) -> dict[str, Any]:
        if path == "/topics/rows":
            return {"topics": [{"topic_name": "t", "messages": 1}]}
        return {"buried": {"c": counts[address.partition(":")[0]], "d": "lies"}}

    return Answering([f"{name}:1" for name in counts], answer)


def queries_of(nodes: Answering) -> tuple[Queries, list[float]]:
    clock = [100.0]

    class Cluster:
        async def producers(self) -> Any:
            return Producers([], [A, B])

    fallback = cast(FallbackUpstreams, nodes)
    queries = Queries(Settings(), cast(Any, Cluster()), fallback, fallback)
    queries.cache = ResponseCache(lambda: clock[0])
    return queries, clock


def stats(buried: Mapping[str, int], finished: int = 0) -> Stats:
    """The stats of channel c, of which each of these nodes holds as many buried messages, and finished as many more."""
    counts = ((address, held, held + finished) for address, held in buried.items())
    named = {"channel_name": "c"}
    channels = ((address, named | {"buried_count": held, "message_count": came}) for address, held, came in counts)
    return Stats([], [topic_of({"topic_name": "t", "channels": [one]}, address, "h", 0) for address, one in channels])


def test_how_fast_messages_are_buried() -> None:
    first, later = stats({"a:1": 1, "b:1": 2}), stats({"a:1": 5, "b:1": 8}, finished=20)
    [row] = _channels_of(CachedAnswer(later, first, 10.0), {"c": 7}, {})
    assert (row.rate_in, row.rate_out) == (5.0, 4.0), "1.0 of them was buried, which is not finished"
    assert (row.buried, row.oldest) == (13, 7)

    last = CachedAnswer(stats({"a:1": 9}, finished=20), later, 10.0)  # one node is missing
    [row] = _channels_of(last, {}, {"c": 2.5})
    assert (row.buried, row.rate_in, row.rate_out, row.gain) == (9, 0.4, 0.0, 2.5)
    [row] = _channels_of(CachedAnswer(later, stats({"a:1": 1}), 10.0), {}, {})  # one node is new
    assert (row.buried, row.rate_in, row.rate_out) == (13, None, None)
    [row] = _channels_of(CachedAnswer(first), {}, {})
    assert (row.buried, row.rate_in, row.rate_out) == (3, None, None)
    queries, _ = queries_of(buried(a=1, b=2))
    assert in_loop(lambda: queries.ages([A, B], "t"))[1] == {"c": 3, "d": 0}, "only numbers count"


@on_asyncio
async def test_a_node_that_stops_answering_is_not_among_the_answered() -> None:
    nodes = buried(a=1, b=2)
    queries, clock = queries_of(nodes)
    assert (await queries.rows(["t"])).now.answered == {"a:1", "b:1"}
    nodes.silent = {"b:1": 3.0}  # its last answer is shown
    clock[0] += 10.0
    assert (await queries.rows(["t"])).now.answered == {"a:1"}
