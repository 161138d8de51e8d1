"""The import of Disque's append-only file into a broker: which jobs come, as what, and under which names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.limits import Limits
from nsqd.core.work_queue.job import Job, JobState
from nsqd.storage import disque_import
from nsqd.storage.data_import import MOVING, READING, DataImportError
from nsqd.storage.disque_aof import FILE, AofError
from nsqd.storage.disque_import import ASIDE, MARKER, MOST_TOLD, DisqueImport, name_here
from tests.cases import each
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.protocols.disque.wire import context_of
from tests.nsqd.storage.test_disque_aof import ACTIVE, QUEUED, delete, load

WALL = 1_800_000_000  # s: the clock of `Node` when it begins
LATER = WALL + 1000
AGO = (WALL - 100) * SECOND  # ns
DELIVERED = 1 << 2


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disque_import.time, "time", lambda: float(WALL))


def job(number: int, body: bytes = b"x", queue: bytes = b"q", **fields: Any) -> bytes:
    return load(number, body, queue, **{"created": AGO + number, "expires": LATER, **fields})


def imported(
    path: Path, data: bytes, node: Node | None = None, commit: Callable[[], None] | None = None
) -> tuple[Node, DisqueImport]:
    (path / FILE).write_bytes(data)
    node, taking = node or Node(), DisqueImport(path)
    assert taking.prepare()
    taking.run(node.broker, commit or node.turn)
    return node, taking


def jobs(node: Node) -> dict[bytes, Job]:
    found = {}
    for tube in node.broker.tubes.all():
        for one in tube.jobs:
            assert isinstance(one, Job)
            body = tube.body(one)
            assert body is not None
            found[body] = one
    node.broker.check()
    node.broker.tubes.check()
    return found


def test_a_job_keeps_what_it_can(tmp_path: Path) -> None:
    fields = {"retry": 30, "nacks": 2, "deliveries": 3, "replicate": 3, "flags": DELIVERED | 3}
    node, _ = imported(tmp_path, job(1, b"one", b"a;b", created=AGO + 500, **fields))
    (one,) = jobs(node).values()
    assert (one.state, one.ttr, one.delay, one.copies, one.created) == (JobState.READY, 30, 0, 3, AGO + 500)
    assert (one.releases, one.timeouts, one.reserves, one.ttl) == (2, 3, 5, 1100)
    assert (one.buries, one.kicks) == (0, 0)
    assert node.broker.tubes.tube("a;b") is not None


def test_it_ends_when_it_would_have_ended(tmp_path: Path) -> None:
    data = job(1, b"1", expires=WALL + 10, created=AGO + 7) + job(2, b"2", expires=WALL + 1, created=AGO)
    data += job(3, b"from the future", created=(WALL + 5000) * SECOND, expires=WALL + 20)
    node, taking = imported(tmp_path, data + job(4, b"over", expires=WALL))
    assert (taking.imported, taking.aof.expired) == (3, 1)
    wall = WALL + node.now // SECOND - 1000  # the clock of later turns is not that of the first
    assert wall == WALL
    assert {body: one.expires - WALL for body, one in jobs(node).items()} == {
        b"1": 11, b"2": 1, b"from the future": 20,
    }  # fmt: skip


@each("fields, left", [
    ({"delay": 160, "state": ACTIVE}, 60),
    ({"delay": 100, "state": ACTIVE}, 0),  # it would have been queued just now
    ({"delay": 40, "state": ACTIVE}, 0),
    ({"delay": 160, "state": QUEUED}, 0),  # a client queued it before its time
    ({"state": ACTIVE}, 0),  # it was out, or is the copy of another node's job
    ({"state": ACTIVE, "flags": DELIVERED}, 0),
    ({"state": QUEUED}, 0),
])  # fmt: skip
def test_delays_go_on(tmp_path: Path, fields: dict[str, int], left: int) -> None:
    node, _ = imported(tmp_path, job(0, retry=5, **fields))
    (one,) = jobs(node).values()
    assert one.state is (JobState.DELAYED if left else JobState.READY)
    assert one.due == (1000 * SECOND + left * SECOND if left else 0)
    assert one.delay == fields.get("delay", 0)


@each("fields, comes", [
    ({"delay": 160, "state": ACTIVE, "flags": 0}, True), ({"delay": 160, "state": QUEUED}, False),
    ({"delay": 160, "state": ACTIVE, "flags": DELIVERED}, False),
    ({"delay": 160, "state": ACTIVE, "nacks": 1}, False), ({"delay": 160, "state": ACTIVE, "deliveries": 1}, False),
    ({"delay": 100, "state": ACTIVE, "flags": 0}, False), ({"state": ACTIVE, "flags": 0}, False),
    ({"state": QUEUED}, False),
])  # fmt: skip
def test_a_job_with_retry_0_comes_only_if_it_is_certainly_undelivered(
    tmp_path: Path, fields: dict[str, int], comes: bool
) -> None:
    node, taking = imported(tmp_path, job(0, b"once", retry=0, **fields) + job(1, b"other"))
    found = jobs(node)
    assert (b"once" in found, b"other" in found) == (comes, True)
    assert (taking.imported, taking.perhaps_delivered) == (1 + comes, not comes)
    if comes:
        assert (found[b"once"].state, found[b"once"].ttr) == (JobState.DELAYED, 0)


NAMES = {
    b"q": "q", b"a/b;c%20": "a/b;c%20", b"a b": "a%20b", b"\xff\n": "%ff%0a", b"": "%", b"#x": "%23x", b"x#y": "x#y",
    b"x#ephemeral": "x%23ephemeral", b"#ephemeral": "%23ephemeral", b"x" * 200: "x" * 200,
}  # fmt: skip


@each("name", NAMES)
def test_names_of_queues(name: bytes) -> None:
    assert name_here(name) == NAMES[name]


@given(st.binary(max_size=300) | st.sampled_from([b" " * 67, b"x" * 201, b"x" * 199 + b"#ephemeral"]))
def test_any_name_becomes_one_that_clients_can_use(name: bytes) -> None:
    here = name_here(name)
    assert context_of(Node()).queue(here.encode()) == here
    assert not here.startswith("#")
    assert not here.endswith("#ephemeral")
    assert name_here(here.encode()) == here


def test_long_names_that_begin_alike_stay_apart() -> None:
    assert name_here(b"x" * 300) != name_here(b"x" * 301)


def test_renamed_queues_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = b"".join(job(number, b"%d" % number, b"q %d" % number) for number in range(MOST_TOLD + 3))
    node, taking = imported(tmp_path, data)
    assert taking.renamed[b"q 7"] == "q%207"
    assert len(taking.renamed) == len(jobs(node)) == MOST_TOLD + 3


def test_groups_are_bounded(tmp_path: Path) -> None:
    node, commits = Node(), list[None]()
    data = b"".join(job(number, b"x" * 300_000) for number in range(9))
    imported(tmp_path, data, node, lambda: commits.append(node.turn()))
    assert len(commits) == 3


def test_a_commit_that_fails_ends_it(tmp_path: Path) -> None:
    def commit() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        imported(tmp_path, job(1), None, commit)
    assert (tmp_path / FILE).exists()


def test_too_many_queues_are_an_error(tmp_path: Path) -> None:
    data = b"".join(job(number, queue=b"q%d" % number) for number in range(4))
    with pytest.raises(DataImportError):
        imported(tmp_path, data, Node(Limits(max_topics=3)))


def test_the_file_is_moved_when_all_is_done(tmp_path: Path) -> None:
    data = job(1) + delete(1) + b"*2\r\n"
    _, taking = imported(tmp_path, data)
    assert (tmp_path / MARKER).read_bytes() == READING
    assert taking.unreadable == [(tmp_path / FILE, len(data) - 4, len(data))]
    taking.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == [ASIDE]
    assert (tmp_path / ASIDE / FILE).read_bytes() == data
    assert not DisqueImport(tmp_path).prepare()


def test_an_interrupted_move_is_completed(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(job(1))
    (tmp_path / MARKER).write_bytes(MOVING)
    taking = DisqueImport(tmp_path)
    assert not taking.prepare()
    assert not taking.wanted
    assert (tmp_path / ASIDE / FILE).exists()


def test_beside_a_log_it_is_a_leftover(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log/1.log").write_bytes(b"")
    (tmp_path / FILE).write_bytes(job(1))
    taking = DisqueImport(tmp_path)
    assert not taking.prepare()
    assert taking.leftovers == [FILE]
    assert (tmp_path / FILE).exists()


def test_damage_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(job(1) + b"damage")
    with pytest.raises(AofError):
        DisqueImport(tmp_path).prepare()
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    (tmp_path / FILE).unlink()
    assert not DisqueImport(tmp_path).prepare()
