"""The writer of an audit: its lines, a full disk and a full queue, and a restart."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.audit import trail as trail_module
from shared.audit.chain import MOST_LINE, Head, Record, decode, digest, follow
from shared.audit.event import NODE, Event, Outcome
from shared.audit.rollup import BURST
from shared.audit.trail import CORRUPT, LEFT_OUT, TAIL, TORN, End, Trail, open_end
from shared.repeats import WINDOW
from tests.cases import each
from tests.shared.audit.test_chain import chain


def make(path: Path | str, clock: Callable[[], float] = lambda: 0.0, **more: Any) -> Trail:
    """A trail whose thread is not started: the test calls `write`."""
    return Trail(str(path), 7, lambda: 1_790_000_000_000_000_000, clock, **more)


def write(trail: Trail, *targets: str) -> None:
    """Note an event for each of these targets, and write."""
    for target in targets:
        trail.note(event(target))
    trail.write()


def event(target: str = "t") -> Event:
    return Event("http", "topic/delete", target, who="ops", by="token")


def records(path: Path) -> list[Record]:
    """The records of a file, whose chain is whole."""
    head: Head | None = None
    for line in path.read_bytes().splitlines():
        head = follow(head, line)
    return [decode(line) for line in path.read_bytes().splitlines()]


def actions(path: Path) -> list[tuple[str, int]]:
    return [(record["action"], record.get("count", 0)) for record in records(path)]


def test_events_become_lines_and_a_restart_continues_the_chain(tmp_path: Path) -> None:
    trail = make(tmp_path / "audit")
    write(trail, "t0", "t1", "t2")
    assert trail.figures().records == 3
    write(make(tmp_path / "audit"), "t3")
    found = [(one["seq"], one["target"], one["node"]) for one in records(tmp_path / "audit")]
    assert found == [(1, "t0", 7), (2, "t1", 7), (3, "t2", 7), (4, "t3", 7)]


def test_a_rotated_file_gets_nothing_more_and_the_next_one_continues(tmp_path: Path) -> None:
    trail = make(tmp_path / "audit")
    write(trail, "before")
    (tmp_path / "audit").rename(tmp_path / "audit.1")
    write(trail, "behind")
    (before,), (behind,) = records(tmp_path / "audit.1"), records(tmp_path / "audit")
    assert (before["target"], behind["target"], behind["seq"]) == ("before", "behind", 2)
    follow(follow(None, (tmp_path / "audit.1").read_bytes()[:-1]), (tmp_path / "audit").read_bytes()[:-1])


@each(
    "whole, half", [(chain(1)[0] + b"\n", chain(2)[1][:1]), (chain(1)[0] + b"\n", chain(2)[1][:-1]), (b"", b'{"seq"')]
)
def test_half_a_line_of_a_crash_is_cut_off_and_recorded(tmp_path: Path, whole: bytes, half: bytes) -> None:
    (tmp_path / "audit").write_bytes(whole + half)
    write(make(tmp_path / "audit"), "t")
    assert (tmp_path / "audit").read_bytes().startswith(whole)
    assert actions(tmp_path / "audit")[-2:] == [(TORN, len(half)), ("topic/delete", 0)]


@each("junk", [b"junk", b"\0\0\0", b"{}"])
def test_a_last_line_that_is_no_record_is_kept_and_the_numbers_go_on(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "audit").write_bytes(chain(1)[0] + b"\n" + junk + b"\n")
    make(tmp_path / "audit").write()
    *_, kept, line = (tmp_path / "audit").read_bytes().splitlines()
    last = json.loads(line)
    assert (kept, last["action"], last["outcome"], last["seq"]) == (junk, CORRUPT, "failed", 2)


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    lines = chain(TAIL // 200)
    (tmp_path / "long").write_bytes(b"\n".join([*lines, b""]))
    assert (tmp_path / "long").stat().st_size > TAIL
    assert open_end(str(tmp_path / "long")) == End(Head(len(lines), digest(lines[-1])))


def test_a_file_is_made_for_owner_and_group_or_cannot_be_written(tmp_path: Path) -> None:
    make(tmp_path / "audit")
    assert os.stat(tmp_path / "audit").st_mode & 0o007 == 0
    for path in (tmp_path, tmp_path / "none" / "audit", "/dev/null"):
        with pytest.raises(OSError):
            make(path)


@each("content", [b"junk\n", b"[[token]]\n" * 50_000, b"\0" * (MOST_LINE + 1), b"a\n" + b"\0" * 1_000_000])
def test_another_kind_of_file_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(OSError, match="this file has"):
        make(tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == content


class FullDisk:
    """Takes `room` bytes of a write, as a full disk does; with `fails` it refuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        real = os.write

        def write(place: int, data: bytes) -> int:
            if self.room is None:
                return real(place, data)
            if self.room < 0:
                raise OSError(28, "No space left on device")
            return real(place, data[: self.room])

        monkeypatch.setattr("shared.files.os.write", write)


