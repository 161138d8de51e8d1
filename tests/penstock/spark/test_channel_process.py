"""Channel mode on a real nsqd, without Spark: each message comes once and none is lost, whatever fails.

The faults are those of docs/contributing/design/spark.md#channels.
"""

import pickle
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.sansio.message import Message
from penstock.spark import channel
from penstock.spark.channel import CONNECT, GATHER, LONGEST, QUIET, NsqChannelReader
from penstock.spark.nodes import NoAnswer
from penstock.spark.options import channel_options
from penstock.spark.staging import Received, Stage, StageError
from tests.cases import each
from tests.daemons import Daemon, eventually, nsqd

pytestmark = pytest.mark.process

ALL = ReadAllAvailable()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Daemon]:
    with nsqd(tmp_path / "node", "-msg-timeout", "1s") as node:
        httpx.post(f"http://{node.http}/topic/create?topic=t").raise_for_status()
        httpx.post(f"http://{node.http}/channel/create?topic=t&channel=c").raise_for_status()
        yield node


def publish(node: Daemon, first: int, end: int) -> None:
    body = "\n".join(map(str, range(first, end)))
    httpx.post(f"http://{node.http}/mpub?topic=t", content=body).raise_for_status()


@contextmanager
def reading(node: Daemon, stage: Path, **options: str) -> Iterator[NsqChannelReader]:
    given = {
        "mode": "channel", "nsqd": node.http, "topic": "t", "channel": "c", "stagingLocation": str(stage), "pollMs": "200",
    }  # fmt: skip
    made = channel_options(given | options)
    assert made is not None
    reader = pickle.loads(pickle.dumps(NsqChannelReader(made)))
    try:
        yield reader
    finally:
        reader.stop()


