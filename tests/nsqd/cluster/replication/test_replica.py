"""One mirror over a simulated disk: what is appended, written aside, made durable and removed, and what a start finds."""

import errno
import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.cluster.replication import replica as mirror_module
from nsqd.cluster.replication.manifest import NAME, Manifest, ManifestError, MirrorFile, read_manifest, write_manifest
from nsqd.cluster.replication.replica import Mirror, MirrorError
from nsqd.cluster.replication.replica_disk import MirrorDisk
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.records import HEADER_SIZE, VERSION, SegmentHeader, decode, encode
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
        """Write records. Returns what `Mirror.append` takes."""
        base = max(self.files)
        at = start = len(self.files[base])
        data = b""
        for content in contents:
            record = b"".join(encode(self._seed, at, 1, content))
            data, at = data + record, at + len(record)
        self.files[base] += data
        self.end += at - start
        return base, start, data


def opened(disk: SimDisk, trusted: int | None = None) -> Mirror:
    return Mirror(disk, LOG_ID, NODE, trusted)


def new_mirror(disk: SimDisk) -> tuple[Log, Mirror]:
    """Return a log and its mirror, which begins."""
    log, mirror = Log(), opened(disk)
    mirror.resume([(FIRST, 0)])
    mirror.begin_segment(log.begin())
    return log, mirror


def sync(mirror: Mirror) -> None:
    """Make durable what there is."""
    job = mirror.sync_job()
    assert job is not None
    job.run()
    mirror.synced(job)


def check(log: Log, disk: SimDisk, mirror: Mirror) -> None:
    """Assert that the mirror holds the log up to its end, and that its end is that of a record."""
    files = mirror.manifest.files
    assert [file.base for file in files] == [base for base in log.files if base <= mirror.end][: len(files)]
    for file in files:
        content = disk.content(file.name)
        assert content == log.files[file.base][: len(content)]
        at, seed = HEADER_SIZE, SegmentHeader(NODE, 0, LOG_ID, file.base, epoch=log.epoch).seed
        while at < len(content):
            at = decode(content, at, seed)
            assert at, "the mirror ends within a record"
    if files:
        assert files[-1].base + disk.size(files[-1].name) - HEADER_SIZE == mirror.end
    assert sorted(disk.names()) == sorted([NAME, *(file.name for file in files)])


def test_what_is_appended_is_durable_after_a_sync() -> None:
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one", b"two"))
    assert (mirror.end, mirror.durable) == (log.end, 0)
    sync(mirror)
    assert mirror.durable == log.end
    assert mirror.sync_job() is None
    check(log, disk, mirror)


def test_segments_follow_one_another() -> None:
    log, mirror = new_mirror(disk := new_disk())
    for content in (b"one", b"two", b"three"):
        mirror.append(*log.write(content))
        mirror.begin_segment(log.begin())
    sync(mirror)
    check(log, disk, mirror)
    mirror.close()
    assert disk.open_files == 0


def test_a_kill_loses_nothing_that_was_written() -> None:
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    mirror.begin_segment(log.begin())
    mirror.append(*log.write(b"two"))
    again = opened(disk := disk.kill())
    assert again.end == again.durable == log.end
    assert again.manifest.epochs == ((FIRST, 0),)
    check(log, disk, again)
    again.append(*log.write(b"three"))
    check(log, disk, again)


def test_after_a_failed_sync_only_what_was_durable_before_is_left() -> None:
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    sync(mirror)
    durable = mirror.durable
    mirror.append(*log.write(b"two"))
    mirror.begin_segment(log.begin())
    mirror.append(*log.write(b"three"))
    disk.fail("sync", 1, errno.EIO)
    with pytest.raises(OSError):
        sync(mirror)
    mirror.close()
    again = opened(disk, trusted=mirror.durable)
    assert again.end == again.durable == durable
    check(log, disk, again)


