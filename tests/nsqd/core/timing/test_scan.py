"""The queue-scan worker pool: its size, the order of a pass, when another one follows, and that nothing is late."""

from random import Random

from nsqd.core.limits import Limits
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.scan import TURN_MESSAGES, WORKER_MESSAGES, ScanPool
from tests.cases import each
from tests.nsqd.core.node import MS, SECOND, Node


class FakeQueue:
    """Something with a number of messages due at a time."""

    def __init__(self, due: int | None = None, messages: int = 1) -> None:
        self.scan_entry: tuple[int, int] | None = None
        self.due = due
        self.messages = messages
        self.scans = 0

    def scan(self, now: int, limit: int) -> int:
        self.scans += 1
        if self.due is None or self.due > now:
            return 0
        served = min(limit, self.messages)
        self.messages -= served
        if not self.messages:
            self.due = None
        return served

    def next_due(self) -> int | None:
        return self.due


def pool(selection: int = 20, workers: int = 4) -> ScanPool:
    return ScanPool(Agenda(), selection, workers, Random(1).randrange)


def filled(scan: ScanPool, queues: list[FakeQueue]) -> list[FakeQueue]:
    for queue in queues:
        scan.add(queue)
        if queue.due is not None:
            scan._agenda.schedule_scan(queue, queue.due)
    return queues


def test_due_queues_are_served_before_random_ones_and_discarded_ones_never() -> None:
    scan = pool(selection=5)
    idle = filled(scan, [FakeQueue() for _ in range(100)])
    due = filled(scan, [FakeQueue(due=10 - i) for i in range(5)])
    scan.turn(10)
    assert all(queue.scans >= 1 for queue in due)
    assert sum(queue.scans for queue in idle) <= 5
    assert scan.statistics.served == 5
    scan = pool()
    first, second = filled(scan, [FakeQueue(due=1), FakeQueue(due=1)])
    scan._agenda.cancel_scan(first)
    scan.discard(first)
    scan.turn(1)
    assert (first.scans, second.scans > 0) == (0, True)
    scan.check()


@each("idle, due, passes", [(0, 50, 4), (100, 4, 1), (10, 0, 0)])
def test_more_than_a_quarter_dirty_means_another_pass_in_the_same_turn(idle: int, due: int, passes: int) -> None:
    """50: 20 + 20 + 10 dirty, then a clean one."""
    scan = pool(selection=20)
    filled(scan, [FakeQueue() for _ in range(idle)] + [FakeQueue(due=1) for _ in range(due)])
    assert scan.next_turn() == (1 if due else None)
    scan.turn(1)
    assert (scan.statistics.served, scan.statistics.passes, scan.next_turn()) == (due, passes, None)


def test_a_queue_with_more_than_a_worker_serves_gets_another_pass_though_few_are_dirty() -> None:
    scan = pool()
    filled(scan, [FakeQueue(due=1, messages=2 * WORKER_MESSAGES), *(FakeQueue() for _ in range(19))])
    scan.turn(1)
    assert scan.statistics.served == 2 * WORKER_MESSAGES


def test_a_queue_that_serves_many_at_once_ends_the_turn_for_the_others() -> None:
    class Greedy(FakeQueue):
        def scan(self, now: int, limit: int) -> int:
            return super().scan(now, TURN_MESSAGES)

    scan = pool(workers=1)
    queues = filled(scan, [Greedy(due=1, messages=TURN_MESSAGES) for _ in range(3)])
    for turn in range(1, 4):
        scan.turn(1)
        assert (sum(queue.scans for queue in queues), scan.statistics.served) == (turn, turn * TURN_MESSAGES)
        scan.check()
    assert scan.next_turn() is None


def test_nothing_fires_early_or_more_than_100_ms_late_on_hundreds_of_channels() -> None:
    node, random = Node(Limits()), Random(4)
    due: dict[bytes, int] = {}
    seen: dict[bytes, int] = {}
    inboxes = [node.subscribe(f"t{i // 10}", f"c{i}", 2500)[1] for i in range(300)]
    for i in range(300):
        body = b"%d" % i
        due[body] = node.now + random.randrange(1, 4000) * MS
        node.broker.topic(f"t{random.randrange(30)}").intake.publish_with([body], due=due[body])
    node.turn()

    def note() -> None:
        for inbox in inboxes:
            for delivery in inbox.take():
                seen.setdefault(delivery.body, node.now)

    node.after_turn = note
    node.advance(5 * SECOND)
    assert seen.keys() == due.keys()
    assert all(0 <= seen[body] - due[body] <= 100 * MS for body in due)
