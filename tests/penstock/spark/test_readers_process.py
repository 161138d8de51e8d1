"""The readers in Spark's order of calls, on a real nsqd and without Spark.

See docs/contributing/design/spark.md#how-spark-calls-a-source.
"""

import json
import pickle
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from penstock.spark.ask import Unreachable
from penstock.spark.nodes import NoAnswer
from penstock.spark.offsets import OffsetError
from penstock.spark.options import OptionError, read_options
from penstock.spark.reading import DataLoss
from penstock.spark.source import NsqBatchReader, NsqStreamReader
from tests.daemons import Daemon, nsqd, post, publish, run

pytestmark = pytest.mark.process

ALL = ReadAllAvailable()


def stream(node: Daemon | str, topic: str = "t", **options: str) -> NsqStreamReader:
    address = node if isinstance(node, str) else node.http
    given = {"nsqd": address} | ({"topic": topic} if topic else {}) | {"pollMs": "0", "nodeWaitMs": "0"} | options
    reader = NsqStreamReader(read_options(given))
    return pickle.loads(pickle.dumps(reader))  # as Spark does


def batch(node: Daemon, topic: str = "t", **options: str) -> list[str]:
    reader = NsqBatchReader(read_options({"nsqd": node.http, "topic": topic} | options))
    return [body for part in reader.partitions() for body in rows(reader, part)]


def rows(reader: Any, part: Any) -> list[str]:
    return [body.decode() for found in reader.read(part) for body in found.column("body").to_pylist()]


def spans_of(part: Any) -> list[tuple[int, int]]:
    return [(span.first, span.end) for span in part.spans]


