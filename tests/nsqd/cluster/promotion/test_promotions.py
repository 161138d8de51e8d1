"""A node's promoted logs: one at a time, what is refused, what fails, and what is lost to another node."""

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from nsqd.cluster.promotion.opening import Interrupted
from nsqd.cluster.promotion.promoted_log import ATTACHING, FAILED, READING, SERVING, WAITING
from nsqd.cluster.promotion.promotions import RETRY_AFTER, STEP_DOWN_AFTER, TIMER_EVERY, shares
from nsqd.cluster.replication.manifest import ReplicaDisk, read_manifest
from nsqd.cluster.replication.replica import Replica
from nsqd.core.broker import Broker
from nsqd.core.limits import Limits
from nsqd.core.message.ids import IdSource
from nsqd.core.sequence.mark import Promise
from nsqd.core.shards import Deletions
from nsqd.storage.log.clocks import NO_BOOT, NOTE, Anchor, write_note
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.opening import Extend, OpenLog, Promoted
from nsqd.storage.log.reading import LogReading
from nsqd.storage.memory import MemoryStore
from tests.cases import each
from tests.nsqd.cluster.promotion.new_leader import NewLeader, Places
from tests.nsqd.cluster.replication.test_replica_to_log import known_log, replica_of
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_disk import PowerCut, SimFile
from tests.nsqd.storage.sim_node import NODE, Clock
from tests.nsqd.storage.small_log import new_disk


def new_leader() -> tuple[NewLeader, bytes]:
    """Return a node that has a replica of a log, and the log's id."""
    disk, manifest = replica_of(known_log())
    places = Places(manifest.log_id, disk)
    return NewLeader(places, Clock(5 * SECOND, 1_800_000_100 * SECOND), Random(1), Limits()), manifest.log_id


def serving(is_clean: bool = True) -> tuple[NewLeader, bytes]:
    node, log_id = new_leader()
    node.promotions.won(log_id, 70, is_clean)
    node.run()
    return node, log_id


def again(node: NewLeader) -> NewLeader:
    node.places.restarted(False, Random(1))
    return NewLeader(node.places, node.clock, Random(1), Limits())


def later(node: NewLeader) -> None:
    node.clock.advance(RETRY_AFTER)
    node.tick()
    node.run()


def numbers(node: NewLeader) -> list[int]:
    return [epoch.number for epoch in node.announced]


def test_a_log_is_served_and_copied_from_its_directory_and_no_replica_of_it_is_kept() -> None:
    node, log_id = new_leader()
    node.promotions.won(log_id, 70)
    assert node.promotions.leads(log_id)
    assert node.promotions.has_unserved_log()
    assert log_id in node.replicas.promoted
    node.run()
    assert not node.promotions.has_unserved_log()
    (figures,) = node.promotions.figures()
    assert (figures["state"], figures["node"], figures["topics"], figures["failure"]) == (SERVING, NODE, 1, "")
    assert numbers(node) == [70]
    assert node.replicas.kept == {}
    led = node.promotions.logs[log_id]
    assert led.broker.topics["t"].channels["c"].depth == 110
    node.promotions.won(log_id, 71)  # it was claimed once more
    node.run()
    assert numbers(node) == [70]
    node.promotions.close()
    assert led.log.writer.durable.position == led.log.writer.written.position


@each("is_clean, unclean", [(True, 0), (False, 110)])
def test_what_may_come_twice_after_a_failover_is_counted_once(is_clean: bool, unclean: int) -> None:
    node, log_id = serving(is_clean)
    assert node.promotions.failovers.last_seconds is not None
    assert node.promotions.failovers.possible_duplicates["unclean"] == unclean
    node.promotions.begin_again(log_id, 80)
    node.run()
    assert numbers(node) == [70, 80]
    assert node.promotions.failovers.possible_duplicates["unclean"] == unclean


def test_replies_that_wait_for_a_lost_log_wait_in_vain() -> None:
    node, log_id = serving()
    opened = node.promotions.logs[log_id].log
    marks = [
        opened.writer.written,
        opened.writer.durable,
        opened.store.copies.copied(2, True),
        opened.store.copies.leaving(2, True),
    ]
    assert not any(Promise(mark, mark.position + 1).is_broken for mark in marks)
    node.promotions.lose(log_id)
    node.run()
    assert all(Promise(mark, mark.position + 1).is_broken for mark in marks)


