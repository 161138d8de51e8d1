"""The directories when another node has taken over the log: kills between the steps, and what a start makes of them."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from nsqd.cluster.membership.cluster_json import NAME, read_facts, write_facts
from nsqd.cluster.membership.facts import ClusterFacts
from nsqd.cluster.promotion import succession
from nsqd.cluster.promotion.diverged.note import OWN_NOTE, CopyExtent, Note, read_note
from nsqd.cluster.promotion.succession import LOG, PARTIAL, replace_log, resume_succession, succeed_failover
from nsqd.cluster.replication.directory import DIVERGED
from nsqd.cluster.replication.rejoin import Failover
from nsqd.core.broker import Broker
from nsqd.core.message.deletion import DeletionKind
from nsqd.storage.log.disk import RealDisk
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reading import LogReading
from tests.nsqd.storage.log.test_restore import start
from tests.nsqd.storage.sim_disk import SimDisk

LEADER = Epoch(101, 2, b"ownerown")
LEAST = 1 << 40


def put(disk: SimDisk, path: Path) -> None:
    path.mkdir()
    for name in disk.names():
        (path / name).write_bytes(disk.content(name))


def taken_log(path: Path, deed: Callable[[Broker], object] = lambda broker: None) -> Failover:
    """Write a log to `path` of which the leader has two messages of topic t, and the node two more and one of topic u.

    `deed`: an action of an operator at the end.
    """
    node = start(SimDisk(Random(1)))
    node.broker.topic("t").channel("c")
    node.publish(2)
    common = node.log.writer.written.position
    (own, begin), *_ = node.log.writer.all_epochs()
    node.publish(2)
    node.publish(1, "u")
    node.turn(lambda: deed(node.broker) and None)
    node.log.close()
    put(node.disk, path / LOG)
    return Failover(LEADER, "other:1", ((own.pack(), begin), (LEADER.pack(), common)), common + 500, 1 << 41)


def ends(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Return the unfinished messages of a log: spans of ordinals, by the topic's name."""
    replay = LogReading(FrozenDisk(RealDisk(path))).replay
    replay.conclude()
    found = {}
    for number, topic in replay.topics.items():
        live = replay.sequences[number].live()
        kinds, live = replay.sequences[number].kinds, replay.sequences[number].live()
        spans = [one for reader in topic.readers.values() for one in reader.referenced_spans(topic.distributed, kinds)]
        found[topic.name] = spans or [(max(one.first, topic.distributed), one.end) for one in live]
    return found


def test_the_new_log_is_in_place_and_the_old_one_a_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failover = taken_log(tmp_path)
    before = {one.name: one.read_bytes() for one in (tmp_path / LOG).iterdir()}
    made = succeed_failover(tmp_path, failover, LEAST, 0)
    copy = tmp_path / DIVERGED / made.parent.log_id.hex()
    note = read_note(copy / OWN_NOTE)
    assert note == Note(made.log_id, made.common, CopyExtent(made.parent.position, made.epochs))
    assert {one.name: one.read_bytes() for one in copy.iterdir() if one.name != OWN_NOTE} == before
    assert not (tmp_path / PARTIAL).exists()
    assert ends(copy) == {"t": [(0, 4)], "u": [(0, 1)]}
    assert ends(tmp_path / LOG) == {"t": [(2, 4)], "u": [(0, 1)]}
    assert made.messages == 3
    assert made.first_id > 1 << 41
    assert "node 2 has promoted this node's log" in caplog.text


def test_a_start_finishes_what_a_kill_interrupts(tmp_path: Path) -> None:
    for steps in range(4):
        path = tmp_path / str(steps)
        path.mkdir()
        failover = taken_log(path)
        done = succeed_in(path, failover, steps)
        resume_succession(path)
        assert not (path / PARTIAL).exists()
        if not done:  # nothing has happened: it is done again
            assert ends(path / LOG) == {"t": [(0, 4)], "u": [(0, 1)]}
            succeed_failover(path, failover, LEAST, 0)
        assert ends(path / LOG) == {"t": [(2, 4)], "u": [(0, 1)]}
        assert len(list((path / DIVERGED).iterdir())) == 1
        resume_succession(path)
        assert ends(path / LOG) == {"t": [(2, 4)], "u": [(0, 1)]}