def between(reader: NsqStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [body for part in reader.partitions(start, end) for body in rows(reader, part)]


def read(node: Daemon, topic: str = "t", **options: str) -> tuple[NsqStreamReader, dict[str, Any], dict[str, Any]]:
    """Return a reader, where it begins, and where what is there ends."""
    reader = stream(node, topic, startingOffsets="earliest", **options)
    start = reader.initialOffset()
    return reader, start, reader.latestOffset(start, ALL)


def test_a_stream_over_a_restart_of_the_query_and_of_the_node(node: Daemon, tmp_path: Path) -> None:
    publish(node, "t", "a", "b")
    first = stream(node, startingOffsets="earliest", cursorName="lake")
    start = first.initialOffset()
    assert start["t/7"]["next"] == 0
    end = first.latestOffset(start, ALL)
    assert first.initialOffset() == start  # Spark asks again
    assert between(first, start, end) == ["a", "b"]
    assert between(first, start, end) == ["a", "b"]  # ... and reads again
    assert first.latestOffset(end, ALL) == end
    assert first.reportLatestOffset() == {**end, "behind": 0, "oldestUnread": None}
    publish(node, "t", "c")
    later = first.latestOffset(end, ALL)
    assert cursor(node)["lake"] == (2, 1), "Spark asks for more when the batch is done"
    assert first.reportLatestOffset()["behind"] == 1
    (line,) = httpx.get(f"http://{node.http}/topic/read?topic=t&from=2").text.splitlines()
    published = datetime.fromtimestamp(json.loads(line)["timestamp"] / 1e9, UTC)
    oldest = datetime.fromisoformat(first.reportLatestOffset()["oldestUnread"])
    assert abs(published - oldest) < timedelta(milliseconds=1)

    second = stream(node, startingOffsets="earliest", cursorName="lake")
    assert between(second, end, later) == ["c"]  # after a crash nothing else comes first
    node.stop(signal.SIGKILL)
    assert second.latestOffset(later, ALL) == later  # a node that is away stays where it is
    with pytest.raises(Unreachable, match="node 7 did not answer within nodeWaitMs=0"):
        between(second, end, later)
    with nsqd(tmp_path / "node", "-retention", "1h", "-node-id", "7") as again:
        assert between(stream(again), end, later) == ["c"]
    second.stop()


def cursor(node: Daemon) -> dict[str, tuple[int, int]]:
    response = httpx.get(f"http://{node.http}/topic/cursors?topic=t").json()
    return {one["name"]: (one["offset"], one["lag"]) for one in response["cursors"]}


def test_the_latest_stays_the_same_by_the_cursor(node: Daemon) -> None:
    publish(node, "t", "old")
    start = stream(node, cursorName="new").initialOffset()
    publish(node, "t", "missed if it were asked for again")
    assert stream(node, cursorName="new").initialOffset() == start
    assert start["t/7"]["next"] == 1
    assert stream(node).initialOffset()["t/7"]["next"] == 2


def test_limits_are_kept(node: Daemon) -> None:
    publish(node, "t", *(str(number) * 100 for number in range(10)))
    reader = stream(node, startingOffsets="earliest")
    start = reader.initialOffset()
    third = reader.latestOffset(start, ReadMaxRows(3))
    assert third["t/7"]["next"] == 3
    assert reader.latestOffset(third, ReadMaxRows(100))["t/7"]["next"] == 10
    assert 1 <= reader.latestOffset(start, ReadMaxBytes(500))["t/7"]["next"] <= 5
    assert isinstance(stream(node, maxRecordsPerTrigger="5").getDefaultReadLimit(), ReadMaxRows)
    assert isinstance(stream(node, maxBytesPerTrigger="5").getDefaultReadLimit(), ReadMaxBytes)
    parts = stream(node, minPartitions="4").partitions(start, reader.latestOffset(start, ALL))
    assert len(parts) == 4


def test_available_now_ends_where_it_began_to_look(node: Daemon) -> None:
    publish(node, "t", "a")
    reader = stream(node, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    publish(node, "t", "later")
    end = reader.latestOffset(start, ALL)
    assert end["t/7"]["next"] == 1
    assert reader.latestOffset(end, ALL) == end


def test_a_node_that_comes_back_empty_is_data_loss(node: Daemon, tmp_path: Path) -> None:
    publish(node, "t", "a", "b")
    _, start, end = read(node)
    node.stop()
    with nsqd(tmp_path / "empty", "-retention", "1h", "-node-id", "7") as other:
        publish(other, "t", "c", "d", "e")  # more than there was: offsets alone would not show it
        with pytest.raises(DataLoss, match=r"t/7 is in log .* now, and was in .* up to offset 2"):
            stream(other).latestOffset(end, ALL)
        with pytest.raises(DataLoss, match="OTHER_LOG"):
            between(stream(other), start, end)
        lenient = stream(other, failOnDataLoss="false")
        assert between(lenient, start, end) == []
        assert between(lenient, end, lenient.latestOffset(end, ALL)) == ["c", "d", "e"]


def test_a_node_that_was_restored_goes_on_where_the_backup_ends(node: Daemon, tmp_path: Path) -> None:
    publish(node, "t", "a", "b")
    reader = stream(node, startingOffsets="earliest")
    start = reader.initialOffset()
    assert run("penstock", "backup", str(tmp_path / "backup"), "--nsqd-http-address", node.http).returncode == 0
    end = reader.latestOffset(start, ALL)
    publish(node, "t", "lost")
    beyond = reader.latestOffset(end, ALL)
    node.stop()
    assert run("penstock", "restore", str(tmp_path / "backup"), str(tmp_path / "new")).returncode == 0
    with nsqd(tmp_path / "new", "-retention", "1h", "-node-id", "7") as other:
        publish(other, "t", "c")
        assert between(stream(other), start, end) == ["a", "b"], "a batch that was planned before"
        again = stream(other)
        new = again.latestOffset(end, ALL)
        assert (new["t/7"]["log"] != end["t/7"]["log"], new["t/7"]["next"]) == (True, 3)
        assert between(again, end, new) == between(stream(other), end, new) == ["c"]
        assert again.latestOffset(end, ReadMaxRows(1)) == new
        with pytest.raises(DataLoss, match=r"up to offset 3"):
            stream(other).latestOffset(beyond, ALL)
        with pytest.raises(DataLoss, match="OTHER_LOG"):
            between(stream(other), end, beyond)


def test_batches_by_offset_and_by_time(node: Daemon) -> None:
    publish(node, "t", "a", "b", "c")
    assert batch(node) == ["a", "b", "c"]
    assert batch(node, minPartitions="2") == ["a", "b", "c"]
    assert batch(node, startingOffsets='{"t/7": 1}', endingOffsets='{"t/7": 2}') == ["b"]
    assert batch(node, startingTimestamp="2020-01-01T00:00:00Z") == ["a", "b", "c"]
    assert batch(node, startingTimestamp="2999-01-01T00:00:00Z") == []
    assert batch(node, endingTimestamp="2020-01-01T00:00:00Z") == []
    with pytest.raises(OptionError, match="t/7 would be read from 2 to 1: the end is before the start"):
        batch(node, startingOffsets='{"t/7": 2}', endingOffsets='{"t/7": 1}')


def test_mistakes_are_errors_before_any_job_starts(node: Daemon) -> None:
    publish(node, "t", "a")
    post(node, "/topic/create", topic="plain", retention="0s")
    for options, why in (
        ({"topic": "nope"}, "no node has the topic 'nope'"),
        (
            {"topic": "plain"},
            "topic 'plain' retains no messages on .*: POST http://.*/topic/config\\?topic=plain&retention=24h",
        ),
        ({"startingOffsets": '{"t/8": 0}'}, "offsets name 't/8', which is not there; there are t/7"),
        ({"startingOffsets": '{"t/7": 5}'}, "offset 5 of t/7: there are 0 to 1"),
        ({"endingOffsets": "latest"}, "endingOffsets and endingTimestamp are for batch reads; a stream has no end"),
    ):
        with pytest.raises(OptionError, match=why):
            stream(node, **options).initialOffset()
    with pytest.raises(NoAnswer, match=r"127\.0\.0\.1:1 does not answer"):
        stream("127.0.0.1:1").initialOffset()
    with pytest.raises(NoAnswer, match="no nsqlookupd answered"):
        NsqBatchReader(read_options({"lookupd": "127.0.0.1:1", "topic": "t"})).partitions()


def test_a_pattern_takes_readable_topics(node: Daemon, capfd: pytest.CaptureFixture[str]) -> None:
    publish(node, "kept", "a")
    publish(node, "gone#ephemeral", "b")
    post(node, "/topic/create", topic="plain", retention="0s")
    made = {"nsqd": node.http, "topicPattern": ".*"}
    reader = NsqBatchReader(read_options(made))
    assert [body for part in reader.partitions() for body in rows(reader, part)] == ["a"]
    assert "plain/7 retains no messages and is skipped" in capfd.readouterr().err
    with pytest.raises(OptionError, match=r"topicPattern='pl\.\*' matches no topic that retains messages"):
        NsqBatchReader(read_options(made | {"topicPattern": "pl.*"})).partitions()
    for nodes in ("127.0.0.1:1", f"{node.http},127.0.0.1:1"):
        with pytest.raises(NoAnswer, match=r"127\.0\.0\.1:1 does not answer"):
            NsqBatchReader(read_options(made | {"nsqd": nodes})).partitions()


def test_a_topic_that_comes_later_is_read_from_its_beginning_also_after_a_crash(node: Daemon) -> None:
    publish(node, "x.a", "1")
    made = {"topicPattern": r"x\..*", "startingOffsets": "earliest"}
    first = stream(node, "", **made)
    start = first.initialOffset()
    later = [f"{number} " + "x" * 100_000 for number in range(10)]
    publish(node, "x.b", *later)
    publish(node, "y.c", "3")
    first._follower.looked = 0.0  # it would look again after a while
    end = first.latestOffset(start, ALL)
    assert end.keys() == {"x.a/7", "x.b/7", "v"}
    again = stream(node, "", **made)  # no latestOffset before it
    asked = again.partitions(start, end)
    assert [spans_of(part) for part in asked] == [spans_of(part) for part in first.partitions(start, end)]
    assert len(again._follower.ranges) == 2
    assert sorted(between(again, start, end)) == sorted(["1", *later])


def test_a_cursor_that_nsqd_does_not_take_is_an_error(node: Daemon) -> None:
    publish(node, "t", "a")
    with pytest.raises(NoAnswer, match=r"option cursorName='c': .* INVALID_ARG_HOLD"):
        stream(node, cursorName="c", cursorHold="99999h99999999h").initialOffset()


def delete(node: Daemon, topic: str) -> None:
    httpx.post(f"http://{node.http}/topic/delete?topic={topic}").raise_for_status()


def test_a_deleted_topic_of_a_planned_batch(node: Daemon, capfd: pytest.CaptureFixture[str]) -> None:
    publish(node, "x.a", "1")
    publish(node, "x.b", "2")
    made = {"topicPattern": r"x\..*", "nodeWaitMs": "600000"}
    _, start, end = read(node, "", **made)
    delete(node, "x.b")
    strict = stream(node, "", **made)  # the query starts again: the planned batch comes first
    with pytest.raises(DataLoss, match=r"topic 'x\.b' was deleted on node 7: .*set failOnDataLoss=false"):
        between(strict, start, end)
    again = stream(node, "", failOnDataLoss="false", **made)
    assert again.initialOffset().keys() == {"x.a/7", "v"}
    assert between(again, start, end) == ["1"]
    assert "topic 'x.b' was deleted on node 7: offsets 0 to 1 of x.b/7 are gone" in capfd.readouterr().err
    publish(node, "x.a", "3")
    after = again.latestOffset(end, ALL)
    assert after.keys() == {"x.a/7", "v"}
    assert between(again, end, after) == ["3"]


def test_a_deleted_topic_is_found_by_nsqlookupd_too(tmp_path: Path) -> None:
    """It names no node for a topic that is deleted there, so the node is found among all."""
    with Daemon("nsqlookupd") as lookupd:
        flags = "-retention", "1h", "-node-id", "7", "-lookupd-tcp-address", lookupd.tcp
        with nsqd(tmp_path / "node", *flags) as node:
            publish(node, "a", "1")
            publish(node, "b", "2")
            given = {"lookupd": lookupd.http, "topics": "a,b", "pollMs": "0", "failOnDataLoss": "false"}
            first = NsqStreamReader(read_options(given | {"startingOffsets": "earliest"}))
            start = first.initialOffset()
            end = first.latestOffset(start, ALL)
            httpx.post(f"http://{lookupd.http}/topic/delete?topic=b").raise_for_status()
            delete(node, "b")
            again = NsqStreamReader(read_options(given))
            assert between(again, start, end) == ["1"]
            again.prepareForTriggerAvailableNow()
            assert again.latestOffset(end, ALL).keys() == {"a/7", "v"}


def test_a_topic_that_is_deleted_between_two_batches(node: Daemon, capfd: pytest.CaptureFixture[str]) -> None:
    for topic in ("a", "b", "c"):
        publish(node, topic, "1")
    made = {"topics": "a,b,c", "startingOffsets": "earliest"}
    reader = stream(node, "", **made)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    delete(node, "b")
    reader._follower.looked = 0.0
    assert reader.latestOffset(end, ALL).keys() == {"a/7", "c/7", "v"}  # b was read as far as it is known
    assert "topic 'b' was deleted on node 7, at " in capfd.readouterr().err
    behind = {**end, "c/7": {**end["c/7"], "next": 0}}
    delete(node, "c")
    reader._follower.looked = 0.0
    with pytest.raises(DataLoss, match=r"topic 'c' was deleted on node 7, at .*; it was read up to offset 0; set fail"):
        reader.latestOffset(behind, ALL)
    lenient = stream(node, "", failOnDataLoss="false", **made)
    assert lenient.latestOffset(end, ALL).keys() == {"a/7", "v"}


def test_a_node_that_is_gone_is_no_deleted_topic(node: Daemon) -> None:
    publish(node, "a", "1")
    _, start, end = read(node, "", topics="a", failOnDataLoss="false")
    node.stop()
    away = stream(node, "", topics="a", failOnDataLoss="false")
    assert away.latestOffset(end, ALL) == end
    with pytest.raises(Unreachable, match="node 7 did not answer within nodeWaitMs=0"):
        between(away, start, end)


def test_idle_topics_are_not_in_the_offsets_of_a_batch(node: Daemon, tmp_path: Path) -> None:
    topics = [f"x{number:03d}" for number in range(150)]
    for topic in topics:
        publish(node, topic, topic)
    made = {"topicPattern": "x.*", "startingOffsets": "earliest", "offsetsLocation": str(tmp_path / "offsets")}
    reader = stream(node, "", **made)
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    end = reader.latestOffset(start, ALL)
    assert (len(start), len(end)) == (2, 152), "all topics change in this batch"
    assert sorted(between(reader, start, end)) == topics
    assert reader.latestOffset(end, ALL) == end
    publish(node, "x007", "early")
    start, end = end, reader.latestOffset(end, ALL)
    assert end.keys() == {"base", "v"}
    assert between(reader, start, end) == ["early"]
    publish(node, "x007", "later")
    after = reader.latestOffset(end, ALL)
    assert after.keys() == {"base", "x007/7", "v"}
    report = reader.reportLatestOffset()
    assert report == {"x007/7": after["x007/7"], "v": 1, "behind": 1, "oldestUnread": report["oldestUnread"]}
    again = stream(node, "", **made)  # after a crash
    assert between(again, end, after) == ["later"]
    assert again.latestOffset(after, ALL) == after
    delete(node, "x008")
    again._follower.looked = 0.0
    assert again.latestOffset(after, ALL)["x008/7"] is None
    with pytest.raises(OffsetError, match="option offsetsLocation='' belongs to the checkpoint"):
        stream(node, "", topicPattern="x.*").latestOffset(after, ALL)