def test_a_log_that_was_made_here_is_served_and_what_it_had_delivered_is_counted_once() -> None:
    node, log_id = serving()
    node.promotions.close()
    next_life = again(node)
    for _ in range(2):
        next_life.promotions.serve_salvaged(log_id)
        next_life.run()
    (figures,) = next_life.promotions.figures()
    assert (figures["state"], figures["node"]) == (SERVING, NODE)
    led = next_life.promotions.logs[log_id]
    next_life.promotions.begin_again(log_id, 80)
    next_life.run()
    failovers = next_life.promotions.failovers
    assert failovers.possible_duplicates == Counter(salvaged=led.delivered)
    assert failovers.last_seconds is None
    assert numbers(next_life) == [71, 80]


def test_a_log_that_was_made_here_and_is_closed_is_not_served() -> None:
    node, log_id = new_leader()
    node.promotions.host.is_closed = lambda one: one == log_id
    node.promotions.serve_salvaged(log_id)
    assert node.promotions.logs == {}


def test_a_start_gives_back_no_message_ids_and_announces_the_logs_to_open() -> None:
    node, log_id = serving()
    node.promotions.close()
    next_life = again(node)
    next_life.promotions.reopen()
    next_life.run()
    assert [(epoch.number, epoch.node) for epoch in next_life.announced] == [(71, 1)]
    led = next_life.promotions.logs[log_id]
    assert led.log.start_results.lease == led.log.start_results.leased, "ids were given back"


def test_a_replica_in_which_replay_cannot_begin_stays_a_replica() -> None:
    log = known_log()
    disk, manifest = replica_of(log, len(log.log.tidying.segments) - 1)
    node = NewLeader(Places(manifest.log_id, disk), Clock(5 * SECOND, 1_800_000_100 * SECOND), Random(1), Limits())
    node.promotions.won(manifest.log_id, 70)
    node.run()
    assert not node.announced
    assert not node.promotions.leads(manifest.log_id)
    assert node.replicas.kept[manifest.log_id].replica is not None


def test_a_log_of_which_there_is_no_replica_is_not_promoted() -> None:
    node, _ = new_leader()
    node.promotions.won(bytes(16), 70)
    assert node.promotions.logs == {}


def test_a_replica_that_fails_is_not_promoted() -> None:
    node, log_id = new_leader()
    node.replicas.open_all()
    node.places.disk.fail("open", 1, errno.EIO)
    node.promotions.won(log_id, 70)
    node.run()
    assert not node.promotions.leads(log_id)
    assert node.replicas.kept[log_id].failure


@each("operation", ["sync", "append", "create", "rename", "sync_directory", "remove", "take"])
@each("number", range(1, 10))
def test_after_a_failure_a_log_is_a_replica_or_is_opened_later(operation: str, number: int) -> None:
    node, log_id = new_leader()
    node.places.disk.fail(operation, number, errno.EIO)
    node.promotions.won(log_id, 70)
    node.run()
    if node.places.replica is not None:
        assert not node.promotions.leads(log_id)
        node.clock.advance(RETRY_AFTER)
        node.replicas.tick(node.clock.now)  # a replica that has failed is opened again
        node.run()
        node.promotions.won(log_id, 71)
    elif node.promotions.logs[log_id].state == FAILED:
        assert not node.announced
        node.clock.advance(RETRY_AFTER)
        node.tick()
    node.run()
    assert node.promotions.logs[log_id].state == SERVING
    assert node.announced[-1].number >= 70


def test_a_promotion_that_is_called_off_and_fails_when_its_epoch_is_durable_is_finished_later() -> None:
    node, log_id = new_leader()
    node.places.disk.fail("sync_directory", 8, errno.EIO)  # when the manifest is gone
    node.promotions.won(log_id, 70)
    node.run()
    assert node.places.replica is None
    node.promotions.called_off(log_id)
    for _ in range(2):
        later(node)
    assert node.promotions.logs[log_id].state == SERVING
    assert numbers(node) == [71]


def test_one_log_is_opened_at_a_time_and_a_promotion_that_waits_is_called_off() -> None:
    node, log_id = new_leader()
    node.promotions.won(log_id, 70)
    node.replicas.put_back(bytes(16), 3)
    node.promotions.won(bytes(16), 71)
    assert [one.state for one in node.promotions.logs.values()] == [READING, WAITING]
    node.promotions.called_off(bytes(16))
    assert list(node.promotions.logs) == [log_id]
    assert not node.promotions.leads(bytes(16))


@each("steps", [0, 1, 2, 3, 100])
def test_what_another_node_leads_is_kept_as_a_diverged_copy_whenever_that_is_known(steps: int) -> None:
    node, log_id = new_leader()
    node.promotions.won(log_id, 70)
    for _ in range(steps):
        node.work.step(node.random)
    node.promotions.lose(log_id)
    node.promotions.lose(log_id)
    node.run()
    assert node.promotions.logs == {}
    assert node.directory.aside if node.places.replica is None else log_id in node.replicas.kept
    assert node.places.promoted is None


