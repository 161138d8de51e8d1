"""One replica over a simulated disk: bytes are appended, written apart, made durable and removed, and a start reads them."""

import errno
import json
import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.cluster.replication import replica as replica_module
from nsqd.cluster.replication.manifest import (
    NAME,
    Manifest,
    ManifestError,
    ReplicaDisk,
    ReplicaFile,
    read_manifest,
    write_manifest,
)
from nsqd.cluster.replication.replica import Replica, ReplicaError
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.records import HEADER_SIZE, VERSION, SegmentHeader, decode, encode
from shared.sealed_json import seal
from tests.cases import each
from tests.effort import tries
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.small_log import LOG_ID, new_disk

NODE = 7
FIRST, SECOND = Epoch(1, NODE, b"first   "), Epoch(2, NODE, b"second  ")


class Log:
    """A log to be copied: its bytes, by the segments' bases."""

    def __init__(self) -> None:
        self.files: dict[int, bytes] = {}
        self.end = 0
        self.epoch = FIRST
        self._seed = 0

    def begin(self, generation: int = 0) -> bytes:
        """Begin a segment. Returns its header."""
        header = SegmentHeader(NODE, generation, LOG_ID, self.end, epoch=self.epoch)
        self._seed = header.seed
        self.files[self.end] = header.encode()
        return self.files[self.end]

    def write(self, *contents: bytes) -> tuple[int, int, bytes]:
        """Write records. Returns what `Replica.append` takes."""
        base = max(self.files)
        at = start = len(self.files[base])
        data = b""
        for content in contents:
            record = b"".join(encode(self._seed, at, 1, content))
            data, at = data + record, at + len(record)
        self.files[base] += data
        self.end += at - start
        return base, start, data


def opened(disk: SimDisk, trusted: int | None = None) -> Replica:
    return Replica(disk, LOG_ID, NODE, trusted)


def new_replica(disk: SimDisk) -> tuple[Log, Replica]:
    """Return a log and its replica, which begins."""
    log, replica = Log(), opened(disk)
    replica.resume([(FIRST, 0)])
    replica.begin_segment(log.begin())
    return log, replica


def sync(replica: Replica) -> None:
    job = replica.sync_job()
    job.run()
    replica.synced(job)


def begun(*contents: bytes) -> tuple[Log, Replica, SimDisk]:
    """Return a log with some records, its replica, and the replica's disk."""
    log, replica = new_replica(disk := new_disk())
    replica.append(*log.write(*contents))
    return log, replica, disk


def synced(*contents: bytes) -> tuple[Log, Replica, SimDisk]:
    log, replica, disk = begun(*contents)
    sync(replica)
    return log, replica, disk


def begin(log: Log, replica: Replica, content: bytes) -> None:
    replica.begin_segment(log.begin())
    replica.append(*log.write(content))


def check(log: Log, disk: SimDisk, replica: Replica) -> None:
    """Assert that the replica holds the log up to its end, and that its end is that of a record."""
    files = replica.manifest.files
    assert [file.base for file in files] == [base for base in log.files if base <= replica.end][: len(files)]
    for file in files:
        content = disk.content(file.name)
        assert content == log.files[file.base][: len(content)]
        at, seed = HEADER_SIZE, SegmentHeader(NODE, 0, LOG_ID, file.base, epoch=log.epoch).seed
        while at < len(content):
            at = decode(content, at, seed)
            assert at, "the replica ends within a record"
    if files:
        assert files[-1].base + disk.size(files[-1].name) - HEADER_SIZE == replica.end
    assert sorted(disk.names()) == sorted([NAME, *(file.name for file in files)])


def test_what_is_appended_is_durable_after_a_sync() -> None:
    log, replica, disk = begun(b"one", b"two")
    assert (replica.end, replica.durable) == (log.end, 0)
    sync(replica)
    assert replica.durable == log.end
    assert replica.sync_job() is None
    check(log, disk, replica)


def test_after_a_failed_sync_only_what_was_durable_before_is_left() -> None:
    log, replica, disk = synced(b"one")
    durable = replica.durable
    replica.append(*log.write(b"two"))
    begin(log, replica, b"three")
    disk.fail("sync", 1, errno.EIO)
    with pytest.raises(OSError):
        sync(replica)
    replica.close()
    again = opened(disk, trusted=replica.durable)
    assert again.end == again.durable == durable
    check(log, disk, again)


