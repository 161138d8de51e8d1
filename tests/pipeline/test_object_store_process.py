"""A lake in an object store that a test serves: jobs, two writers, throttling, credentials that expire, outages."""

from collections.abc import Iterator

import pytest

from penstock import lake
from penstock.lake.location import Lake, LakeError, StoreError
from penstock.lake.table import MessageTable, open_table
from pipeline import archive as archive_job
from pipeline import compact, doctor, rollup
from pipeline.command_line import parser
from tests.daemons import Daemon, publish
from tests.penstock.spark.conftest import node as node  # the fixture
from tests.pipeline.object_store import ObjectStore, object_store
from tests.pipeline.test_jobs import archive, run, sums

pytestmark = pytest.mark.process
LAKE = Lake("s3://bucket/lake")
EXPIRED = (403, "ExpiredToken")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_store(monkeypatch) as served:
        yield served


def test_jobs(store: ObjectStore) -> None:
    for first in range(0, 30, 10):
        archive(LAKE, "t", [b"x"] * 10, first)
    run(compact, LAKE)
    run(rollup, LAKE)
    open_table(LAKE, "messages").vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert lake.arrow(LAKE.url, "t").num_rows == lake.scan(LAKE.url).collect().height == 30
    assert sum(messages for messages, _, _ in sums(LAKE, "day").values()) == 30
    data = [key for key in store.state()["keys"] if key.startswith("lake/messages/topic=t/")]
    assert len(data) == 1, "the compacted file is left"


def test_a_throttled_store_is_asked_again(store: ObjectStore) -> None:
    store.fail(*[(503, "SlowDown")] * 3)
    archive(LAKE, "t", [b"x"])
    assert not store.state()["refusals"]
    assert lake.arrow(LAKE.url).num_rows == 1


def test_a_bucket_without_the_tables_log_is_not_begun_again(store: ObjectStore) -> None:
    archive(LAKE, "t", [b"x"])
    log = [key for key in store.state()["keys"] if "/_delta_log/" in key]
    store.remove(*log)
    with pytest.raises(LakeError, match=r"has files of messages, such as topic=t/.*, and no table"):
        archive(LAKE, "t", [b"x"])


def test_doctor(store: ObjectStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.check(LAKE.url) in (0, 2)  # 2: Spark is not installed
    assert not store.state()["keys"], "it leaves nothing"
    assert capsys.readouterr().out.count("ok      lake") == len(doctor.STEPS)
    store.ignore_conditions()
    assert doctor.check(LAKE.url) == 2
    assert (
        "refuse the second of two commits at a time: two writers have made the same commit" in capsys.readouterr().out
    )
    assert not store.state()["keys"], "it leaves nothing then either"
    store.fail(EXPIRED)
    assert doctor.check(LAKE.url) == 2
    (line,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("FAILED"))
    assert "write a file: " in line
    assert line.endswith("403 Forbidden: ExpiredToken as the test wants")


def test_an_archive_outlives_credentials_that_expire(
    node: Daemon, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = parser().parse_args(["archive", "--lake", LAKE.url, "--nsqd", node.http, "--topic", "t", "--once"])
    publish(node, "t", "a", "b")
    monkeypatch.setattr("pipeline.archive.time.sleep", lambda seconds: None)
    store.fail(EXPIRED)
    assert archive_job.run(given) == 0
    publish(node, "t", "c")
    began = MessageTable.commit

    def expired(*arguments: object) -> bool:
        monkeypatch.setattr(MessageTable, "commit", began)
        store.fail(*[EXPIRED] * 4)
        return began(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(MessageTable, "commit", expired)
    assert archive_job.run(given) == 0
    assert sorted(lake.arrow(LAKE.url)["body"].to_pylist()) == [b"a", b"b", b"c"]
    restarts = [line for line in capsys.readouterr().err.splitlines() if line.startswith("restart ")]
    assert len(restarts) >= 2
    assert all(line.endswith("ExpiredToken as the test wants") for line in restarts)


def test_a_store_that_is_away_is_named_in_one_line(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.fail(*[(400, "InvalidRequest")] * 9)
    with pytest.raises(
        StoreError, match=r"^cannot open s3://bucket/lake/messages: .* InvalidRequest as the test wants$"
    ):
        open_table(LAKE, "messages")