def test_after_a_failed_sync_not_even_the_header_of_a_segment_behind_it_is_trusted() -> None:
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    sync(mirror)
    mirror.begin_segment(log.begin())
    mirror.append(*log.write(b"two"))
    mirror.close()
    again = opened(disk, trusted=mirror.durable)
    assert [file.base for file in again.manifest.files] == [0]


def test_a_failed_sync_of_the_first_bytes_leaves_an_empty_mirror_that_can_go_on() -> None:
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    mirror.close()
    again = opened(disk, trusted=0)
    assert again.end == 0
    again.resume([(FIRST, 0)])
    again.begin_segment(log.files[0][:HEADER_SIZE])
    again.append(0, HEADER_SIZE, log.files[0][HEADER_SIZE:])
    check(log, disk, again)


def test_a_file_that_is_complete_while_it_is_synced_stays_to_be_synced() -> None:
    """The job covers the beginning of the file; its end came while the job ran, and the next segment began."""
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    job = mirror.sync_job()
    assert job is not None
    job.run()
    mirror.append(*log.write(b"two"))
    mirror.begin_segment(log.begin())
    mirror.synced(job)
    mirror.append(*log.write(b"three"))
    sync(mirror)
    for seed in range(20):
        assert opened(disk.crash(Random(seed))).end == log.end


def test_a_segment_that_begins_while_the_mark_is_due_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "MARK_EVERY", 1)
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    job = mirror.sync_job()
    assert job is not None
    mirror.begin_segment(log.begin())
    mirror.append(*log.write(b"two"))
    job.run()
    assert opened(disk.kill()).end == log.end
    mirror.synced(job)
    assert mirror.manifest.mark == job.position
    assert read_manifest(disk) == mirror.manifest
    sync(mirror)
    assert opened(disk.crash(Random(1))).end == log.end


# what is written aside


def anew(log: Log, mirror: Mirror, first: int = 0) -> None:
    """Write the log aside from the segment at `first` on."""
    mirror.anew(first, [(log.epoch, 0)])
    for base in [base for base in log.files if base >= first]:
        mirror.begin_segment(log.files[base][:HEADER_SIZE])
        if log.files[base][HEADER_SIZE:]:
            mirror.append(base, HEADER_SIZE, log.files[base][HEADER_SIZE:])


def two_segments() -> Log:
    log = Log()
    log.begin()
    log.write(b"one", b"two")
    log.begin()
    log.write(b"three")
    return log


def test_what_is_written_aside_is_nothing_until_it_is_switched_and_synced() -> None:
    log, disk = two_segments(), new_disk()
    mirror = opened(disk)
    anew(log, mirror)
    assert (mirror.end, mirror.is_aside) == (0, True)
    sync(mirror)  # a file that is complete
    assert (mirror.end, mirror.durable) == (0, 0)
    assert opened(disk.kill()).end == 0
    mirror.switch(log.end)
    assert mirror.end == 0
    sync(mirror)
    assert (mirror.end, mirror.durable, mirror.is_aside) == (log.end, log.end, False)
    check(log, disk, mirror)
    for seed in range(20):
        again = opened(crashed := disk.crash(Random(seed)))
        assert again.end == log.end
        check(log, crashed, again)
    mirror.append(*log.write(b"four"))
    check(log, disk, mirror)


def test_a_power_cut_during_a_switch_leaves_the_mirror_before_it_or_after_it() -> None:
    ends = set()
    for cut in range(12):
        log, mirror = new_mirror(disk := new_disk())
        mirror.append(*log.write(b"one"))
        sync(mirror)
        log.write(b"two")
        anew(log, mirror)
        mirror.switch(log.end)
        disk.cut_in = cut
        try:
            sync(mirror)
        except PowerCut:
            for seed in range(10):
                again = opened(crashed := disk.crash(Random(seed)))
                check(log, crashed, again)
                ends.add(again.end)
    assert len(ends) == 2