def succeed_in(path: Path, failover: Failover, steps: int) -> bool:
    """Make the log that succeeds, and do `steps` of putting it in place. Returns True if the old one was moved."""
    copy = path.with_name(f"{path.name}-made")
    shutil.copytree(path, copy)
    succeed_failover(copy, failover, LEAST, 0)
    (copy / LOG).rename(path / PARTIAL)
    log_id = next((copy / DIVERGED).iterdir()).name
    for _ in zip(range(steps), replace_log(path, bytes.fromhex(log_id)), strict=False):
        pass
    return steps > 1


def test_what_was_half_written_is_removed(tmp_path: Path) -> None:
    failover = taken_log(tmp_path)
    (tmp_path / PARTIAL).mkdir()
    (tmp_path / PARTIAL / "00000000000000000000.0.log").write_bytes(b"half")
    succeed_failover(tmp_path, failover, LEAST, 0)
    assert ends(tmp_path / LOG) == {"t": [(2, 4)], "u": [(0, 1)]}


def test_a_log_that_is_promoted_again_succeeds_again(tmp_path: Path) -> None:
    first = succeed_failover(tmp_path, taken_log(tmp_path), LEAST, 0)
    reading = LogReading(FrozenDisk(RealDisk(tmp_path / LOG)))
    epochs = [(epoch.pack(), at) for epoch, at in reading.replay.epochs]
    again = Failover(Epoch(301, 3, b"anotherr"), "other:1", tuple(epochs), reading.log_records.end)
    second = succeed_failover(tmp_path, again, LEAST, 0)
    assert (second.parent.log_id, second.messages) == (first.log_id, 0)
    assert ends(tmp_path / LOG) == {"t": [], "u": []}
    parents = LogReading(FrozenDisk(RealDisk(tmp_path / LOG))).replay.parents
    assert list(parents) == [first.parent.log_id, second.parent.log_id]


def test_what_the_tail_deletes_is_kept_durably_before_the_old_log_is_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failover = taken_log(tmp_path, lambda broker: broker.directory.delete_channel(broker.topics["t"], "c"))
    write_facts(tmp_path, ClusterFacts(7))
    seen: list[int] = []

    def replace(path: Path, log_id: bytes) -> Iterator[None]:
        ((kept, word),) = read_facts(path).deletions
        assert (kept, word.position) == (log_id, failover.epochs[1][1])
        assert [one.kind for one in word.deletions] == [DeletionKind.CHANNEL_DELETED]
        seen.append(len(word.deletions))
        return replace_log(path, log_id)

    monkeypatch.setattr(succession, "replace_log", replace)
    succeed_failover(tmp_path, failover, LEAST, 0)
    assert seen == [1]
    assert read_facts(tmp_path).incarnation == 7


def test_a_tail_that_deletes_nothing_leaves_the_facts_as_they_are(tmp_path: Path) -> None:
    succeed_failover(tmp_path, taken_log(tmp_path), LEAST, 0)
    assert not (tmp_path / NAME).exists()


def test_if_the_leaders_part_is_unknown_everything_unfinished_is_in_the_new_log_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken_log(tmp_path)
    made = succeed_failover(tmp_path, Failover(LEADER, "", (), 0), LEAST, 0)
    assert ends(tmp_path / LOG) == {"t": [(0, 4)], "u": [(0, 1)]}
    assert made.messages == 5
    assert "node 2 leads this node's log" in caplog.text
    assert "with all 5 unfinished messages of the old one: those that the other node has, too" in caplog.text
    assert "delivers these messages" not in caplog.text
