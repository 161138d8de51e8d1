"""A chart keeps the past of a node that is gone, and names the nodes that it lacks."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from admin.nodes import series_past
from admin.nodes.cluster import Producer
from admin.nodes.fallback import FallbackUpstreams
from admin.nodes.inventory import Inventory
from admin.nodes.places import Settings
from admin.nodes.queries import Queries
from admin.nodes.response_cache import ResponseCache
from admin.nodes.series_past import KEPT, SILENT, KeptSeries, SeriesPast, summed_up
from admin.options import AdminOptions
from admin.output.layout import _environment
from admin.pages.channel_page import ChannelPage
from shared.json_fields import JsonObject
from shared.values import SECOND
from tests.admin.asking import in_loop
from tests.admin.fake_nodes import Answering
from tests.admin.nodes.test_series import steps

T0 = 1_800_000_000  # s
A, B, C = (
    Producer("h", host, 1, 1, "1.3.0", capabilities=("log",), topics=(("t", False), ("u", False))) for host in "abc"
)


class Chart:
    """The series of channel t/c in nsqadmin."""

    def __init__(self, hours: dict[str, JsonObject], at: int) -> None:
        self.at, self.hours = at, hours
        self.nodes = Answering(hours, self._series)
        upstreams = cast(FallbackUpstreams, self.nodes)
        self.queries = Queries(Settings(), cast(Any, None), upstreams, upstreams, clock=lambda: self.at * SECOND)
        self.queries.cache = ResponseCache(lambda: float(self.at))
        self.queries.inventory = Inventory()
        self.queries.inventory.note_named([A, B, C], at * SECOND, is_complete=True)

    def _series(self, address: str, path: str, arguments: Any) -> JsonObject:
        assert path == "/topic/series"
        return {"channel": arguments.get("channel", ""), "hour": self.hours[address]}

    def die(self, one: Producer) -> None:
        del self.hours[one.address]
        living = [other for other in (A, B, C) if other.address in self.hours]
        self.queries.inventory.note_failure(one.address, "refused", self.at * SECOND)
        self.queries.inventory.note_named(living, self.at * SECOND, is_complete=True)

    def show(self) -> JsonObject:
        page = ChannelPage(cast(Any, SimpleNamespace(options=AdminOptions(), queries=self.queries)))
        asked = [one for one in (A, B, C) if one.address in self.hours]
        found = in_loop(lambda: page._spans(asked, "t", "c"))
        return found | {"missing": self.queries.missing_past("t", "c")}


def test_the_past_of_a_node_that_dies_stays() -> None:
    chart = Chart({one.address: steps(T0, 2000, 2000) for one in (A, B, C)}, T0 + 20)
    assert chart.show()["hour"]["depth"] == [6000, 6000]
    chart.at = T0 + 35
    chart.die(C)
    chart.hours[A.address] = steps(T0, 2000, 2000, 2000, 4000)  # it has promoted the log of the other
    chart.hours[B.address] = steps(T0, 2000, 2000, 2000, 2000)
    chart.at = T0 + 60
    found = chart.show()
    assert found["hour"]["depth"] == [6000, 6000, 4000, 6000]
    assert found["missing"] == []


def test_a_node_without_an_answer_is_missing() -> None:
    chart = Chart({one.address: steps(T0, 2000) for one in (A, B, C)}, T0 + 100)
    chart.die(C)
    assert chart.show()["missing"] == [{"node": C.address, "since": None, "until": T0 + 100}]
    chart.at += 500
    chart.die(B)
    assert chart.show()["missing"] == [
        {"node": B.address, "since": T0 + 100, "until": T0 + 600}, {"node": C.address, "since": None, "until": T0 + 100},
    ]  # fmt: skip
    assert chart.queries.missing_past("other", "") == []
    chart.at += KEPT
    assert chart.queries.missing_past("t", "c") == []
    chart = Chart({one.address: steps(T0, 1) for one in (A, B, C)}, T0)
    chart.queries.inventory.note_named([A, B, replace(C, capabilities=())], T0 * SECOND, is_complete=True)
    chart.die(C)
    assert chart.show()["missing"] == [], "an original node has no series"


def test_the_last_answer_of_a_node_that_hangs_is_no_new_one() -> None:
    chart = Chart({one.address: steps(T0, 1) for one in (A, B, C)}, T0 + 20)
    chart.show()
    chart.nodes.silent = {C.address: 5.0}
    chart.at += 200
    assert chart.show()["hour"]["depth"] == [3]
    assert dict(chart.queries.past.find("t", "c").answered_at) == {
        A.address: T0 + 220, B.address: T0 + 220, C.address: T0 + 20,
    }  # fmt: skip


def test_the_page_names_missing_nodes() -> None:
    missing = [{"node": "c:1", "since": None, "until": T0}, {"node": "b:1", "since": T0, "until": T0 + 60}]
    page = _environment().get_template("missing_past.html").render(missing=missing)
    words = " ".join(re.sub("<[^>]*>", "", page).split())
    assert "The charts are without node c:1 before 08:00:00 UTC: it" in words
    assert "The charts are without node b:1 from 08:00:00 UTC to 08:01:00 UTC: it" in words


def test_a_day_after_its_last_answer_a_node_is_forgotten() -> None:
    hours = {"a:1": {"day": steps(T0, 1, step=300)}, "b:1": {"day": steps(T0, 2, step=300)}}
    _, kept = summed_up(KeptSeries(), hours, T0)
    found, kept = summed_up(kept, {"a:1": {"day": steps(T0, 1, 1, step=300)}}, T0 + KEPT - 1)
    assert found["day"]["depth"] == [3, 1]
    found, kept = summed_up(kept, {"a:1": {"day": steps(T0, 1, 1, step=300)}}, T0 + KEPT)
    assert (found["day"]["depth"], list(kept.lives())) == ([1, 1], ["a:1"])


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_past, "MOST_BYTES", 4000)
    past = SeriesPast()
    for number in range(9):
        past.keep("t", f"c{number}", KeptSeries(b"x" * 400, {"a:1": T0}))
        past.keep("t", f"c{number}", KeptSeries(b"y" * 400, {"a:1": T0}))
    assert len(past._kept) == 4
    assert past.find("t", "c8").answered_at == {"a:1": T0}
    assert past.find("t", "c0") == KeptSeries()
    assert past.missing("t", "c8", {"a:1": T0 + SILENT}, T0 + 60) == []