def test_a_log_that_another_node_has_promoted_meanwhile_is_not_opened_at_a_start() -> None:
    node, log_id = serving()
    node.promotions.close()
    node = again(node)
    asked = []

    def is_lost(log_id: bytes, epochs: Sequence[Epoch], followers: Followers) -> bool:
        asked.append((log_id, max(epochs)[:2], followers))
        return True

    node.promotions.host.is_lost = is_lost
    node.promotions.reopen()
    node.run()
    assert asked == [(log_id, (70, 1), Followers())]
    assert (len(node.directory.aside), node.promotions.logs) == (1, {})
    assert not node.announced


def test_a_promotion_that_is_called_off_before_its_epoch_is_durable_leaves_the_replica_as_it_was() -> None:
    node, log_id = new_leader()
    opened = node.promotions.host.open
    reads: list[Callable[[], None]] = []

    def back_while_it_is_read(disk: Disk, promoted: Promoted, extend: Extend | None) -> OpenLog:
        node.promotions.called_off(log_id)
        reads.append(promoted.interrupt)
        return opened(disk, promoted, extend)

    node.promotions.host.open = back_while_it_is_read
    node.promotions.won(log_id, 70)
    node.run()
    assert len(reads) == 1
    assert not node.announced
    assert node.promotions.logs == {}
    kept = node.replicas.kept[log_id]
    assert (kept.replica.end > 0, kept.replica.manifest.won, kept.node) == (True, 0, NODE)
    node.promotions.host.open = opened
    node.promotions.won(log_id, 170)  # the leader is lost again
    node.run()
    assert numbers(node) == [170]


def test_a_promotion_that_is_called_off_when_its_epoch_is_durable_goes_on() -> None:
    node, log_id = new_leader()
    opened = node.promotions.host.open

    def back_when_it_was_read(disk: Disk, promoted: Promoted, extend: Extend | None) -> OpenLog:
        log = opened(disk, promoted, extend)
        sync = log.writer.sync

        def synced() -> bool:
            is_synced = sync()
            node.promotions.called_off(log_id)
            return is_synced

        log.writer.sync = synced
        return log

    node.promotions.host.open = back_when_it_was_read
    node.promotions.won(log_id, 70)
    node.run()
    assert numbers(node) == [70]
    node.promotions.called_off(log_id)
    node.run()
    assert node.promotions.logs[log_id].state == SERVING


@each("cut_in", range(0, 30, 3))
def test_a_kill_before_the_epoch_is_announced_leaves_a_replica_for_the_next_run(cut_in: int) -> None:
    node, log_id = new_leader()
    node.places.disk.cut_in = cut_in
    node.promotions.won(log_id, 70)
    try:
        node.run()
    except PowerCut:
        assert not node.announced
    else:
        return  # it was over before
    node = again(node)
    has_begun = node.places.replica is None and read_manifest(node.places.promoted) is None  # the epoch is durable
    node.replicas.open_all()
    node.promotions.reopen()
    node.run()
    has_outlived = "an election has outlived the run of its node"
    assert bool(node.promotions.logs) is bool(node.announced) is has_begun, has_outlived
    if has_begun:
        assert node.promotions.logs[log_id].state == SERVING
        return
    assert node.places.replica is not None
    replica = node.replicas.kept[log_id].replica
    assert not any(epoch.node == 1 for epoch, _ in replica.manifest.epochs)


@each("steps", range(5))
def test_a_node_that_stops_opens_nothing_more_and_closes_what_is_open(steps: int) -> None:
    node, log_id = new_leader()
    node.promotions.won(log_id, 70)
    for _ in range(steps):
        node.work.step(node.random)
    node.promotions.stop()
    node.run()
    announced = list(node.announced)
    node.promotions.close()
    assert all(led.log is None or is_closed(led.log) for led in node.promotions.logs.values())
    assert node.announced == announced
    node = again(node)
    node.promotions.reopen()
    node.run()
    assert (log_id in node.promotions.logs) == bool(announced)


def is_closed(opened: OpenLog) -> bool:
    file = opened.writer._file
    return isinstance(file, SimFile) and file.closed


def test_reading_and_filling_end_when_the_node_stops() -> None:
    node, log_id = new_leader()
    node.promotions.won(log_id, 70)
    opened = node.promotions.host.open
    ended: list[str] = []

    def stop_in_the_midst(disk: Disk, promoted: Promoted, extend: Extend | None) -> OpenLog:
        node.promotions.stop()
        try:
            return opened(disk, promoted, extend)
        except Interrupted:
            ended.append("reading")
            raise

    node.promotions.host.open = stop_in_the_midst
    node.run()
    assert ended == ["reading"]
    assert not node.announced