def test_segments_that_begin_during_the_switch_are_of_the_mirror() -> None:
    log, disk = two_segments(), new_disk()
    mirror = opened(disk)
    anew(log, mirror)
    mirror.switch(log.end)
    job = mirror.sync_job()
    assert job is not None
    mirror.append(*log.write(b"four"))
    mirror.begin_segment(log.begin())
    mirror.append(*log.write(b"five"))
    job.run()
    mirror.synced(job)
    assert (mirror.end, mirror.durable) == (log.end, job.position)
    check(log, disk, mirror)
    assert opened(disk.kill()).end == log.end
    sync(mirror)
    assert opened(disk.crash(Random(1))).end == log.end


def test_segments_before_what_is_written_aside_stay() -> None:
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    second = log.end
    mirror.begin_segment(log.begin())
    mirror.append(*log.write(b"two"))
    log.write(b"three")
    anew(log, mirror, second)
    mirror.switch(log.end)
    sync(mirror)
    assert [file.copy for file in mirror.manifest.files] == [1, 2]
    check(log, disk, mirror)


@pytest.mark.parametrize("then", ["resume", "anew", "kill"])
def test_what_was_written_aside_is_given_up(then: str) -> None:
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    end = mirror.end
    log.write(b"two")
    anew(log, mirror)
    if then == "kill":
        mirror = opened(disk := disk.kill())
        assert mirror.end == end
    elif then == "resume":
        mirror.resume([(FIRST, 0)])
        mirror.append(0, HEADER_SIZE + end, log.files[0][HEADER_SIZE + end :])
        assert mirror.end == log.end
    else:
        anew(log, mirror)
        mirror.switch(log.end)
        sync(mirror)
        assert mirror.end == log.end
    check(log, disk, mirror)


# which segments are left


def with_old_segments() -> tuple[Log, Mirror, SimDisk, list[int]]:
    """Return a mirror of which the first and the third of four segments are not needed any more, and the bases left."""
    log, mirror = new_mirror(disk := new_disk())
    for content in (b"one", b"two", b"three"):
        mirror.append(*log.write(content))
        mirror.begin_segment(log.begin())
    mirror.append(*log.write(b"four"))
    bases = list(log.files)
    return log, mirror, disk, [bases[1], bases[3]]


def test_segments_go_once_the_mirror_is_durable_to_where_that_was_decided() -> None:
    log, mirror, disk, left = with_old_segments()
    mirror.keep(log.end, left)
    mirror.append(*log.write(b"five"))
    assert len(mirror.manifest.files) == 4
    sync(mirror)
    assert [file.base for file in mirror.manifest.files] == left
    assert len(disk.names()) == 3
    for seed in range(20):
        again = opened(disk.crash(Random(seed)))
        assert ([file.base for file in again.manifest.files], again.end) == (left, log.end)


def test_segments_go_at_once_if_the_mirror_is_durable_already() -> None:
    log, mirror, _, left = with_old_segments()
    sync(mirror)
    mirror.keep(log.end, left)
    assert [file.base for file in mirror.manifest.files] == left


def test_segments_stay_while_the_mirror_is_not_durable_to_where_that_was_decided() -> None:
    log, mirror, _, left = with_old_segments()
    mirror.keep(log.end + 1, left)
    sync(mirror)
    assert len(mirror.manifest.files) == 4


def test_segments_behind_the_decision_stay() -> None:
    log, mirror, _, left = with_old_segments()
    decided = log.end
    mirror.begin_segment(log.begin())
    mirror.append(*log.write(b"five"))
    mirror.keep(decided, left)
    sync(mirror)
    assert [file.base for file in mirror.manifest.files] == [*left, decided]


def test_what_is_left_is_told_before_the_switch_and_done_after_it() -> None:
    log, mirror, disk, left = with_old_segments()
    anew(log, mirror, left[1])
    mirror.switch(log.end)
    mirror.keep(log.end, left)
    sync(mirror)
    assert [file.base for file in mirror.manifest.files] == left
    assert opened(disk.kill()).manifest.files == mirror.manifest.files


