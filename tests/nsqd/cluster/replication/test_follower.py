"""Which nodes keep a copy of a log."""

from nsqd.cluster.replication.follower import KnownNode, chosen

LOG = b"a log id of 16 b"


def test_the_choice_depends_on_the_log_and_not_on_the_order() -> None:
    nodes = [KnownNode(number) for number in range(20)]
    first = chosen(LOG, nodes, 2)
    assert first == chosen(LOG, reversed(nodes), 2)
    choices = {tuple(chosen(number.to_bytes(16), nodes, 2)) for number in range(100)}
    assert len(choices) > 50


def test_a_node_that_goes_changes_no_other_choice() -> None:
    nodes = [KnownNode(number) for number in range(20)]
    first, second = chosen(LOG, nodes, 2)
    rest = [node for node in nodes if node.number != second]
    assert chosen(LOG, rest, 2)[0] == first


def test_connected_nodes_come_first_then_nodes_with_room_then_other_zones() -> None:
    nodes = [
        KnownNode(1, is_here=False), KnownNode(2, has_room=False), KnownNode(3, is_apart=False), KnownNode(4),
        KnownNode(5, is_here=False, has_room=False, is_apart=False), KnownNode(6, has_room=False, is_apart=False),
    ]  # fmt: skip
    for log in range(20):
        assert chosen(log.to_bytes(16), nodes, 6) == [4, 3, 2, 6, 1, 5]
