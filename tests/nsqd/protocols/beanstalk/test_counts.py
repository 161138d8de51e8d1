"""The counts of a tube while a message that is on disk only keeps others from becoming jobs: each is counted once."""

from nsqd.core.limits import Limits
from nsqd.core.observation.drain_status import DrainStatus, drain_statuses
from nsqd.core.reader import Counts
from nsqd.http.overview import OverviewRows
from tests.nsqd.core.node import Node
from tests.nsqd.core.slow_store import SlowStore
from tests.nsqd.protocols.beanstalk.wire import Wire, put


def test_a_job_is_counted_once_and_a_drain_does_not_end_too_early() -> None:
    node = Node(Limits(), store=SlowStore)
    store = node.store
    store.cold = True
    wire, broker = Wire(node), node.broker
    broker.topic("t").publish([b"m"], 1)
    node.turn()
    wire.ask(b"use t\r\n")
    tube = broker.tubes.made("t")
    assert tube.reading
    for _ in range(10):
        wire.peer.receive(put(b"x"), node.now)
    node.turn()

    def jobs() -> tuple[int, int]:
        look = OverviewRows()
        look.add(broker.topics["t"])
        left = DrainStatus()
        for one in drain_statuses(broker, ""):
            left = left.plus(one)
        return look.rows[0][-1], left.jobs

    assert tube.counts() == Counts(10, 0, 0, 0)
    overview, drain = jobs()
    assert overview == 10
    assert drain >= 11
    for job in list(tube.jobs):
        tube.finish(job)
    node.turn()
    assert tube.counts() == Counts(0, 0, 0, 0)
    overview, drain = jobs()
    assert overview == 0
    assert drain >= 1, "the message that is still to be read is not forgotten"