def test_after_a_failed_sync_not_even_the_header_of_a_segment_behind_it_is_trusted() -> None:
    log, replica, disk = synced(b"one")
    begin(log, replica, b"two")
    replica.close()
    again = opened(disk, trusted=replica.durable)
    assert [file.base for file in again.manifest.files] == [0]


def test_a_failed_sync_of_the_first_bytes_leaves_an_empty_replica_that_can_go_on() -> None:
    log, replica, disk = begun(b"one")
    replica.close()
    again = opened(disk, trusted=0)
    assert again.end == 0
    again.resume([(FIRST, 0)])
    again.begin_segment(log.files[0][:HEADER_SIZE])
    again.append(0, HEADER_SIZE, log.files[0][HEADER_SIZE:])
    check(log, disk, again)


def test_a_file_that_is_complete_while_it_is_synced_stays_to_be_synced() -> None:
    """The job covers the beginning of the file; its end came while the job ran, and the next segment began."""
    log, replica, disk = begun(b"one")
    job = replica.sync_job()
    job.run()
    replica.append(*log.write(b"two"))
    replica.begin_segment(log.begin())
    replica.synced(job)
    replica.append(*log.write(b"three"))
    sync(replica)
    for seed in range(20):
        assert opened(disk.crash(Random(seed))).end == log.end


def test_a_segment_that_begins_while_the_mark_is_due_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "MARK_EVERY", 1)
    log, replica, disk = begun(b"one")
    job = replica.sync_job()
    begin(log, replica, b"two")
    job.run()
    assert opened(disk.kill()).end == log.end
    replica.synced(job)
    assert replica.manifest.mark == job.position
    assert read_manifest(disk) == replica.manifest
    sync(replica)
    assert opened(disk.crash(Random(1))).end == log.end


def resync_from(log: Log, replica: Replica, first: int = 0) -> None:
    """Write the log apart from the replica, from the segment at `first` on."""
    replica.resync(first, [(log.epoch, 0)])
    for base in [base for base in log.files if base >= first]:
        replica.begin_segment(log.files[base][:HEADER_SIZE])
        if log.files[base][HEADER_SIZE:]:
            replica.append(base, HEADER_SIZE, log.files[base][HEADER_SIZE:])


def two_segments() -> Log:
    log = Log()
    log.begin()
    log.write(b"one", b"two")
    log.begin()
    log.write(b"three")
    return log


def test_what_is_written_aside_is_nothing_until_it_is_switched_and_synced() -> None:
    log, disk = two_segments(), new_disk()
    replica = opened(disk)
    resync_from(log, replica)
    assert (replica.end, replica.is_resyncing) == (0, True)
    sync(replica)  # a file that is complete
    assert (replica.end, replica.durable) == (0, 0)
    assert opened(disk.kill()).end == 0
    replica.switch(log.end)
    assert replica.end == 0
    sync(replica)
    assert (replica.end, replica.durable, replica.is_resyncing) == (log.end, log.end, False)
    check(log, disk, replica)
    for seed in range(20):
        again = opened(crashed := disk.crash(Random(seed)))
        assert again.end == log.end
        check(log, crashed, again)
    replica.append(*log.write(b"four"))
    check(log, disk, replica)


def test_a_power_cut_during_a_switch_leaves_the_replica_before_it_or_after_it() -> None:
    ends = set()
    for cut in range(12):
        log, replica, disk = synced(b"one")
        log.write(b"two")
        resync_from(log, replica)
        replica.switch(log.end)
        disk.cut_in = cut
        try:
            sync(replica)
        except PowerCut:
            for seed in range(10):
                again = opened(crashed := disk.crash(Random(seed)))
                check(log, crashed, again)
                ends.add(again.end)
    assert len(ends) == 2


def test_segments_that_begin_during_the_switch_are_of_the_replica() -> None:
    log, disk = two_segments(), new_disk()
    replica = opened(disk)
    resync_from(log, replica)
    replica.switch(log.end)
    job = replica.sync_job()
    replica.append(*log.write(b"four"))
    begin(log, replica, b"five")
    job.run()
    replica.synced(job)
    assert (replica.end, replica.durable) == (log.end, job.position)
    check(log, disk, replica)
    assert opened(disk.kill()).end == log.end
    sync(replica)
    assert opened(disk.crash(Random(1))).end == log.end


