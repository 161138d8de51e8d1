"""Two logs of a cluster have no message id in common: who joins with ids that another log has, too, is refused by all."""

from nsqd.core.message.id_ranges import NO_END, IdRange
from tests.cases import each
from tests.nsqd.cluster.network import Network, SimMember

LOW, HIGH = 1 << 20, 1 << 24
CALM = 70  # s, as in test_cluster.py


def issuing(number: int, first: int = 1) -> IdRange:
    return IdRange(number, first, NO_END)


def names(member: SimMember) -> list[int]:
    return [one.number for one in member.cluster.membership.members]


def why(member: SimMember, number: int) -> str:
    return member.cluster.refusals[number][1]


def test_two_nodes_that_both_hashed_617_form_a_cluster_when_one_is_drained() -> None:
    """The second one was restored as node 3 to form a cluster with the first."""
    network = Network(1)
    first = network.start(617, seeds=["node0:4152"], ids=(issuing(617),))
    other = network.start(0, ids=(issuing(0),))
    network.run(CALM)
    second = network.start(3, ids=(issuing(3, HIGH), IdRange(617, LOW, HIGH)))
    network.run(CALM)
    for member in (first, other):
        assert names(member) == [0, 617]
        if 3 in member.cluster.refusals:
            assert "node 3 must first be drained" in why(member, 3)
            assert "ids of node number 617" in why(member, 3)
    assert 3 in other.cluster.refusals, "the second node dials the seed"
    assert "the peer refuses: node 3 must first be drained" in why(second, 0)
    assert names(second) == [3]
    network.kill(second)
    drained = network.start(3, incarnation=2, ids=(issuing(3, HIGH),))
    network.run(CALM)
    assert network.agree()
    assert names(drained) == [0, 3, 617]
    assert all(member.cluster.refusals == {} for member in network.running())


@each("first, is_accepted", [(HIGH, True), (HIGH - 1, False)])
def test_the_node_with_the_foreign_ids_is_named_in_any_order_of_joining(first: int, is_accepted: bool) -> None:
    network = Network(1)
    network.start(0, ids=(issuing(0), IdRange(5, LOW, HIGH)))
    own = network.start(5, ids=(issuing(5, first),))
    network.run(CALM)
    assert network.agree() is is_accepted
    assert is_accepted or "node 0 must first be drained" in why(own, 0)


def test_a_record_of_another_node_with_common_ids_is_not_accepted() -> None:
    """Both were admitted by one node each, while the network was cut."""
    network = Network(1)
    network.start(0, ids=(issuing(0),))
    network.start(1, ids=(issuing(1),))
    network.run(CALM)
    network.cut = {
        (f"node{one}:4152", f"node{other}:4152") for one in range(4) for other in range(4) if one % 2 != other % 2
    }
    network.start(2, ids=(issuing(2), IdRange(617, LOW, HIGH)))
    network.start(3, seeds=["node1:4152"], ids=(issuing(3), IdRange(617, HIGH - 1, HIGH + 1)))
    network.run(CALM)
    assert (names(network.members["node0:4152"]), names(network.members["node1:4152"])) == ([0, 1, 2], [0, 1, 3])
    network.cut = set()
    network.run(CALM)
    assert (names(network.members["node0:4152"]), names(network.members["node1:4152"])) == ([0, 1, 2], [0, 1, 3])
    assert "ids of node number 617" in why(network.members["node2:4152"], 1)


@each("secret", [b"the secret of another cluster", None])
def test_only_proved_members_are_forwarded(secret: bytes | None) -> None:
    network = Network(1)
    first = network.start(0, ids=(issuing(0), IdRange(5, LOW, HIGH)))
    own = network.start(5, ids=(issuing(5),)).own
    stranger = SimMember(network, own, ["node0:4152"], *([secret] if secret else []))
    network.members["node5:4152"] = stranger
    network.run(CALM)
    assert (5 in first.cluster.refusals) == (secret is None)
    assert (0 in stranger.cluster.refusals) == (secret is None)
