"""Archives of a real nsqd, in this process: batches, deaths, lost messages, two archives, many topics."""

import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from penstock import lake
from penstock.lake.location import LakeError, lake_at
from penstock.lake.progress import Overlap
from penstock.lake.table import MessageTable, missing_messages, open_table
from penstock.lake.task import Outcome, Work
from penstock.spark import access
from penstock.spark.ask import Asker, Unreachable
from penstock.spark.follower import Follower
from penstock.spark.holders import Lost
from penstock.spark.nodes import NoAnswer, Nodes
from penstock.spark.offsets import PROMOTED, NodeTopic, TopicRange
from penstock.spark.options import OptionError, read_options
from pipeline.archive import in_process
from pipeline.archiver import Archiver, Runner, Tasks
from tests import auth_files
from tests.certificates import Authority
from tests.daemons import Daemon, nsqd, post, publish, run
from tests.penstock.spark.conftest import node as node  # the fixture

pytestmark = pytest.mark.process


class Dead(BaseException):
    """The process ends here."""


def archiver(
    node: Daemon, where: Path, run_tasks: Runner = in_process, most: int = 0, *, by_topic: bool = True, **options: str
) -> Archiver:
    """Return an archive that has begun, as a new process would."""
    given = {"nsqd": node.http, "startingOffsets": "earliest", "nodeWaitMs": "0", "cursorName": "archive"} | options
    follower = Follower(
        read_options(given if given.keys() & {"topics", "topicPattern"} else {"topic": "t"} | given), Asker()
    )
    follower.ask_all(may_be_deleted=True, may_be_lost=True)
    made = Archiver(MessageTable.open_or_create(lake_at(str(where)), by_topic=by_topic), follower, run_tasks, most)
    made.begin()
    return made


def numbers(where: Path, topic: str = "t") -> list[str]:
    return sorted(body.decode() for body in lake.arrow(str(where), topic).column("body").to_pylist())


def lag(node: Daemon) -> int:
    (cursor,) = httpx.get(f"http://{node.http}/topic/cursors?topic=t").json()["cursors"]
    return int(cursor["lag"])


def texts(first: int, end: int) -> list[str]:
    return [f"{number:04d}" for number in range(first, end)]


def test_an_archive_follows_a_topic_in_batches(node: Daemon, tmp_path: Path) -> None:
    publish(node, "t", *texts(0, 10))
    made = archiver(node, tmp_path / "lake", most=4)
    made.archive_all()
    assert (made.done, lag(node)) == (10, 0)
    headers = {"X-Nsq-Header-Trace": "abc"}
    httpx.post(f"http://{node.http}/pub?topic=t&key=once", content=b"0010", headers=headers).raise_for_status()
    assert made.batch() == 1
    assert made.batch() == 0
    assert numbers(tmp_path / "lake") == texts(0, 11)
    row = lake.scan(str(tmp_path / "lake")).collect().sort("offset").row(10, named=True)
    assert (row["node"], row["headers"], row["key"], row["due"]) == ("7", {"trace": "abc"}, "once", None)
    again = archiver(node, tmp_path / "lake")
    again.archive_all()
    assert again.done == 0


def test_odd_messages_are_rows(tmp_path: Path) -> None:
    flags = ("-retention", "1h", "-node-id", "7", "-beanstalk-address", "127.0.0.1:0")
    with nsqd(tmp_path / "node", *flags, listens=("TCP", "HTTP", "BEANSTALK")) as node:
        post(node, "/pub", bytes(1 << 20), topic="t")
        for name, status in (("caf\u00e9".encode(), 200), (b"caf\xe9", 400)):  # nsqd takes no header that is not UTF-8
            headers = [(b"X-Nsq-Header-Name", name)]
            assert httpx.post(f"http://{node.http}/pub?topic=t", content=b"odd", headers=headers).status_code == status
        host, _, port = node.addresses["BEANSTALK"].rpartition(":")
        with socket.create_connection((host, int(port))) as worker, worker.makefile("rb") as answers:
            worker.sendall(b"put 0 0 60 0\r\n\r\n")
            assert answers.readline().startswith(b"INSERTED")
        archiver(node, tmp_path / "lake", topics="t,default").archive_all()
    rows = lake.scan(str(tmp_path / "lake")).collect().sort("topic", "offset").rows(named=True)
    assert [(row["topic"], len(row["body"])) for row in rows] == [("default", 0), ("t", 1 << 20), ("t", 3)]
    assert rows[2]["headers"] == {"name": "caf\u00e9"}


