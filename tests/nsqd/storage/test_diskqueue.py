"""The files of NSQ's disk queues: which queue they are of, where reading begins, and files that are torn or foreign."""

from collections.abc import Sequence
from pathlib import Path
from struct import pack

import pytest

from nsqd.storage.diskqueue import DiskQueue, QueuedMessage, QueueError, find_queues
from tests.cases import each

STAMP = 1_700_000_000_000_000_000


def record(body: bytes, number: int = 0, attempts: int = 1) -> bytes:
    message = pack(">qH", STAMP + number, attempts) + b"%016x" % number + body
    return pack(">i", len(message)) + message


def write_queue(
    path: Path, name: str, files: Sequence[bytes], start: tuple[int, int] | None = (0, 0), first: int = 0
) -> None:
    """A queue whose first file has that number; `start`: that of the metadata, None: there is none."""
    for number, content in enumerate(files, first):
        (path / f"{name}.diskqueue.{number:06}.dat").write_bytes(content)
    if start is not None:
        end = first + max(0, len(files) - 1)
        text = f"7\n{start[0]},{start[1]}\n{end},{len(files[-1]) if files else 0}\n"
        (path / f"{name}.diskqueue.meta.dat").write_text(text)


def test_messages_are_as_they_were_written_and_queues_of_channels_come_first(tmp_path: Path) -> None:
    write_queue(tmp_path, "a", [record(b"", 1)])
    write_queue(tmp_path, "b:c", [record(b"two", 2, attempts=300)])
    (tmp_path / "nsqd.dat").write_bytes(b"{}")
    (tmp_path / "z.diskqueue.000000.dat").mkdir()
    read = {(queue.topic, queue.channel): list(queue.messages()) for queue in find_queues(tmp_path)}
    of_topic, of_channel = (
        QueuedMessage(STAMP + 1, 1, b"%016x" % 1, b""),
        QueuedMessage(STAMP + 2, 300, b"%016x" % 2, b"two"),
    )
    assert list(read.items()) == [(("b", "c"), [of_channel]), (("a", ""), [of_topic])]


def test_reading_begins_where_the_metadata_says_and_without_it_at_the_beginning(tmp_path: Path) -> None:
    first, second = record(b"1"), record(b"22")
    write_queue(tmp_path, "with", [first + second, first], (0, len(first)))
    write_queue(tmp_path, "without", [first, second], None, first=3)
    write_queue(tmp_path, "ahead", [first, second], (1, 10_000))
    read = {queue.topic: [one.body for one in queue.messages()] for queue in find_queues(tmp_path)}
    assert read == {"with": [b"22", b"1"], "without": [b"1", b"22"], "ahead": []}


@each("name", ["a b", "t:", "t:c d", ":c", "t:c:d"])
def test_a_file_that_is_named_after_no_queue_is_refused(tmp_path: Path, name: str) -> None:
    write_queue(tmp_path, name, [record(b"1")])
    with pytest.raises(QueueError, match="is not named after a topic or channel of NSQ"):
        find_queues(tmp_path)


@each("content", [b"", b"x", b"1\n0,0\n0,0", b"1\n0,0\n", b"1\n0,0\n0,0\nmore", b"1\n-1,0\n0,0\n", b"1\n" + b"9" * 300])
def test_a_file_that_is_no_metadata_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.diskqueue.meta.dat").write_bytes(content)
    with pytest.raises(QueueError, match=r"t\.diskqueue\.meta\.dat is not the metadata of a disk queue"):
        find_queues(tmp_path)


@each("length, count", [(-1, 1), (0, 1), (25, 1), (26, 2), (30, 2), (31, 1), (1 << 30, 1), (-(1 << 31), 1)])
def test_a_length_that_makes_no_sense_ends_a_file(tmp_path: Path, length: int, count: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(record(b"1") + pack(">i", length) + bytes(30))
    queue = DiskQueue("t", "", {0: path})
    assert len(list(queue.messages())) == count
    begin = len(record(b"1")) if count == 1 else path.stat().st_size - 4
    assert queue.unreadable == [(path, begin, path.stat().st_size)] * (length != 30)
