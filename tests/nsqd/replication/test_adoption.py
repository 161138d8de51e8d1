"""A node's adopted logs: one at a time, what is refused, what fails, and what is lost to another node."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from nsqd.core.broker import Broker
from nsqd.core.limits import Limits
from nsqd.replication.adoption import ATTACHING, FAILED, READING, RETRY_AFTER, SERVING, TIMER_EVERY, WAITING, shares
from nsqd.storage.mirror.adopting import name_files
from nsqd.storage.mirror.manifest import Manifest, write_manifest
from tests.nsqd.core.node import SECOND
from tests.nsqd.replication.adopting_run import Adopter, Places
from tests.nsqd.storage.mirror.test_adopting import log_with_checkpoints, mirror_of
from tests.nsqd.storage.sim_node import NODE, Clock, SteppedSyncer
from tests.nsqd.storage.small_log import new_disk


def adopter() -> tuple[Adopter, bytes]:
    """Return a node that has a mirror of a log, and the log's id."""
    disk, manifest = mirror_of(log_with_checkpoints())
    places = Places(manifest.log_id, disk)
    return Adopter(places, Clock(5 * SECOND, 1_800_000_100 * SECOND), Random(1), Limits()), manifest.log_id


def test_a_log_is_served_and_copied_from_its_directory_and_no_mirror_of_it_is_kept() -> None:
    node, log_id = adopter()
    node.adoptions.adopt(log_id, 70)
    assert node.adoptions.owns(log_id)
    assert node.mirrors.is_taken_over(log_id)
    node.run()
    (figures,) = node.adoptions.figures()
    assert (figures["state"], figures["node"], figures["topics"], figures["failure"]) == (SERVING, NODE, 1, "")
    assert [epoch.number for epoch in node.announced] == [70]
    assert node.mirrors.kept == {}
    owned = node.adoptions.logs[log_id]
    assert owned.broker is not None
    assert owned.broker.topics["t"].channels["c"].depth == 110
    node.adoptions.adopt(log_id, 71)  # it was claimed once more
    node.run()
    assert [epoch.number for epoch in node.announced] == [70]
    node.adoptions.close()
    assert owned.log is not None
    assert owned.log.writer.durable.position == owned.log.writer.written.position


def test_a_start_gives_back_no_message_ids_and_tells_which_logs_it_will_open() -> None:
    node, log_id = adopter()
    node.adoptions.adopt(log_id, 70)
    node.run()
    node.adoptions.close()
    node.places.restarted(False, Random(1))
    again = Adopter(node.places, node.clock, Random(1), Limits())
    again.adoptions.reopen()
    again.run()
    assert [(epoch.number, epoch.node) for epoch in again.announced] == [(71, 1)]
    owned = again.adoptions.logs[log_id]
    assert owned.log is not None
    assert owned.log.start_results.lease == owned.log.start_results.leased, "ids were given back"


def test_a_mirror_in_which_replay_cannot_begin_stays_a_mirror() -> None:
    log = log_with_checkpoints()
    disk, manifest = mirror_of(log, len(log.log.tidying.segments) - 1)
    node = Adopter(Places(manifest.log_id, disk), Clock(5 * SECOND, 1_800_000_100 * SECOND), Random(1), Limits())
    node.adoptions.adopt(manifest.log_id, 70)
    node.run()
    assert not node.announced
    assert not node.adoptions.owns(manifest.log_id)
    assert node.mirrors.kept[manifest.log_id].mirror is not None


def test_a_log_of_which_there_is_no_mirror_is_not_adopted() -> None:
    node, _ = adopter()
    node.adoptions.adopt(bytes(16), 70)
    assert node.adoptions.logs == {}


def test_a_mirror_that_fails_is_not_adopted() -> None:
    node, log_id = adopter()
    node.mirrors.open_all()
    node.places.disk.fail("open", 1, errno.EIO)
    node.adoptions.adopt(log_id, 70)
    node.run()
    assert not node.adoptions.owns(log_id)
    assert node.mirrors.kept[log_id].failure


@pytest.mark.parametrize("operation", ["sync", "append", "create", "rename", "sync_directory", "remove", "take"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_after_a_failure_a_log_is_a_mirror_or_is_opened_later(operation: str, number: int) -> None:
    node, log_id = adopter()
    node.places.disk.fail(operation, number, errno.EIO)
    node.adoptions.adopt(log_id, 70)
    node.run()
    if node.places.mirror is not None:
        assert not node.adoptions.owns(log_id)
        node.clock.advance(RETRY_AFTER)
        node.mirrors.tick(node.clock.now)  # a mirror that has failed is opened again
        node.run()
        node.adoptions.adopt(log_id, 71)
    elif node.adoptions.logs[log_id].state == FAILED:
        assert not node.announced
        node.clock.advance(RETRY_AFTER)
        node.adoptions.tick(node.clock.now)
    node.run()
    assert node.adoptions.logs[log_id].state == SERVING
    assert node.announced[-1].number >= 70


def test_one_log_is_opened_at_a_time() -> None:
    node, log_id = adopter()
    node.adoptions.adopt(log_id, 70)
    node.mirrors.put_back(bytes(16), 3)
    node.adoptions.adopt(bytes(16), 71)
    assert [one.state for one in node.adoptions.logs.values()] == [READING, WAITING]


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 100])
def test_what_another_node_owns_is_set_aside_whenever_that_is_known(steps: int) -> None:
    node, log_id = adopter()
    node.adoptions.adopt(log_id, 70)
    for _ in range(steps):
        node.work.step(node.random)
    node.adoptions.lose(log_id)
    node.adoptions.lose(log_id)
    node.run()
    assert node.adoptions.logs == {}
    assert node.directory.aside if node.places.mirror is None else log_id in node.mirrors.kept
    assert node.places.adopted is None


