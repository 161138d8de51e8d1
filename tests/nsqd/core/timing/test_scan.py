"""The queue-scan worker pool: its size, the order of a pass, when another one follows, and that nothing is late."""

from random import Random

from nsqd.core.limits import Limits
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.scan import INTERVAL, NEVER, TURN_MESSAGES, WORKER_MESSAGES, ScanPool
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


def test_pool_size_follows_the_channels() -> None:
    scan = pool()
    queues = []
    sizes = []
    for _ in range(20):
        queues += filled(scan, [FakeQueue()])
        sizes.append(scan.statistics.workers)
    assert sizes == [1] * 7 + [2] * 4 + [3] * 4 + [4] * 5
    for queue in queues:
        scan.discard(queue)
    assert scan.statistics.workers == 1
    scan.check()


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


def test_a_slice_is_bounded_and_the_turn_too_and_each_worker_has_its_share() -> None:
    scan = pool()
    filled(scan, [FakeQueue(due=1, messages=10 * TURN_MESSAGES) for _ in range(30)])
    for turn in range(1, 4):
        scan.turn(1)
        assert turn * TURN_MESSAGES <= scan.statistics.served <= turn * (TURN_MESSAGES + 4 * WORKER_MESSAGES)
        assert scan.next_turn() == 1  # there is more: at once, after the next I/O
    scan = pool(selection=20, workers=4)
    queues = filled(scan, [FakeQueue(due=1, messages=10_000) for _ in range(16)])
    scan._pass(1)
    assert scan.statistics.served == 4 * WORKER_MESSAGES
    assert sum(queue.scans for queue in queues) == 4  # the others keep their place in the index
    scan.check()


def test_before_the_time_that_the_agenda_has_the_scan_does_nothing() -> None:
    scan = pool()
    agenda = scan._agenda
    scan.turn(1)
    assert agenda.scan_at == NEVER
    filled(scan, [FakeQueue(due=2 * INTERVAL)])
    assert agenda.scan_at == 0, "the new entry may be due at once"
    scan.turn(2)
    early = agenda.scan_at
    scan.turn(early - 1)
    assert (scan.statistics.passes, agenda.scan_at) == (0, early)
    scan.turn(early)
    assert scan.statistics.passes == 1


def test_one_hot_queue_among_idle_ones_is_not_late() -> None:
    scan = pool()
    (hot, *_) = filled(scan, [FakeQueue(due=1, messages=5000)] + [FakeQueue() for _ in range(30)])
    turns = 0
    while hot.messages:
        assert scan.next_turn() == 1  # never a pause while something is due
        scan.turn(1)
        turns += 1
    assert turns <= 5000 // TURN_MESSAGES + 1


def test_nothing_fires_early_or_more_than_100_ms_late_on_hundreds_of_channels() -> None:
    node, random = Node(Limits()), Random(4)
    due: dict[bytes, int] = {}
    seen: dict[bytes, int] = {}
    inboxes = [node.subscribe(f"t{i // 10}", f"c{i}", 2500)[1] for i in range(300)]
    for i in range(300):
        body = b"%d" % i
        due[body] = node.now + random.randrange(1, 4000) * MS
        node.broker.topic(f"t{random.randrange(30)}").intake.publish_deferred(body, due[body])
    node.turn()

    def note() -> None:
        for inbox in inboxes:
            for delivery in inbox.take():
                seen.setdefault(delivery.body, node.now)

    node.after_turn = note
    node.advance(5 * SECOND)
    assert seen.keys() == due.keys()
    assert all(0 <= seen[body] - due[body] <= 100 * MS for body in due)