def test_segments_before_what_is_written_aside_stay() -> None:
    log, replica, disk = begun(b"one")
    second = log.end
    begin(log, replica, b"two")
    log.write(b"three")
    resync_from(log, replica, second)
    replica.switch(log.end)
    sync(replica)
    assert [file.copy for file in replica.manifest.files] == [1, 2]
    check(log, disk, replica)


@each("then", ["resume", "anew", "kill"])
def test_what_was_written_aside_has_stepped_down(then: str) -> None:
    log, replica, disk = begun(b"one")
    end = replica.end
    log.write(b"two")
    resync_from(log, replica)
    if then == "kill":
        replica = opened(disk := disk.kill())
        assert replica.end == end
    elif then == "resume":
        replica.resume([(FIRST, 0)])
        replica.append(0, HEADER_SIZE + end, log.files[0][HEADER_SIZE + end :])
        assert replica.end == log.end
    else:
        resync_from(log, replica)
        replica.switch(log.end)
        sync(replica)
        assert replica.end == log.end
    check(log, disk, replica)


def with_old_segments() -> tuple[Log, Replica, SimDisk, list[int]]:
    """Return a replica of which the first and the third of four segments are no longer needed, and the bases left."""
    log, replica = new_replica(disk := new_disk())
    for content in (b"one", b"two", b"three"):
        replica.append(*log.write(content))
        begin(log, replica, b"four")
    bases = list(log.files)
    return log, replica, disk, [bases[1], bases[3]]


def test_segments_go_once_the_replica_is_durable_to_where_that_was_decided() -> None:
    log, replica, disk, left = with_old_segments()
    replica.keep(log.end, left)
    replica.append(*log.write(b"five"))
    assert len(replica.manifest.files) == 4
    sync(replica)
    assert [file.base for file in replica.manifest.files] == left
    assert len(disk.names()) == 3
    for seed in range(20):
        again = opened(disk.crash(Random(seed)))
        assert ([file.base for file in again.manifest.files], again.end) == (left, log.end)


def test_segments_go_at_once_if_the_replica_is_durable_already() -> None:
    log, replica, _, left = with_old_segments()
    sync(replica)
    replica.keep(log.end, left)
    assert [file.base for file in replica.manifest.files] == left


def test_segments_stay_while_the_replica_is_not_durable_to_where_that_was_decided() -> None:
    log, replica, _, left = with_old_segments()
    replica.keep(log.end + 1, left)
    sync(replica)
    assert len(replica.manifest.files) == 4


def test_segments_behind_the_decision_stay() -> None:
    log, replica, _, left = with_old_segments()
    decided = log.end
    begin(log, replica, b"five")
    replica.keep(decided, left)
    sync(replica)
    assert [file.base for file in replica.manifest.files] == [*left, decided]


def test_keep_before_the_switch_is_applied_after_it() -> None:
    log, replica, disk, left = with_old_segments()
    resync_from(log, replica, left[1])
    replica.switch(log.end)
    replica.keep(log.end, left)
    sync(replica)
    assert [file.base for file in replica.manifest.files] == left
    assert opened(disk.kill()).manifest.files == replica.manifest.files


def test_a_report_over_another_connection_does_not_count() -> None:
    """The log has lost its end since, and has begun segments there of which nothing was reported."""
    log, replica, _, left = with_old_segments()
    replica.keep(log.end, left)
    replica.resume([(FIRST, 0)])
    sync(replica)
    assert len(replica.manifest.files) == 4


def spoilt(disk: SimDisk, name: str, at: int) -> None:
    content = bytearray(disk.content(name))
    content[at] ^= 1
    disk.put(name, bytes(content))


def marked(monkeypatch: pytest.MonkeyPatch) -> tuple[Log, Replica, SimDisk]:
    """Return a replica whose mark is behind four records, and that has four more, all in one segment."""
    log, replica = new_replica(disk := new_disk())
    monkeypatch.setattr(replica_module, "MARK_EVERY", 1)
    replica.append(*log.write(b"one", b"two", b"three", b"four"))
    sync(replica)
    monkeypatch.setattr(replica_module, "MARK_EVERY", 1 << 30)
    replica.append(*log.write(b"five", b"six", b"seven", b"eight"))
    sync(replica)
    replica.close()
    return log, replica, disk


def test_damage_before_the_mark_is_reported_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    log, replica, disk = marked(monkeypatch)
    spoilt(disk, replica.manifest.files[0].name, HEADER_SIZE + 11)
    again = opened(disk)
    assert again.end == log.end
    assert [one[1:] for one in again.damage] == [(HEADER_SIZE, HEADER_SIZE + 12)]