def test_a_log_whose_closing_was_cancelled_by_the_stop_is_closed_nevertheless() -> None:
    node, log_id = serving()
    opened = node.promotions.logs[log_id].log
    assert opened is not None
    node.promotions.lose(log_id)  # what it has asked for is never done
    node.promotions.stop()
    node.promotions.close()
    assert is_closed(opened)


def test_files_that_are_no_log_are_tried_again() -> None:
    disk = new_disk()
    places = Places(bytes(16), disk)
    places.promoted, places.replica = places.replica, None
    node = NewLeader(places, Clock(5 * SECOND, 1_800_000_100 * SECOND), Random(1), Limits())
    node.promotions.reopen()
    node.run()
    assert node.promotions.figures()[0]["failure"]
    assert node.promotions.figures()[0]["state"] == FAILED


def test_a_log_is_opened_again_above_a_later_run_of_this_node_that_others_know() -> None:
    node, log_id = serving()
    node.promotions.begin_again(log_id, 75)
    node.run()
    assert (node.announced[-1].number, node.promotions.logs[log_id].state) == (75, SERVING)
    assert node.directory.aside == []


@each("steps", range(4))
def test_a_later_run_of_this_node_is_noted_while_a_log_is_opened(steps: int) -> None:
    node, log_id = new_leader()
    node.promotions.won(log_id, 70)
    for _ in range(steps):
        node.work.step(Random(1))
    node.promotions.begin_again(log_id, 75)
    node.run()
    assert node.announced[-1].number >= 75
    assert node.promotions.logs[log_id].state == SERVING


def test_memory_is_divided() -> None:
    assert shares(100, [0]) == [100]
    assert shares(100, [100]) == [100]
    assert shares(100, [0, 0]) == [100, 100], "no log uses it, so each may use all"
    assert shares(100, [100, 0]) == [100, 50]
    assert shares(100, [80, 60]) == [50, 50]
    assert shares(90, [30, 10, 0]) == [80, 60, 50]


def test_a_broker_is_attached_in_slices_and_detached_when_the_log_is_lost() -> None:
    node, log_id = new_leader()
    attaching, detaching = [True, True, False], [True, True, False]  # whether more slices follow
    brokers: list[Broker] = []
    gone: list[Broker] = []

    def attach(broker: Broker, deletions: Deletions | None) -> Callable[[], bool]:
        brokers.append(broker)
        return lambda: attaching.pop(0)

    def detach(broker: Broker) -> Callable[[], bool]:
        gone.append(broker)
        return lambda: detaching.pop(0)

    node.promotions.host.attach, node.promotions.host.detach = attach, detach
    node.promotions.won(log_id, 70)
    while not brokers:
        node.work.step(node.random)
    led = node.promotions.logs[log_id]
    assert (led.state, len(attaching)) == (ATTACHING, 2), "one slice in a turn"
    node.run()
    assert (led.state, attaching) == (SERVING, [])
    log = led.log
    node.promotions.lose(log_id)
    node.promotions.lose(log_id)
    assert (gone, len(detaching), is_closed(log)) == (brokers, 2, False), "one slice in a turn"
    node.run()
    assert (gone, detaching, is_closed(log)) == (brokers, [], True)
    assert node.promotions.logs == {}


def test_what_is_deleted_is_noted_until_the_attachment_and_between_a_detachment_and_the_next() -> None:
    node, log_id = new_leader()
    store, ids = MemoryStore(lambda ceiling: True), IdSource(1, 1, lambda ceiling: True)
    home = Broker(Limits(), store, ids, Random(1).randrange)
    attached: list[Deletions | None] = []

    def attach(broker: Broker, deletions: Deletions | None) -> Callable[[], bool]:
        attached.append(deletions)
        deletions.end()
        return lambda: False

    parts = node.promotions.host
    parts.attach, parts.watch = attach, lambda: Deletions(home)
    noted = home.directory.on_deleted
    node.promotions.won(log_id, 70)
    assert not noted, "this node does not own it yet"
    while not node.announced:
        node.work.step(node.random)
    assert len(noted) == 1
    node.run()
    assert (len(noted), len(attached)) == (0, 1)
    node.promotions.begin_again(log_id, 75)
    assert len(noted) == 1
    node.run()
    assert (len(noted), len(attached)) == (0, 2)
    node.promotions.lose(log_id)
    node.run()
    assert not noted


