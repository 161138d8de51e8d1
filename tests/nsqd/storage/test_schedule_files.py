"""The files of schedules: they are read as they were written, and a corrupt one is refused."""

from pathlib import Path

import pytest

from nsqd.core.scheduling.recurrence import At, Every, read_cron
from nsqd.core.scheduling.schedules import Missed, Schedule
from nsqd.storage.directory import DirectoryError
from nsqd.storage.schedule_files import SCHEDULES, TICKS, ScheduleFiles
from shared.sealed_json import seal
from tests.cases import each

KNOWN = [
    Schedule("t", "a", Every(60, 5), Missed.ONCE, b"\0\xff", (("h", "\u00e9"),), 5),
    Schedule("t", "b", At(9), Missed.SKIP, b"x", (), 5, paused=True),
    Schedule("u", "a", read_cron("0 0 * * *", "Europe/Berlin"), Missed.ALL, b"x", (), 5),
]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    files = ScheduleFiles(tmp_path)
    assert files.read() == ([], {})
    files.write_schedules(KNOWN)
    files.write_ticks({("t", "a"): 65})
    assert files.read() == (KNOWN, {("t", "a"): 65})


FIELDS = {"topic": "t", "name": "n", "missed": "once", "body": "", "headers": [], "since": 0, "paused": False}


@each("name, content", [
    (SCHEDULES, b""), (SCHEDULES, b"{}"), (SCHEDULES, b"[" * 100_000), (SCHEDULES, seal({})),
    (SCHEDULES, seal({"schedules": [1]})),
    (SCHEDULES, seal({"schedules": [FIELDS]})),
    (SCHEDULES, seal({"schedules": [FIELDS | {"recurrence": ["cron", "* * * * *", "Mars"]}]})),
    (SCHEDULES, seal({"schedules": [FIELDS | {"recurrence": ["never"]}]})),
    (TICKS, seal({"ticks": [["t"]]})), (TICKS, seal({"ticks": 1})),
    (TICKS, seal({"ticks": [["t", "a", 1]]}).replace(b"1", b"2")),
])  # fmt: skip
def test_a_corrupt_file_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DirectoryError, match=f"failed to read .*{name}"):
        ScheduleFiles(tmp_path).read()