@pytest.mark.parametrize("is_committed", [False, True])
def test_an_archive_dies(node: Daemon, tmp_path: Path, is_committed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(node, "t", *texts(0, 10))

    def dies_before_the_commit(work: Work, tasks: Tasks) -> Iterable[Outcome]:
        list(in_process(work, tasks))
        raise Dead

    made = archiver(node, tmp_path / "lake", in_process if is_committed else dies_before_the_commit, 6)
    with monkeypatch.context() as patch:
        if is_committed:
            patch.setattr(Follower, "move_cursors", dies)
        with pytest.raises(Dead):
            made.archive_all()
    publish(node, "t", *texts(10, 12))
    made = archiver(node, tmp_path / "lake")
    made.archive_all()
    assert numbers(tmp_path / "lake") == texts(0, 12)
    assert lag(node) == 0
    files = list((tmp_path / "lake").rglob("*.parquet"))
    assert len(files) - len(open_table(lake_at(str(tmp_path / "lake")), "messages").file_uris()) == (not is_committed)


def dies(*_: object) -> None:
    raise Dead


def test_two_archives_refuse_each_other(node: Daemon, tmp_path: Path) -> None:
    publish(node, "t", *texts(0, 5))
    first, second = archiver(node, tmp_path / "lake"), archiver(node, tmp_path / "lake")
    first.batch()
    assert second.batch() == 5, "the same batch: it is there already"
    publish(node, "t", *texts(5, 7))
    second.batch()
    publish(node, "t", *texts(7, 9))
    with pytest.raises(Overlap, match="another archive writes to this lake"):
        first.batch()
    second.batch()
    assert numbers(tmp_path / "lake") == texts(0, 9)


def test_a_topic_that_was_empty_and_a_log_that_continues_another_one(node: Daemon, tmp_path: Path) -> None:
    post(node, "/topic/create", topic="t")
    made = archiver(node, tmp_path / "lake")
    assert made.batch() == 0
    publish(node, "t", *texts(0, 3))
    assert made.batch() == 3
    assert run("penstock", "backup", str(tmp_path / "backup"), "--nsqd-http-address", node.http).returncode == 0
    node.stop()
    assert run("penstock", "restore", str(tmp_path / "backup"), str(tmp_path / "new")).returncode == 0
    with nsqd(tmp_path / "new", "-retention", "1h", "-node-id", "7", "-http-address", node.http) as restored:
        assert made.batch() == 0, "nothing is published into the new log yet"
        publish(restored, "t", *texts(3, 5))
        assert made.batch() == 2
        assert numbers(tmp_path / "lake") == texts(0, 5)
        assert lag(restored) == 0


def test_the_first_start_may_be_at_the_end(node: Daemon, tmp_path: Path) -> None:
    publish(node, "t", *texts(0, 5))
    archiver(node, tmp_path / "lake", startingOffsets="latest")
    publish(node, "t", *texts(5, 7))
    made = archiver(node, tmp_path / "lake", startingOffsets="latest")
    made.archive_all()
    assert numbers(tmp_path / "lake") == texts(5, 7)


def recreate(node: Daemon, topic: str, *bodies: str) -> None:
    httpx.post(f"http://{node.http}/topic/delete?topic={topic}").raise_for_status()
    publish(node, topic, *bodies)


@pytest.mark.parametrize("restarts", [False, True])
def test_recreated_topics_stop(node: Daemon, tmp_path: Path, restarts: bool, capfd: pytest.CaptureFixture[str]) -> None:
    for topic in ("x.a", "x.b"):
        publish(node, topic, *texts(0, 3))
    pattern = {"topicPattern": r"x\..*"}
    made = archiver(node, tmp_path / "lake", **pattern)
    made.archive_all()
    recreate(node, "x.b", *texts(3, 9))
    publish(node, "x.a", "0003")
    made = archiver(node, tmp_path / "lake", **pattern) if restarts else made
    made.batch()
    assert numbers(tmp_path / "lake", "x.a") == texts(0, 4)
    assert numbers(tmp_path / "lake", "x.b") == texts(0, 3)
    assert made.stopped.keys() == {"x.b"}
    assert "STOPPED: topic x.b is archived no longer: x.b/7" in capfd.readouterr().err
    made = archiver(node, tmp_path / "lake", failOnDataLoss="false", **pattern)
    made.archive_all()
    assert numbers(tmp_path / "lake", "x.b") == texts(0, 9)


def test_a_topic_that_is_deleted_before_its_end_was_read_stops(node: Daemon, tmp_path: Path) -> None:
    publish(node, "t", *texts(0, 3))
    made = archiver(node, tmp_path / "lake")
    made.archive_all()
    publish(node, "t", *texts(3, 6))
    made.follower.end_after(made._positions)
    post(node, "/topic/delete", topic="t")
    made.follower.looked = 0.0  # it would look for deleted topics after a while
    with pytest.raises(LakeError, match="no topic is left to archive"):
        made.batch()
    assert made.stopped["t"].startswith("topic 't' was deleted on node 7")


def test_what_is_skipped_is_in_the_tables_history(node: Daemon, tmp_path: Path) -> None:
    publish(node, "t", *texts(0, 3))

    def loses_one(work: Work, tasks: Tasks) -> Iterable[Outcome]:
        for outcome in in_process(work, tasks):
            for log in outcome.rows:
                outcome.rows[log] -= 1
            yield outcome

    archiver(node, tmp_path / "lake", loses_one, failOnDataLoss="false").archive_all()
    assert missing_messages(open_table(lake_at(str(tmp_path / "lake")), "messages")) == ["2 of offsets 0 to 3 of t/7"]


@pytest.mark.parametrize("are_named", [False, True])
def test_many_topics_are_one_request_and_few_tasks(node: Daemon, tmp_path: Path, are_named: bool) -> None:
    topics = [f"x{number:03d}" for number in range(150)]
    chosen = {"topics": ",".join(topics)} if are_named else {"topicPattern": "x.*"}
    post(node, "/topic/create", topic="other", retention="0s")
    for topic in topics:
        publish(node, topic, topic)
    seen: list[int] = []

    def counted(work: Work, tasks: Tasks) -> Iterable[Outcome]:
        seen.append(len(tasks))
        return in_process(work, tasks)

    made = archiver(node, tmp_path / "lake", counted, by_topic=False, cursorName="", **chosen)
    made.archive_all()
    assert sorted(lake.arrow(str(tmp_path / "lake")).column("topic").to_pylist()) == topics
    assert seen == [50]
    assert made.batch() == 0, "it looks for new and for lost nodes, and then not for a while"
    asked = count_requests(made)
    assert made.batch() == 0
    assert asked == ["/topics/offsets"]
    if are_named:
        with pytest.raises(OptionError, match="topic 'other' retains no messages"):
            archiver(node, tmp_path / "lake", topics=f"{chosen['topics']},other")


def count_requests(made: Archiver) -> list[str]:
    paths: list[str] = []
    ask: Callable[..., object] = made.follower.asker._ask

    def noted(method: str, address: str, path: str, *rest: object) -> object:
        paths.append(path)
        return ask(method, address, path, *rest)

    made.follower.asker._ask = noted  # type: ignore[method-assign, assignment]
    return paths


def test_mistakes_and_a_node_that_is_away(node: Daemon, tmp_path: Path) -> None:
    publish(node, "t", "a")
    with pytest.raises(OptionError, match="no node has the topic 'nope'"):
        archiver(node, tmp_path / "lake", topic="nope")
    made = archiver(node, tmp_path / "lake")
    made.archive_all()
    publish(node, "t", "b")
    made.follower.end_after(made._positions)
    node.stop()
    assert made.batch() == 0, "its position stays"

    def asks_too_late(work: Work, tasks: Tasks) -> Iterable[Outcome]:
        raise Unreachable("it is away")

    with nsqd(tmp_path / "node", "-retention", "1h", "-node-id", "7", "-http-address", node.http) as back:
        failing = archiver(back, tmp_path / "lake", asks_too_late)
        with pytest.raises(Unreachable):
            failing.batch()
        archiver(back, tmp_path / "lake").archive_all()
        assert numbers(tmp_path / "lake") == ["a", "b"]


@pytest.mark.parametrize("required", [(), ("-tls-required=tcp-https",)], ids=["plain too", "https only"])
def test_an_archive_shows_its_token_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: tuple[str, ...]
) -> None:
    authority, ports = Authority(tmp_path / "authority"), ("TCP", "HTTP", "HTTPS")
    auth_files.write(tmp_path / "auth.toml", "admin", "body-viewer")
    flags = ("-retention", "1h", "-auth-file", str(tmp_path / "auth.toml"), *authority.flags(), *required)
    flags = (*flags, f"-lookupd-tls-root-ca-file={authority.root}")
    monkeypatch.setenv(access.CA_FILE, authority.root)
    with (
        Daemon("nsqlookupd", *authority.flags(), *required, listens=ports) as lookupd,
        nsqd(tmp_path / "node", *flags, f"-lookupd-tcp-address={lookupd.tcp}", listens=ports) as node,
    ):
        url, headers = f"https://{node.addresses['HTTPS']}", auth_files.bearer("admin")
        sent = httpx.post(f"{url}/pub?topic=t", content=b"secret", headers=headers, verify=authority.client())
        sent.raise_for_status()
        with pytest.raises(NoAnswer, match="answered /topic/offsets with 401 UNAUTHORIZED"):
            archiver(node, tmp_path / "lake")
        (tmp_path / "token").write_text(auth_files.token("body-viewer"))
        monkeypatch.setenv(access.TOKEN_FILE, str(tmp_path / "token"))
        archiver(node, tmp_path / "lake").archive_all()
        assert numbers(tmp_path / "lake") == ["secret"]
        found = Nodes((), (lookupd.http,)).addresses(Asker(), "t")
        assert found == [f"127.0.0.1:{node.http.rpartition(':')[2]}"]


