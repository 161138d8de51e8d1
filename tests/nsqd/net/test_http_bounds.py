"""How much output an HTTP connection on the reactor may hold before nothing more is read from it."""

from functools import partial

import pytest

from nsqd.protocols.http.peer import UNITS_OF_A_REQUEST, UNITS_OF_A_TURN, Context, HttpPeer
from nsqd.protocols.http.publishers import HttpPublishers
from nsqd.start.http_server import HTTP_BOUNDS
from tests.nsqd.core.node import Node
from tests.nsqd.core.slow_store import SlowStore
from tests.nsqd.net.bench import Bench, received, send_part

pytestmark = pytest.mark.process

OF_A_TURN = UNITS_OF_A_TURN // UNITS_OF_A_REQUEST  # answers
PUB = b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"


class HttpBench(Bench):
    """A reactor that speaks HTTP, over a store whose syncs complete when the test says so."""

    def __init__(self) -> None:
        super().__init__(Node(store=SlowStore))
        broker = self.node.broker
        self.topic = broker.topic("t")
        self.store = broker.store
        never, always = (lambda *_: None), (lambda *_: True)
        context = Context(broker, 1000, 5000, never, always, always, never, never, HttpPublishers())
        self.speak(partial(HttpPeer, context), HTTP_BOUNDS)


@pytest.fixture
def bench() -> HttpBench:
    return HttpBench()


def test_a_client_that_reads_no_answers_is_not_read_from(bench: HttpBench) -> None:
    client = bench.connect(PUB)
    client.setblocking(False)
    for _ in range(3000):
        bench.store.sync()
        send_part(client, PUB * 100)
        bench.turn(1)
        if not bench.connection.reading and bench.connection.backlog >= HTTP_BOUNDS.unsent:
            break
    for _ in range(5):
        bench.store.sync()
        bench.turn()
    assert not bench.connection.reading
    answer = 200  # bytes, about
    most = HTTP_BOUNDS.unsent + 3 * OF_A_TURN * answer
    assert HTTP_BOUNDS.unsent <= bench.connection.backlog < most


def test_requests_wait_while_answers_wait_for_the_log_and_all_are_answered(bench: HttpBench) -> None:
    count = 5 * OF_A_TURN + 3
    client = bench.connect(PUB * count)
    bench.turn(20)
    assert bench.topic.intake.message_count == 2 * OF_A_TURN
    assert not bench.connection.reading
    answers = b""
    client.setblocking(False)
    for _ in range(20):
        bench.store.sync()
        bench.turn(1)
        answers += received(client)[0]
    assert answers.count(b"HTTP/1.1 200 OK") == count == bench.topic.intake.message_count
    assert bench.connection.reading