def test_a_missing_file_before_the_mark_is_reported_and_makes_the_others_no_worse() -> None:
    log, replica, disk, _ = with_old_segments()
    sync(replica)
    replica.note_durable()
    replica.close()
    second, end = replica.manifest.files[1], replica.end
    disk.vanish(second.name)
    for damaged in ([second.name], []):
        again = opened(disk)
        assert ([name for name, _, _ in again.damage], again.end) == (damaged, end)
        assert second not in again.manifest.files
        assert len(again.manifest.files) == 3
        again.close()
    begin(log, again, b"five")


def test_behind_the_mark_the_first_wrong_byte_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    log, replica, disk = marked(monkeypatch)
    mark = replica.manifest.mark
    spoilt(disk, replica.manifest.files[0].name, HEADER_SIZE + mark + 8 + 5 + 9)  # in the second record behind it
    again = opened(disk)
    assert (again.end, again.damage, again.manifest.mark) == (mark + 8 + 5, [], mark + 8 + 5)
    check(log, disk, again)


def test_a_damaged_header_takes_its_segment_along() -> None:
    log, replica, disk = begun(b"one")
    begin(log, replica, b"two")
    sync(replica)
    replica.close()
    spoilt(disk, replica.manifest.files[1].name, 3)
    again = opened(disk)
    assert again.end == replica.manifest.files[1].base
    check(log, disk, again)


@each("content", [b"", b"{", b"[]", b'{"log_id": "zz"}', b"\xff", b"[" * 100_000])
def test_a_damaged_manifest_is_refused(content: bytes) -> None:
    disk = new_disk()
    disk.put(NAME, content)
    with pytest.raises(ManifestError):
        opened(disk)


@each("field", ["log_id", "node", "files", "mark", "epochs"])
@each("value", ["null", '"x"', "[1]", "[[]]", "{}"])
def test_a_manifest_with_a_wrong_field_is_refused(field: str, value: str) -> None:
    disk = new_disk()
    fields = {"log_id": '"00"', "node": "1", "files": "[]", "mark": "0", "epochs": "[]"} | {field: value}
    fields["won"] = "0"
    disk.put(NAME, seal({name: json.loads(one) for name, one in fields.items()}))
    if (field, value) in (("files", "{}"), ("epochs", "{}")):  # nothing is nothing
        return
    with pytest.raises(ManifestError):
        read_manifest(disk)


def test_a_manifest_is_read_as_it_was_written() -> None:
    disk = new_disk()
    files = (ReplicaFile(0, 3, 1), ReplicaFile(500, 0, 2))
    manifest = Manifest(LOG_ID, NODE, files, 700, ((FIRST, 0), (SECOND, 500)))
    write_manifest(disk, manifest)
    assert read_manifest(disk) == manifest
    assert ReplicaDisk(disk, manifest).names() == [f"{0:020d}.3.log", f"{500:020d}.0.log"]


