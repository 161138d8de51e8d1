"""The last contact with nodes of clusters, by the clock of nsqlookupd: also disconnected ones, and never more than fit."""

from dataclasses import replace
from random import Random

from lookupd.cluster_nodes import KEEP, ClusterNodes
from lookupd.producers import Limits, PeerInfo
from shared.values import SECOND

INFO = PeerInfo("10.0.0.1:5001", "host", "node", 4150, 4151, "1.3.0")
NODE = replace(INFO, node_id=7, cluster="c", cluster_address="node:4154", log_id="ab" * 16)


def node(number: int, host: str = "10.0.0.1", port: int = 5001) -> PeerInfo:
    return replace(NODE, node_id=number, remote_address=f"{host}:{port}")


def seen(nodes: ClusterNodes, now: int) -> list[tuple[int | None, bool, float]]:
    nodes.check()
    return [(one.info.node_id, one.connected, one.last_contact) for one in nodes.nodes(now)]


def test_a_node_is_known_for_a_while_after_its_connection_ended() -> None:
    nodes = ClusterNodes()
    nodes.connected(node(7), SECOND)
    nodes.note_contact(node(7), 3 * SECOND)
    assert seen(nodes, 4 * SECOND) == [(7, True, 1.0)]
    nodes.disconnected(node(7))
    assert seen(nodes, 9 * SECOND) == [(7, False, 6.0)]
    assert seen(nodes, 3 * SECOND + KEEP) == [(7, False, 600.0)]
    assert seen(nodes, 4 * SECOND + KEEP) == []


def test_two_connections_of_a_node_are_one_node_and_another_log_is_another() -> None:
    nodes = ClusterNodes()
    nodes.connected(node(7), SECOND)
    nodes.connected(node(7, port=5002), 2 * SECOND)
    nodes.disconnected(node(7))
    assert seen(nodes, 2 * SECOND) == [(7, True, 0.0)]
    nodes.connected(replace(node(7), log_id="cd" * 16), 3 * SECOND)
    assert seen(nodes, 3 * SECOND) == [(7, True, 1.0), (7, True, 0.0)]


def test_producers_of_no_cluster_are_no_nodes() -> None:
    nodes = ClusterNodes()
    for info in (INFO, replace(NODE, cluster=""), replace(NODE, cluster_address=""), replace(NODE, node_id=None)):
        nodes.connected(info, SECOND)
        nodes.note_contact(info, SECOND)
        nodes.disconnected(info)
    assert seen(nodes, SECOND) == []
    nodes.connected(replace(NODE, log_id=""), SECOND)  # an nsqd of before, which does not say it
    assert seen(nodes, SECOND) == [(7, True, 0.0)]


def test_one_address_displaces_only_its_own_nodes_and_all_are_bounded() -> None:
    nodes = ClusterNodes(Limits(producers=5, producers_per_ip=3))
    nodes.connected(node(0, "10.0.0.2"), SECOND)
    for number in range(1, 10):
        nodes.connected(node(number), SECOND + number)
        nodes.disconnected(node(number))
    assert [one[0] for one in seen(nodes, 2 * SECOND)] == [0, 7, 8, 9]
    for number in range(20, 23):
        nodes.connected(node(number, f"10.0.1.{number}"), 2 * SECOND)
    assert [one[0] for one in seen(nodes, 2 * SECOND)] == [8, 9, 20, 21, 22]


def test_whatever_comes_the_bounds_hold() -> None:
    for seed in range(50):
        random, nodes, now = Random(seed), ClusterNodes(Limits(producers=6, producers_per_ip=2)), 0
        open_ = []
        for _ in range(100):
            now += random.choice((0, SECOND, KEEP // 3))
            info = node(random.randrange(4), f"10.0.0.{random.randrange(5)}")
            if random.random() < 0.6:
                nodes.connected(info, now)
                open_.append(info)
            elif open_:
                nodes.disconnected(open_.pop(random.randrange(len(open_))))
            connected = {(one.info.node_id, one.info.host) for one in nodes.nodes(now) if one.connected}
            assert connected <= {(one.node_id, one.host) for one in open_}
            nodes.check()
