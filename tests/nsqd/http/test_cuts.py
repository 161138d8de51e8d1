"""/debug/cluster/cut and /heal: checked, and passed on to the cluster."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nsqd.http.cuts import CutRoutes
from nsqd.http.node import Node
from shared.http.errors import HttpError
from shared.http.route import handlers
from tests.cases import each
from tests.nsqd.http.asking import Bridge, handled_json

SECOND = 1_000_000_000


class Cluster:
    """Node 0 of a cluster."""

    def __init__(self) -> None:
        self.cuts: dict[int, int] = {}  # ns, by node

    def cut_off(self, number: int, duration: int) -> list[int]:
        if not number:
            raise ValueError("it is this node")
        self.cuts[number] = duration
        return sorted(self.cuts)

    def heal(self, number: int | None) -> list[int]:
        self.cuts = {one: ns for one, ns in self.cuts.items() if number not in (None, one)}
        return sorted(self.cuts)


def ask(cluster: Cluster | None, verb: str, **arguments: object) -> Any:
    node = cast(Node, SimpleNamespace(bridge=Bridge(), cluster=cluster))
    routes = handlers(route.parsing() for route in CutRoutes(node).routes())
    return handled_json(routes[f"/debug/cluster/{verb}"]["POST"], **arguments)


def test_partitions_begin_for_a_time_and_end_one_by_one_or_all() -> None:
    cluster = Cluster()
    assert ask(cluster, "cut", node=1, **{"for": "30s"}) == {"cut_off": [1]}
    assert ask(cluster, "cut", node=2) == {"cut_off": [1, 2]}
    assert cluster.cuts == {1: 30 * SECOND, 2: 0}
    assert ask(cluster, "heal", node=1) == {"cut_off": [2]}
    assert ask(cluster, "heal") == {"cut_off": []}


@each("verb, arguments, refusal", [
    ("cut", {}, "MISSING_ARG_NODE"), ("cut", {"node": "x"}, "INVALID_ARG_NODE"), ("cut", {"node": 1024}, "INVALID_ARG_NODE"),
    ("cut", {"node": 0}, "INVALID_ARG_NODE"), ("cut", {"node": 1, "for": "x"}, "INVALID_ARG_FOR"),
    ("cut", {"node": 1, "for": "25h"}, "INVALID_ARG_FOR"), ("heal", {"node": -1}, "INVALID_ARG_NODE"),
])  # fmt: skip
def test_what_is_refused(verb: str, arguments: dict[str, Any], refusal: str) -> None:
    with pytest.raises(HttpError, match=refusal):
        ask(Cluster(), verb, **arguments)
    with pytest.raises(HttpError, match="NO_CLUSTER"):
        ask(None, verb, node=1)