def test_a_bit_that_flips_in_a_manifest_is_noticed() -> None:
    """Otherwise a start would remove a segment that the manifest names by another name."""
    disk = new_disk()
    manifest = Manifest(LOG_ID, NODE, (ReplicaFile(0, 3, 1), ReplicaFile(500, 0, 2)), 700, ((FIRST, 0), (SECOND, 500)))
    write_manifest(disk, manifest)
    content = disk.content(NAME)
    for at in range(len(content)):
        disk.put(NAME, content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        try:
            assert read_manifest(disk) == manifest
        except ManifestError:
            continue


def test_the_replica_of_another_log_is_refused() -> None:
    new_replica(disk := new_disk())
    with pytest.raises(ReplicaError):
        Replica(disk, bytes(16), NODE)


def test_what_does_not_follow_is_refused() -> None:
    log, replica, disk = begun(b"one")
    base, at, data = log.write(b"two")
    following = SegmentHeader(NODE, 0, LOG_ID, replica.end, FIRST).encode()
    later = following[:8] + (VERSION + 1).to_bytes(2) + following[10:-4]
    for wrong in ((base, at + 1, data), (base, at - 1, data), (base + 1, at, data), (base, HEADER_SIZE, data)):
        with pytest.raises(ReplicaError):
            replica.append(*wrong)
    for header in (
        b"",
        bytes(HEADER_SIZE),
        SegmentHeader(NODE, 0, bytes(16), replica.end, FIRST).encode(),
        SegmentHeader(NODE, 0, LOG_ID, replica.end + 1, FIRST).encode(),
        SegmentHeader(NODE, 0, LOG_ID, 0, FIRST).encode(),
        SegmentHeader(NODE, 1, LOG_ID, replica.end, FIRST).encode(),
        following + b"more",
        later + zlib.crc32(later).to_bytes(4),
    ):
        with pytest.raises(ReplicaError):
            replica.begin_segment(header)
    with pytest.raises(ReplicaError):
        replica.switch(replica.end)
    replica.append(base, at, data)
    check(log, disk, replica)


def test_what_does_not_follow_aside_is_refused() -> None:
    log, disk = two_segments(), new_disk()
    replica = opened(disk)
    replica.resync(0, [(FIRST, 0)])
    with pytest.raises(ReplicaError):
        replica.switch(0)
    with pytest.raises(ReplicaError):
        replica.append(0, HEADER_SIZE, b"bytes")
    resync_from(log, replica)
    with pytest.raises(ReplicaError):
        replica.begin_segment(log.files[0][:HEADER_SIZE])
    with pytest.raises(ReplicaError):
        replica.switch(log.end - 1)
    replica.switch(log.end)
    with pytest.raises(ReplicaError):
        replica.switch(log.end)
    sync(replica)
    check(log, disk, replica)


def test_a_segment_that_was_begun_again_before_anything_was_written_to_it_gets_the_new_header() -> None:
    log, replica, disk = begun(b"one")
    replica.begin_segment(log.begin())
    replica.close()
    replica = opened(disk)
    log.epoch = SECOND
    replica.resume([(FIRST, 0), (SECOND, replica.end)])
    begin(log, replica, b"two")
    sync(replica)
    again = opened(disk.crash(Random(1)))
    assert again.end == log.end
    assert again.manifest.epochs == ((FIRST, 0), (SECOND, max(log.files)))


def test_a_full_disk_loses_nothing_that_was_there() -> None:
    log, replica, disk = begun(b"one")
    base, at, data = log.write(b"x" * 100)
    disk.capacity = disk._used() + 50
    with pytest.raises(OSError):
        replica.append(base, at, data)
    replica.close()
    disk.capacity = None
    again = opened(disk)
    assert again.end == at - HEADER_SIZE
    again.append(base, at, data)
    check(log, disk, again)


@given(st.integers(0, 1 << 32))
@settings(max_examples=tries(30), deadline=None)
def test_any_history(seed: int) -> None:
    """Bytes and segments come, syncs run while more comes, the process is killed and the power is cut."""
    random = Random(seed)
    disk = SimDisk(random, random.choice((512, 4096)))
    log, replica = new_replica(disk)
    job = None
    durable = written = 0
    for _ in range(random.randrange(60)):
        deed = random.random()
        if deed < 0.4:
            replica.append(*log.write(*[bytes(random.randrange(300))] * random.randrange(1, 4)))
        elif deed < 0.55:
            if log.end > max(log.files):
                replica.begin_segment(log.begin())
        elif deed < 0.7 and job is None:
            job = replica.sync_job()
        elif deed < 0.85 and job is not None:
            job.run()
            if random.random() < 0.7:
                replica.append(*log.write(b"meanwhile"))
                replica.begin_segment(log.begin())
            replica.synced(job)
            job = None
        elif deed > 0.97:
            durable, written = replica.durable, replica.end
            is_cut = random.random() < 0.6
            disk = disk.crash(random) if is_cut else disk.kill()
            replica, job = opened(disk), None
            assert not replica.damage
            assert replica.end >= (durable if is_cut else written)
            check(log, disk, replica)
            files = {base: content for base, content in log.files.items() if base <= replica.end}
            newest = max(files)
            files[newest] = files[newest][: HEADER_SIZE + replica.end - newest]
            log.files, log.end = files, replica.end
            if not replica.manifest.files or replica.manifest.files[-1].base != newest:
                replica.resume([(FIRST, 0)])
                replica.begin_segment(log.files[newest][:HEADER_SIZE])
            log._seed = SegmentHeader(NODE, 0, LOG_ID, newest, epoch=log.epoch).seed
    assert replica.end == log.end
    check(log, disk, replica)
    replica.close()
    assert disk.open_files == 0