def test_what_was_told_over_another_connection_does_not_count() -> None:
    """The log has lost its end since, and has begun segments there of which nothing was told."""
    log, mirror, _, left = with_old_segments()
    mirror.keep(log.end, left)
    mirror.resume([(FIRST, 0)])
    sync(mirror)
    assert len(mirror.manifest.files) == 4


# damage


def spoilt(disk: SimDisk, name: str, at: int) -> None:
    content = bytearray(disk.content(name))
    content[at] ^= 1
    disk.put(name, bytes(content))


def marked(monkeypatch: pytest.MonkeyPatch) -> tuple[Log, Mirror, SimDisk]:
    """Return a mirror whose mark is behind four records, and that has four more, all in one segment."""
    log, mirror = new_mirror(disk := new_disk())
    monkeypatch.setattr(mirror_module, "MARK_EVERY", 1)
    mirror.append(*log.write(b"one", b"two", b"three", b"four"))
    sync(mirror)
    monkeypatch.setattr(mirror_module, "MARK_EVERY", 1 << 30)
    mirror.append(*log.write(b"five", b"six", b"seven", b"eight"))
    sync(mirror)
    mirror.close()
    return log, mirror, disk


def test_damage_before_the_mark_is_told_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    log, mirror, disk = marked(monkeypatch)
    spoilt(disk, mirror.manifest.files[0].name, HEADER_SIZE + 11)
    again = opened(disk)
    assert again.end == log.end
    assert [one[1:] for one in again.damage] == [(HEADER_SIZE, HEADER_SIZE + 12)]


def test_behind_the_mark_the_first_wrong_byte_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    log, mirror, disk = marked(monkeypatch)
    mark = mirror.manifest.mark
    spoilt(disk, mirror.manifest.files[0].name, HEADER_SIZE + mark + 8 + 5 + 9)  # in the second record behind it
    again = opened(disk)
    assert (again.end, again.damage, again.manifest.mark) == (mark + 8 + 5, [], mark + 8 + 5)
    check(log, disk, again)


def test_a_damaged_header_takes_its_segment_along() -> None:
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    mirror.begin_segment(log.begin())
    mirror.append(*log.write(b"two"))
    sync(mirror)
    mirror.close()
    spoilt(disk, mirror.manifest.files[1].name, 3)
    again = opened(disk)
    assert again.end == mirror.manifest.files[1].base
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
    disk.put(NAME, ("{" + ", ".join(f'"{name}": {one}' for name, one in fields.items()) + "}").encode())
    if (field, value) in (("files", "{}"), ("epochs", "{}")):  # nothing is nothing
        return
    with pytest.raises(ManifestError):
        read_manifest(disk)


def test_a_manifest_is_read_as_it_was_written() -> None:
    disk = new_disk()
    files = (MirrorFile(0, 3, 1), MirrorFile(500, 0, 2))
    manifest = Manifest(LOG_ID, NODE, files, 700, ((FIRST, 0), (SECOND, 500)))
    write_manifest(disk, manifest)
    assert read_manifest(disk) == manifest
    assert MirrorDisk(disk, manifest).names() == [f"{0:020d}.3.log", f"{500:020d}.0.log"]


def test_the_mirror_of_another_log_is_refused() -> None:
    new_mirror(disk := new_disk())
    with pytest.raises(MirrorError):
        Mirror(disk, bytes(16), NODE)


# wrong frames


def test_what_does_not_follow_is_refused() -> None:
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    base, at, data = log.write(b"two")
    following = SegmentHeader(NODE, 0, LOG_ID, mirror.end, FIRST).encode()
    later = following[:8] + (VERSION + 1).to_bytes(2) + following[10:-4]
    for wrong in ((base, at + 1, data), (base, at - 1, data), (base + 1, at, data), (base, HEADER_SIZE, data)):
        with pytest.raises(MirrorError):
            mirror.append(*wrong)
    for header in (
        b"",
        bytes(HEADER_SIZE),
        SegmentHeader(NODE, 0, bytes(16), mirror.end, FIRST).encode(),
        SegmentHeader(NODE, 0, LOG_ID, mirror.end + 1, FIRST).encode(),
        SegmentHeader(NODE, 0, LOG_ID, 0, FIRST).encode(),
        SegmentHeader(NODE, 1, LOG_ID, mirror.end, FIRST).encode(),
        following + b"more",
        later + zlib.crc32(later).to_bytes(4),
    ):
        with pytest.raises(MirrorError):
            mirror.begin_segment(header)
    with pytest.raises(MirrorError):
        mirror.switch(mirror.end)
    mirror.append(base, at, data)
    check(log, disk, mirror)