class Query:
    """Spark's order of calls, and what came of it."""

    def __init__(self, reader: NsqChannelReader, offset: dict[str, Any] | None = None) -> None:
        self.reader = reader
        self.offset = offset or reader.initialOffset()
        self.rows: Counter[int] = Counter()

    def batch(self, limit: Any = ALL) -> int:
        end = self.reader.latestOffset(self.offset, limit)
        found = [body for part in self.reader.partitions(self.offset, end) for body in bodies(self.reader, part)]
        if end != self.offset:
            self.reader.commit(self.offset)  # of the batch before
        self.offset = end
        self.rows.update(map(int, found))
        return len(found)

    def until(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while sum(self.rows.values()) < count:
            assert time.monotonic() < deadline, self.rows.total()
            self.batch()


def bodies(reader: NsqChannelReader, part: Any) -> list[bytes]:
    return [body for batch in reader.read(part) for body in batch.column("body").to_pylist()]


def depth(node: Daemon) -> tuple[int, int]:
    (channel,) = httpx.get(f"http://{node.http}/stats?format=json&topic=t").json()["topics"][0]["channels"]
    return channel["depth"], channel["in_flight_count"]


def once(count: int) -> Counter[int]:
    return Counter(range(count))


def test_another_directory_under_a_checkpoint_is_refused(node: Daemon, tmp_path: Path) -> None:
    publish(node, 0, 5)
    with reading(node, tmp_path / "stage") as reader:
        query = Query(reader)
        query.until(5)
        before = query.offset
    eventually(lambda: depth(node) == (0, 0))
    publish(node, 5, 8)
    with reading(node, tmp_path / "elsewhere") as reader, pytest.raises(StageError, match="it belongs to another one"):
        reader.latestOffset(before, ALL)
    assert depth(node) == (3, 0)


@pytest.mark.parametrize("window", ["0", "60000"])
def test_a_query_that_is_stopped_and_started_again(node: Daemon, tmp_path: Path, window: str) -> None:
    publish(node, 0, 300)
    with reading(node, tmp_path / "stage", dedupeWindowMs=window) as reader:
        query = Query(reader)
        query.until(300)
        reader.commit(query.offset)
        before = query.offset
    eventually(lambda: depth(node) == (0, 0))
    if window == "0":  # committed files are deleted, except for the last number
        assert len(list((tmp_path / "stage").glob("*.arrow"))) == 1
    publish(node, 300, 400)
    with reading(node, tmp_path / "stage") as reader:
        again = Query(reader, before)
        again.until(100)
        assert query.rows + again.rows == once(400)


def test_all_that_is_there_is_more_than_may_be_staged(node: Daemon, tmp_path: Path) -> None:
    publish(node, 0, 3000)
    offset = None
    rows: Counter[int] = Counter()
    for _ in range(2):  # the second begins with files that were committed, and are as much as may be staged
        with reading(node, tmp_path / "stage", stagingMaxBytes="20000", maxInFlight="200") as reader:
            reader.prepareForTriggerAvailableNow()
            query = Query(reader, offset)
            while query.batch():
                pass
            rows += query.rows
            offset = query.offset
            assert query.offset == reader.latestOffset(query.offset, ALL)
        assert rows == once(sum(rows.values()))
        if rows.total() == 3000:
            publish(node, 3000, 3100)
    assert rows == once(3100)


def test_a_batch_that_takes_longer_than_the_message_timeout(node: Daemon, tmp_path: Path) -> None:
    publish(node, 0, 300)
    with reading(node, tmp_path / "stage", maxRecordsPerTrigger="100") as reader:
        query = Query(reader)
        while query.rows.total() < 300:
            query.batch(ReadMaxRows(100))
            time.sleep(0.4)
        time.sleep(1.5)
        assert query.batch() == 0
        assert query.rows == once(300)
    assert depth(node) == (0, 0)


def test_a_batch_that_fails_is_read_again_the_same(node: Daemon, tmp_path: Path) -> None:
    publish(node, 0, 300)
    with reading(node, tmp_path / "stage") as reader:
        query = Query(reader)
        query.until(300)
        end = query.offset
    with reading(node, tmp_path / "stage", minPartitions="3") as reader:  # after a crash partitions come first
        parts = reader.partitions(reader.initialOffset(), end)
        assert Counter(int(body) for part in parts for body in bodies(reader, part)) == once(300)


def test_a_driver_dies_before_fin(node: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(message: Message) -> None:
        raise RuntimeError("killed")

    publish(node, 0, 300)
    with monkeypatch.context() as patched, reading(node, tmp_path / "stage") as reader:
        patched.setattr(Message, "finish", die)
        query = Query(reader)
        with pytest.raises(RuntimeError, match="killed"):
            query.until(301)
    eventually(lambda: depth(node) == (300, 0))  # all of it is redelivered
    with reading(node, tmp_path / "stage") as reader:
        again = Query(reader, query.offset)
        eventually(lambda: again.batch() >= 0 and depth(node) == (0, 0))
        for _ in range(3):
            again.batch()
        assert query.rows + again.rows == once(300)


def test_what_is_there_now_is_all_of_it(node: Daemon, tmp_path: Path) -> None:
    publish(node, 0, 500)
    with reading(node, tmp_path / "stage") as reader:
        reader.prepareForTriggerAvailableNow()
        query = Query(reader)
        query.batch(ReadMaxRows(200))
        publish(node, 500, 600)
        while query.batch(ReadMaxRows(200)):
            pass
        assert query.rows == once(500)


@each("connects_at, ends_at", [(0.0, QUIET), (5.0, 5 + QUIET), (inf, CONNECT + QUIET)])
def test_a_pause_begins_with_the_connection(connects_at: float, ends_at: float) -> None:
    now = 0.0
    receiver = SimpleNamespace(quiet_since=inf, failure=None, stop=lambda: None)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        receiver.quiet_since = connects_at if now >= connects_at else inf

    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep)
    nowhere: Any = SimpleNamespace(http="127.0.0.1:1")
    with pytest.MonkeyPatch.context() as patched, reading(nowhere, Path("stage")) as reader:
        patched.setattr(channel, "time", clock)
        reader._opened = SimpleNamespace(waiting=0), receiver  # type: ignore[assignment]
        assert reader._is_quiet(LONGEST, 0)
    assert ends_at <= now < ends_at + 2 * GATHER


def test_no_more_is_received_than_may_be_staged(node: Daemon, tmp_path: Path) -> None:
    publish(node, 0, 3000)
    with reading(node, tmp_path / "stage", stagingMaxBytes="20000", maxInFlight="100") as reader:
        query = Query(reader)
        query.batch()
        time.sleep(0.5)
        assert depth(node)[0] > 500
        query.until(3000)
        assert query.rows == once(3000)


def test_two_drivers_on_one_directory(tmp_path: Path) -> None:
    first, second = (Stage(tmp_path, "t", 60) for _ in range(2))
    first.open()
    second.open()
    assert first.add([Received("a" * 16, 1000, 1, b"x")]) == 1
    with pytest.raises(StageError, match="another query stages to"):
        second.add([Received("b" * 16, 1000, 1, b"y")])


def test_files_stay_while_their_messages_may_come_again(tmp_path: Path) -> None:
    message = Received("a" * 16, 1_234_567_890, 2, b"x")
    stage = Stage(tmp_path, "t", 60)
    stage.open()
    assert stage.add([message]) == 1
    stage.commit(1)
    after = Stage(tmp_path, "t", 0)
    after.open()
    assert after.add([message]) == 0
    assert after.add([replace(message, id="b" * 16)]) == 1
    after.commit(2)
    assert [path.stem for path in tmp_path.iterdir()] == ["00000002"]  # its number is how far we are
    with pytest.raises(StageError, match=r"00000001\.arrow is not there: the checkpoint belongs to another"):
        after.paths(0, 1)


def test_a_node_that_is_not_there(node: Daemon, tmp_path: Path) -> None:
    with (
        reading(node, tmp_path / "stage", nsqd="127.0.0.1:1") as reader,
        pytest.raises(NoAnswer, match="reports no TCP port"),
    ):
        reader.latestOffset(reader.initialOffset(), ALL)
