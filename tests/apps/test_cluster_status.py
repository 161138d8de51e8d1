"""`penstock cluster status` asks every node that one of them names, and prints the cluster on one screen."""

import json
from argparse import Namespace
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from apps import cluster_status
from apps.cluster_status import Unreachable, described, lines_of, look
from shared.cluster.health import health_of
from tests.cases import each
from tests.shared.cluster.test_health import led, three, without
from tests.shared.cluster.test_state import Raw, follower, record


class Nodes:
    """What answers, by address; every other address refuses."""

    def __init__(self, **answers: Raw) -> None:
        self.answers = {f"{name}:4151": answer for name, answer in answers.items()}
        self.asked: list[str] = []

    def ask(self, address: str) -> dict[str, Any]:
        self.asked.append(address)
        if address not in self.answers:
            raise httpx.ConnectError("Connection refused")
        return self.answers[address]


def screen(nodes: Nodes, *addresses: str) -> str:
    cluster, silent = look(addresses or ("h0:4151",), nodes.ask)
    return "\n".join(lines_of(cluster, health_of(cluster), silent))


def test_a_whole_cluster_on_one_screen() -> None:
    nodes = Nodes(**{f"h{number}": one for number, one in enumerate(three())})
    assert screen(nodes) == (
        "Cluster c: WHOLE\n"
        "Safe to lose another node: yes\n"
        "\n"
        "NODE  STATE  HTTP ADDRESS  COPIES  CONNECTED TO\n"
        "0     up     h0:4151       3 of 3  1, 2\n"
        "1     up     h1:4151       3 of 3  0, 2\n"
        "2     up     h2:4151       3 of 3  0, 1\n"
        "\n"
        "LOG OF  LOG   LEADER  STATE    IN SYNC  NOT IN SYNC\n"
        "0       log0  0       serving  1, 2     -\n"
        "1       log1  1       serving  0, 2     -\n"
        "2       log2  2       serving  0, 1     -"
    )
    assert nodes.asked == ["h0:4151", "h1:4151", "h2:4151"]
    nodes.answers["h0:4151"]["led"].append(led(7, "old") | {"batches": 2})
    assert screen(nodes).endswith(
        "2 batches of the log of node 7 not done: penstock batch list --nsqd-http-address h0:4151"
    )


def test_a_node_that_is_down_is_asked_once_and_shown() -> None:
    first, second = without(2)
    nodes = Nodes(h0=first, h1=second)
    text = screen(nodes)
    assert text.startswith("Cluster c: DEGRADED\n  - node 2 is down\n")
    assert "2     down   h2:4151       -" in text
    assert text.endswith("No answer from h2:4151: Connection refused")
    assert nodes.asked == ["h0:4151", "h1:4151", "h2:4151"]


def test_a_node_under_two_addresses_is_one_node_and_no_node_or_two_clusters_are_errors() -> None:
    nodes = Nodes(alias=three()[0], **{f"h{number}": one for number, one in enumerate(three())})
    cluster, _ = look(["alias:4151", "h0:4151"], nodes.ask)
    assert cluster.issues == []
    assert [one.node for one in cluster.nodes] == [0, 1, 2]
    with pytest.raises(Unreachable, match=r"no node of a cluster answers: h0:4151: Connection refused"):
        look(["h0:4151"], Nodes().ask)
    with pytest.raises(Unreachable, match="several clusters: c, d"):
        look(["h0:4151", "x:4151"], Nodes(h0=three()[0], x=three()[1] | {"name": "d", "nodes": [record(1)]}).ask)


def test_requests_to_nodes_that_others_name_are_bounded() -> None:
    liar = three()[0] | {"nodes": [record(number, http_address=f"x{number}:1") for number in range(1000)]}
    nodes = Nodes(h0=liar)
    cluster, silent = look(["h0:4151"], nodes.ask)
    assert len(nodes.asked) <= 1024
    assert len(list(lines_of(cluster, health_of(cluster), silent))) < 2500


def test_json_has_the_level_the_reasons_and_the_parts() -> None:
    cluster, silent = look(["h0:4151"], Nodes(h0=without(2)[0], h1=without(2)[1]).ask)
    found = json.loads(json.dumps(described(cluster, health_of(cluster), silent)))
    assert (found["cluster"], found["level"], found["safe_to_lose_another_node"]) == ("c", "degraded", False)
    assert found["degraded"][0] == "node 2 is down"
    assert [one["node"] for one in found["nodes"]] == [0, 1, 2]
    assert found["no_answer"] == {"h2:4151": "Connection refused"}


@each("goal, code", [("safe", 0), ("whole", 1)])
def test_a_wait_succeeds_when_its_goal_is_reached(goal: str, code: int) -> None:
    degraded = three()
    degraded[0]["refused"] = [{"node": 3, "address": "h3", "reason": "drain it first"}]
    found = look(["h0:4151"], Nodes(**{f"h{number}": one for number, one in enumerate(degraded)}).ask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_status, "_client", lambda arguments: nullcontext())
        patch.setattr(cluster_status, "_look", lambda client, arguments: found)
        assert cluster_status.run_wait(Namespace(goal=goal, timeout=0, json=False)) == code


def test_a_wait_prints_a_reason_once_while_only_its_amount_changes(capsys: pytest.CaptureFixture[str]) -> None:
    lagging = [
        three(followers=[follower(1, behind=bytes_, state="catching up"), follower(2)]) for bytes_ in (9000, 5000)
    ]
    looks = [
        look(["h0:4151"], Nodes(**{f"h{number}": one for number, one in enumerate(nodes)}).ask)
        for nodes in (*lagging, three())
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_status, "_client", lambda arguments: nullcontext())
        patch.setattr(cluster_status, "_look", lambda client, arguments: looks.pop(0))
        patch.setattr(cluster_status, "time", SimpleNamespace(monotonic=lambda: 1.0, sleep=lambda seconds: None))
        assert cluster_status.run_wait(Namespace(goal="whole", timeout=9, json=False)) == 0
    assert capsys.readouterr().err.count("waiting: ") == 1