def test_a_node_without_https_is_refused_where_an_authority_is_given(
    node: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(access.CA_FILE, Authority(tmp_path / "authority").root)
    with pytest.raises(NoAnswer, match="has no HTTPS, and PENSTOCK_TLS_ROOT_CA_FILE is set"):
        archiver(node, tmp_path / "lake")


def test_a_log_that_no_other_one_continues_is_named(
    node: Daemon, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(node, "t", "a")
    strange = TopicRange("h:1", "strange-1", 0, 5)
    with pytest.MonkeyPatch.context() as patch:
        lost = Lost({NodeTopic("t", "7"): [strange]}, {"9": "h:9"}, ["h:8 answered 403"])
        patch.setattr(Follower, "lost", lambda _: lost)
        made = archiver(node, tmp_path / "new")
        made.archive_all()
    said = capfd.readouterr().err
    assert "NOT ARCHIVED: offsets 0 to 5 of t/7 in the log strange-1, at h:1, which no other log" in said
    assert "cannot look for the logs of lost nodes: h:8 answered 403" in said
    assert "node 9 at h:9 is lost: its messages wait until it returns, or another node leads its log" in said
    assert numbers(tmp_path / "new") == ["a"]


def test_an_archived_log_of_a_node_that_no_longer_has_the_topic_is_left_alone(node: Daemon, tmp_path: Path) -> None:
    for topic in ("x.a", "x.b"):
        publish(node, topic, *texts(0, 3))
    pattern = {"topicPattern": r"x\..*"}
    made = archiver(node, tmp_path / "lake", **pattern)
    made.archive_all()
    promoted = {
        one: [replace(made.follower.ranges[one], kind=PROMOTED)] for one in made._positions if one.topic == "x.b"
    }
    post(node, "/topic/delete", topic="x.b")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Follower, "lost", lambda _: Lost(promoted))
        made = archiver(node, tmp_path / "lake", **pattern)
        for _ in range(3):
            made.follower.looked = 0.0
            assert made.batch() == 0
    assert not made.stopped
