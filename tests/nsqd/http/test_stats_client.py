"""The object of a client in /stats."""

import asyncio
import json

import pytest

from nsqd.http.stats import Stats, StatsArguments
from tests.nsqd.http.test_stats_in_turn import http_node
from tests.nsqd.protocols.nsq.wire import Wire


@pytest.mark.parametrize("extended", [False, True])
def test_errors_of_a_client_are_shown_to_those_who_know_the_key(extended: bool) -> None:
    wire = Wire()
    wire.send(b"SUB t c\nFIN 0123456789abcdef\nFIN 0123456789abcdef\n")
    node = http_node(wire.node.broker)
    node.peers = lambda: [wire.peer]
    answer = asyncio.run(Stats(node)._answer(StatsArguments("t", "", True, False, extended), True))
    (told,) = json.loads(bytes(answer.body))["topics"][0]["channels"][0]["clients"]
    assert told.get("error_count") == (2 if extended else None)
