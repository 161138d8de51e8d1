"""When a node that starts opens its clients' ports, in virtual time."""

from collections.abc import Callable

import trio
import trio.testing

from nsqd.start.client_ports import WITHIN, ClientPorts
from tests.nsqd.core.node import Node


def opened_at(copies: int, scenario: Callable[[Node], dict[float, int]]) -> tuple[float, list[str], Node]:
    """When ports open that wait for so many copies, if the scenario's numbers are possible from its times (s) on."""
    node, said = Node(), list[str]()
    ports = ClientPorts(node.broker)
    ports.add(lambda: said.append("nsq"))
    ports.add(lambda: said.append("disque"))
    ports.until_open(lambda: said.append("http"))

    async def change(at: float, count: int) -> None:
        await trio.sleep(at)
        node.broker.set_copies(count)

    async def main() -> float:
        async with trio.open_nursery() as nursery:
            for at, count in scenario(node).items():
                nursery.start_soon(change, at, count)
            await ports.open_with(copies)
            nursery.cancel_scope.cancel()
        return trio.current_time() - began

    clock = trio.testing.MockClock(autojump_threshold=0)
    began = clock.current_time()
    took = trio.run(main, clock=clock)
    assert ports.are_open
    ports.until_open(lambda: said.append("late"))
    return round(took, 3), said, node


def test_they_open_when_enough_nodes_can_have_a_copy() -> None:
    took, said, node = opened_at(3, lambda node: {0.5: 2, 1.5: 3})
    assert (took, said) == (1.5, ["nsq", "disque", "http", "late"])
    assert not node.broker.put_waiters


def test_they_open_after_a_time_though_other_nodes_are_down() -> None:
    took, said, node = opened_at(3, lambda node: {0.5: 2, 100.0: 3})
    assert (took, said) == (WITHIN, ["nsq", "disque", "http", "late"])
    assert not node.broker.put_waiters