def write_something(node: NewLeader, log_id: bytes) -> None:
    """Record something in a promoted log, and let the clock sync it."""
    led = node.promotions.logs[log_id]
    led.broker.begin(node.clock.now, node.clock.wall)
    channel = led.broker.topics["t"].channels["c"]
    led.broker.pause(channel, not channel.paused)
    led.broker.commit()
    syncer = led.log.syncer
    for _ in range(3):
        node.clock.advance(TIMER_EVERY)
        node.tick()
        while syncer.job is not None:
            syncer.step()


def with_words(node: NewLeader) -> list[str]:
    """Record the reports of a node about its promoted log."""
    words: list[str] = []
    parts = node.promotions.host
    parts.step_down, parts.resume = lambda log_id: words.append("gave up"), lambda log_id: words.append("leads")
    return words


def test_a_promoted_log_whose_sync_fails_steps_down_and_is_opened_again_later() -> None:
    node, log_id = new_leader()
    words = with_words(node)
    node.promotions.won(log_id, 70)
    node.run()
    node.places.disk.fail("sync", 1, errno.EIO)
    write_something(node, log_id)
    led = node.promotions.logs[log_id]
    opened = led.log
    node.run()
    assert (led.state, words, led.broker, led.log) == (FAILED, ["gave up"], None, None)
    assert opened is None or is_closed(opened)
    later(node)
    assert numbers(node) == [70, 71]
    assert (led.state, led.has_stepped_down) == (SERVING, False)
    write_something(node, log_id)
    assert (led.state, words) == (SERVING, ["gave up"])


def test_a_log_that_was_given_up_is_kept_as_a_diverged_copy_when_another_node_has_promoted_it() -> None:
    node, log_id = serving()
    node.places.disk.fail("sync", 1, errno.EIO)
    write_something(node, log_id)
    node.promotions.lose(log_id)
    node.run()
    assert (node.promotions.logs, len(node.directory.aside)) == ({}, 1)


def test_a_promoted_log_that_cannot_be_written_for_long_may_be_taken_over_and_goes_on_meanwhile() -> None:
    node, log_id = new_leader()
    words = with_words(node)
    node.promotions.won(log_id, 70)
    node.run()
    disk, led = node.places.disk, node.promotions.logs[log_id]
    disk.capacity = 0
    write_something(node, log_id)
    assert (led.log.writer.failure != "", words) == (True, []), "it may be over soon"
    node.clock.advance(STEP_DOWN_AFTER)
    write_something(node, log_id)
    write_something(node, log_id)
    assert (led.state, words) == (SERVING, ["gave up"])
    disk.capacity = None
    write_something(node, log_id)
    assert (led.state, words) == (SERVING, ["gave up", "leads"])
    disk.capacity = 0
    write_something(node, log_id)
    assert words == ["gave up", "leads"]


def test_records_without_a_waiting_client_are_synced_by_the_clock() -> None:
    node, log_id = serving()
    led = node.promotions.logs[log_id]
    led.broker.begin(node.clock.now, node.clock.wall)
    led.broker.topics["t"].channels["c"].empty()
    led.broker.commit()
    writer, syncer = led.log.writer, led.log.syncer
    assert writer.durable.position < writer.written.position
    for _ in range(3):
        node.clock.advance(TIMER_EVERY)
        node.tick()
        while syncer.job is not None:
            syncer.step()
    assert writer.durable.position == writer.written.position


def test_the_memory_of_all_logs_is_shared_when_one_is_opened() -> None:
    node, log_id = new_leader()
    node.own_cache.cached_bytes = 1 << 20
    node.promotions.won(log_id, 70)
    node.run()
    led = node.promotions.logs[log_id]
    assert (node.own_cache.budget, led.log.cache.budget) == (1 << 20, 1 << 19)


@each("is_kept", [False, True])
def test_the_time_of_a_log_goes_on_from_what_its_follower_noted(is_kept: bool) -> None:
    node, log_id = new_leader()
    node.clock.wall += 3600 * SECOND  # the clocks of the two machines differ
    disk = node.places.disk
    last = LogReading(ReplicaDisk(disk.kill(), read_manifest(disk))).replay.last
    note = Anchor(last + 5 * SECOND, node.clock.wall - SECOND, 0, NO_BOOT)
    if is_kept:  # by an earlier run
        write_note(disk, note)
        Replica(disk, log_id, NODE).close()
    else:
        node.promotions.host.noted = {log_id: note}.get
    node.promotions.won(log_id, 70)
    node.run()
    led = node.promotions.logs[log_id]
    assert led.log.clock.now() == last + 6 * SECOND
    assert NOTE not in disk.names(), "the log has an anchor of this machine"
