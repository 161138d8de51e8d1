"""`penstock top` in a pipe, over two nodes in the test's process."""

import json

from tests.admin.terminal.program import Terminal, post
from tests.admin.terminal.program import nodes as nodes  # the fixtures
from tests.admin.terminal.program import terminal as terminal
from tests.local_node import LocalNode


def test_a_round_is_a_table_sorted_by_an_order(nodes: list[LocalNode], terminal: Terminal) -> None:
    for topic, bodies in (("small", 1), ("large", 3)):
        for number in range(bodies):
            post(nodes[number % 2], "/pub", b"x", topic=topic)
    code, out, error = terminal("top", "-n", "1")
    head, first, second = out.splitlines()
    assert (code, error, head.split()[:4]) == (0, "", ["TOPIC", "DEPTH", "IN", "OUT"])
    assert (first.split()[:4], second.split()[:2]) == (["large", "3", "-", "-"], ["small", "1"])
    assert [row["topic"] for row in terminal.rows("top", "-n", "1", "--sort", "name")] == ["large", "small"]


def test_rates_are_known_from_the_second_round_on(nodes: list[LocalNode], terminal: Terminal) -> None:
    post(nodes[0], "/pub", b"x", topic="t")
    code, out, _ = terminal("top", "-n", "2", "--json", "--every", "1ms")
    rounds = [json.loads(line) for line in out.splitlines()]
    assert (code, len(rounds), rounds[0]["in"]) == (0, 2, None)


def test_a_node_that_is_lost_is_named_at_the_end(nodes: list[LocalNode], terminal: Terminal) -> None:
    post(nodes[0], "/pub", b"x", topic="t")
    terminal.network.slow.add("127.0.0.1:4251")
    code, out, error = terminal("top", "-n", "1")
    assert (code, "t " in out, "127.0.0.1:4251" in error) == (1, True, True)