@pytest.mark.parametrize("room", [-1, 0, 1, 100])
def test_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, room: int
) -> None:
    disk, trail = FullDisk(monkeypatch), make(tmp_path / "audit")
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", True)
    write(trail, "first")
    disk.room = room
    for _ in range(3):
        write(trail, "lost", "lost")
    assert len(records(tmp_path / "audit")) == 1
    assert [one.levelname for one in caplog.records] == ["ERROR"]
    assert trail.figures().left_out == 6
    disk.room = None
    write(trail, "again")
    assert actions(tmp_path / "audit") == [("topic/delete", 0), (LEFT_OUT, 6), ("topic/delete", 0)]
    assert [one.levelname for one in caplog.records] == ["ERROR", "WARNING"]
    write(trail, "later")
    assert [one["seq"] for one in records(tmp_path / "audit")] == [1, 2, 3, 4]


def test_a_sync_that_fails_leaves_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(place: int) -> None:
        raise OSError(5, "Input/output error")

    trail = make(tmp_path / "audit")
    with monkeypatch.context() as broken:
        broken.setattr("shared.files.os.fdatasync", fail)
        write(trail, "lost")
    assert records(tmp_path / "audit") == []
    write(trail, "t")
    assert actions(tmp_path / "audit") == [(LEFT_OUT, 1), ("topic/delete", 0)]

    disk, trail = FullDisk(monkeypatch), make(tmp_path / "published", publishes=True)
    disk.room = -1
    write(trail, "lost")
    assert trail.take_lines() == []
    disk.room = None
    write(trail, "t")
    assert b"\n".join([*trail.take_lines(), b""]) == (tmp_path / "published").read_bytes()


def test_a_full_queue_on_a_good_and_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail_module, "MOST_WAITING", 3)
    disk, trail = FullDisk(monkeypatch), make(tmp_path / "audit")
    write(trail, "t0", "t1", "t2", "t3", "t4")
    write(trail, "later")
    found = [(one["target"], one.get("count")) for one in records(tmp_path / "audit")]
    assert found == [("t0", None), ("t1", None), ("t2", None), ("", 2), ("later", None)]
    assert trail.figures().left_out == 2
    trail, disk.room = make(tmp_path / "full"), -1
    write(trail, *"abcde")
    disk.room = None
    write(trail, "t")
    assert actions(tmp_path / "full") == [(LEFT_OUT, 5), ("topic/delete", 0)]
    assert trail.figures().left_out == 5, "each is counted once"


def test_a_long_queue_is_written_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail_module, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(trail_module, "MOST_WAITING", 5)
    trail = make(tmp_path / "audit")
    for number in range(7):
        trail.note(event(f"t{number}"))
    for written in (2, 4, 6, 6):
        trail.write()
        assert len(records(tmp_path / "audit")) == written
    assert actions(tmp_path / "audit")[-1] == (LEFT_OUT, 2), "behind all that waited"


def test_refusals_are_rolled_up(tmp_path: Path) -> None:
    now = [0.0]
    trail = make(tmp_path / "audit", lambda: now[0])
    for _ in range(10_000):
        trail.note(Event("nsq", "AUTH", outcome=Outcome.REFUSED, address="192.0.2.1"))
    now[0] = WINDOW
    write(trail, "t")
    assert actions(tmp_path / "audit") == [("AUTH", 0)] * BURST + [("AUTH", 10_000 - BURST), ("topic/delete", 0)]


def test_without_a_file_the_lines_are_only_for_the_topic_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    published = []
    trail = make("", publishes=True)
    trail.on_lines = lambda: published.append(trail.take_lines())
    write(trail, "t")
    ((line,),) = published
    assert follow(Head(), line).seq == 1
    assert trail.take_lines() == []
    monkeypatch.setattr(trail_module, "MOST_WAITING", 3)
    trail = make("", publishes=True)
    for target in "abcde":
        write(trail, target)
    assert len(trail.take_lines()) == 3
    assert trail.figures().unpublished == 2


def test_the_thread_writes_and_ends(tmp_path: Path) -> None:
    trail = Trail(str(tmp_path / "audit"), 7)
    trail.start()
    trail.note(event("now"))
    trail.flush(60.0)
    assert [one["target"] for one in records(tmp_path / "audit")] == ["now"]
    for _ in range(BURST + 2):
        trail.note(Event("nsq", "AUTH", outcome=Outcome.REFUSED))
    trail.note(Event(NODE, "process/stop"))
    trail.close()
    assert actions(tmp_path / "audit")[1:] == [("AUTH", 0)] * BURST + [("process/stop", 0), ("AUTH", 2)]
