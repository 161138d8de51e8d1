"""Small logs, written by the real Writer, for tests that spoil them."""

from typing import Any

from nsqd.core.records import RecordKind
from nsqd.storage.log.clocks import NO_BOOT, Clocks, LogClock
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.identity import LogIdentity
from nsqd.storage.log.reader import LogRecords, Record
from nsqd.storage.log.space import Space
from nsqd.storage.log.spare import Spare
from nsqd.storage.log.writer import Writer
from tests.nsqd.storage.sim_disk import SimDisk

LOG_ID = b"0123456789abcdef"
OF_THE_LOG = RecordKind.GROUP, RecordKind.EPOCH
WALL = 1_800_000_000_000_000_000
EPOCH = Epoch(1, 7, b"eightby!")
IDENTITY = LogIdentity(7, LOG_ID, EPOCH)


def frozen_clock() -> LogClock:
    return LogClock(Clocks(lambda: 1, lambda: WALL, lambda: 1, NO_BOOT))


def new_disk() -> SimDisk:
    return SimDisk()


def new_writer(disk: SimDisk, position: int = 0, segment_size: int = 1 << 20, spare: type[Spare] = Spare) -> Writer:
    return Writer(disk, IDENTITY, position, frozen_clock(), Space(disk), spare(disk, segment_size), segment_size)


def write(writer: Writer, *contents: bytes) -> int:
    """Write a group of records of any kind. Returns the position after it."""
    for content in contents:
        writer.append(RecordKind.TOPIC, content)
    return writer.write()


def log_of(*contents: bytes, **more: Any) -> tuple[SimDisk, Writer]:
    """Each in a group of its own, which is synced. `more`: as for `new_writer`."""
    disk = new_disk()
    writer = new_writer(disk, **more)
    for content in contents:
        write(writer, content)
        writer.sync()
    return disk, writer


def read(disk: SimDisk) -> tuple[LogRecords, list[bytes]]:
    """Everything there is: the reader, and the records' contents without those of groups and epochs."""
    reader = LogRecords(disk)
    return reader, [record.content for record in all_records(reader) if record.kind not in OF_THE_LOG]


def all_records(reader: LogRecords) -> list[Record]:
    return list(reader.records())