def test_what_does_not_follow_aside_is_refused() -> None:
    log, disk = two_segments(), new_disk()
    mirror = opened(disk)
    mirror.anew(0, [(FIRST, 0)])
    with pytest.raises(MirrorError):
        mirror.switch(0)
    with pytest.raises(MirrorError):
        mirror.append(0, HEADER_SIZE, b"bytes")
    anew(log, mirror)
    with pytest.raises(MirrorError):
        mirror.begin_segment(log.files[0][:HEADER_SIZE])
    with pytest.raises(MirrorError):
        mirror.switch(log.end - 1)
    mirror.switch(log.end)
    with pytest.raises(MirrorError):
        mirror.switch(log.end)
    sync(mirror)
    check(log, disk, mirror)


def test_a_segment_that_was_begun_again_before_anything_was_written_to_it_gets_the_new_header() -> None:
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    mirror.begin_segment(log.begin())
    mirror.close()
    mirror = opened(disk)
    log.epoch = SECOND
    mirror.resume([(FIRST, 0), (SECOND, mirror.end)])
    mirror.begin_segment(log.begin())
    mirror.append(*log.write(b"two"))
    sync(mirror)
    again = opened(disk.crash(Random(1)))
    assert again.end == log.end
    assert again.manifest.epochs == ((FIRST, 0), (SECOND, max(log.files)))


# a full disk, and any history


def test_a_full_disk_loses_nothing_that_was_there() -> None:
    log, mirror = new_mirror(disk := new_disk())
    mirror.append(*log.write(b"one"))
    base, at, data = log.write(b"x" * 100)
    disk.capacity = disk._used() + 50
    with pytest.raises(OSError):
        mirror.append(base, at, data)
    mirror.close()
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
    log, mirror = new_mirror(disk)
    job = None
    durable = written = 0
    for _ in range(random.randrange(60)):
        deed = random.random()
        if deed < 0.4:
            mirror.append(*log.write(*[bytes(random.randrange(300))] * random.randrange(1, 4)))
        elif deed < 0.55:
            if log.end > max(log.files):
                mirror.begin_segment(log.begin())
        elif deed < 0.7 and job is None:
            job = mirror.sync_job()
        elif deed < 0.85 and job is not None:
            job.run()
            if random.random() < 0.7:
                mirror.append(*log.write(b"meanwhile"))
                mirror.begin_segment(log.begin())
            mirror.synced(job)
            job = None
        elif deed > 0.97:
            durable, written = mirror.durable, mirror.end
            is_cut = random.random() < 0.6
            disk = disk.crash(random) if is_cut else disk.kill()
            mirror, job = opened(disk), None
            assert not mirror.damage
            assert mirror.end >= (durable if is_cut else written)
            check(log, disk, mirror)
            files = {base: content for base, content in log.files.items() if base <= mirror.end}
            newest = max(files)
            files[newest] = files[newest][: HEADER_SIZE + mirror.end - newest]
            log.files, log.end = files, mirror.end
            if not mirror.manifest.files or mirror.manifest.files[-1].base != newest:
                mirror.resume([(FIRST, 0)])
                mirror.begin_segment(log.files[newest][:HEADER_SIZE])
            log._seed = SegmentHeader(NODE, 0, LOG_ID, newest, epoch=log.epoch).seed
    assert mirror.end == log.end
    check(log, disk, mirror)