def test_a_log_that_another_node_has_adopted_meanwhile_is_not_opened_at_a_start() -> None:
    node, log_id = adopter()
    node.places.adopted, node.places.mirror = node.places.mirror, None
    asked = []
    node.adoptions.parts.is_lost = lambda log_id, facts: not asked.append((log_id, facts.node))
    node.adoptions.reopen()
    node.run()
    assert asked == [(log_id, NODE)]
    assert len(node.directory.aside) == 1
    assert node.adoptions.logs == {}
    assert not node.announced


def test_files_that_are_no_log_are_tried_again() -> None:
    disk = new_disk()
    write_manifest(disk, Manifest(bytes(16), NODE, won=3))
    places = Places(bytes(16), disk)
    places.adopted, places.mirror = places.mirror, None
    node = Adopter(places, Clock(5 * SECOND, 1_800_000_100 * SECOND), Random(1), Limits())
    node.adoptions.reopen()
    node.run()
    assert node.adoptions.figures()[0]["failure"]
    assert name_files(disk) is not None, "nothing was removed"


def test_a_log_is_opened_again_above_a_later_run_of_this_node_that_others_know() -> None:
    node, log_id = adopter()
    node.adoptions.adopt(log_id, 70)
    node.run()
    node.adoptions.begin_again(log_id, 75)
    node.run()
    assert node.announced[-1].number == 75
    assert node.adoptions.logs[log_id].state == SERVING
    assert node.directory.aside == []


@pytest.mark.parametrize("steps", range(4))
def test_a_later_run_of_this_node_is_noted_while_a_log_is_opened(steps: int) -> None:
    node, log_id = adopter()
    node.adoptions.adopt(log_id, 70)
    for _ in range(steps):
        node.work.step(Random(1))
    node.adoptions.begin_again(log_id, 75)
    node.run()
    assert node.announced[-1].number >= 75
    assert node.adoptions.logs[log_id].state == SERVING


def test_memory_is_divided() -> None:
    assert shares(100, [0]) == [100]
    assert shares(100, [100]) == [100]
    assert shares(100, [0, 0]) == [100, 100], "nobody uses it, so each may use all"
    assert shares(100, [100, 0]) == [100, 50]
    assert shares(100, [80, 60]) == [50, 50]
    assert shares(90, [30, 10, 0]) == [80, 60, 50]


def test_a_broker_is_attached_in_slices_and_detached_when_the_log_is_lost() -> None:
    node, log_id = adopter()
    left = [3]
    brokers: list[Broker] = []

    def attach(broker: Broker) -> Callable[[], bool]:
        brokers.append(broker)

        def attach_some() -> bool:
            left[0] -= 1
            return left[0] > 0

        return attach_some

    gone: list[Broker] = []
    node.adoptions.parts.attach, node.adoptions.parts.detach = attach, gone.append
    node.adoptions.adopt(log_id, 70)
    while not brokers:
        node.work.step(node.random)
    owned = node.adoptions.logs[log_id]
    assert (owned.state, owned.is_attached, left) == (ATTACHING, False, [2]), "one slice in a turn"
    node.run()
    assert (owned.state, owned.is_attached, left) == (SERVING, True, [0])
    node.adoptions.lose(log_id)
    node.run()
    assert gone == brokers


def test_what_nobody_waits_for_is_synced_by_the_clock() -> None:
    node, log_id = adopter()
    node.adoptions.adopt(log_id, 70)
    node.run()
    owned = node.adoptions.logs[log_id]
    assert owned.broker is not None
    assert owned.log is not None
    owned.broker.begin(node.clock.now, node.clock.wall)
    owned.broker.topics["t"].channels["c"].empty()
    owned.broker.commit()
    writer, syncer = owned.log.writer, owned.log.syncer
    assert writer.durable.position < writer.written.position
    for _ in range(3):
        node.clock.advance(TIMER_EVERY)
        node.adoptions.tick(node.clock.now)
        assert isinstance(syncer, SteppedSyncer)
        while syncer.job is not None:
            syncer.step()
    assert writer.durable.position == writer.written.position


def test_the_memory_of_all_logs_is_shared_when_one_is_opened() -> None:
    node, log_id = adopter()
    node.own_cache.cached_bytes = 1 << 20
    node.adoptions.adopt(log_id, 70)
    node.run()
    owned = node.adoptions.logs[log_id]
    assert owned.log is not None
    assert (node.own_cache.budget, owned.log.cache.budget) == (1 << 20, 1 << 19)
