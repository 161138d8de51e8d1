"""Idle queues are deleted between turns; each batch that deleted some wakes the reactor, which commits that."""

import trio
import trio.testing

from nsqd.tasks.queue_expiry import AT_ONCE, EVERY, delete_idle_queues


class FewQueues:
    def __init__(self, idle: int) -> None:
        self.idle = idle

    def evict_idle(self, now: int, most: int) -> int:
        gone = min(self.idle, most)
        self.idle -= gone
        return gone


async def test_all_idle_queues_are_deleted_in_batches(autojump_clock: trio.testing.MockClock) -> None:
    queues, wakes = FewQueues(2 * AT_ONCE + 1), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete_idle_queues, queues, lambda: wakes.append(queues.idle))
        await trio.sleep(EVERY / 2)
        assert wakes == []
        await trio.sleep(EVERY)
        assert wakes == [AT_ONCE + 1, 1, 0]
        queues.idle = 1  # of later
        await trio.sleep(EVERY)
        assert wakes == [AT_ONCE + 1, 1, 0, 0]
        nursery.cancel_scope.cancel()
