"""`penstock read`, `peek`, the actions, and `verify`: as a user types them, against real daemons and real directories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests import forkserver
from tests.daemons import ROOT, Daemon, eventually, nsqd, post
from tests.forkserver import LAUNCH
from tests.processes.test_disque_server import Client as Disque

pytestmark = pytest.mark.process

BODIES = [b"one", "zw\u00f6lf\u2028".encode(), b"\xff\0three", b"four"]


def penstock(*arguments: str) -> tuple[int, bytes, str]:
    """Exit code, standard output and standard error."""
    command = [*LAUNCH, "penstock", *arguments]
    done = forkserver.run(command, capture_output=True, cwd=ROOT, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Daemon]:
    with nsqd(tmp_path) as daemon:
        post(daemon, "/topic/create", topic="t", retention="1h")
        post(daemon, "/channel/create", topic="t", channel="c")
        for body in BODIES:
            post(daemon, "/pub", body, topic="t")
        yield daemon


def at(node: Daemon) -> list[str]:
    return ["--nsqd-http-address", node.http]


def test_read_prints_what_is_retained(node: Daemon) -> None:
    assert penstock("read", "t", *at(node)) == (0, b"\n".join(BODIES) + b"\n", "")
    assert penstock("read", "t", "--from", "3", *at(node)) == (0, b"four\n", "")
    assert penstock("read", "t", "--from=-1h", "--to", "1", *at(node)) == (0, b"one\n", "")
    assert penstock("read", "t", "-n", "1", *at(node)) == (0, b"one\n", "")
    assert penstock("read", "t", "-f", "-n", "4", *at(node)) == (0, b"\n".join(BODIES) + b"\n", "")
    code, out, _ = penstock("read", "t", "--json", *at(node))
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, [line["offset"] for line in lines]) == (0, [0, 1, 2, 3])
    assert lines[1]["body"] == BODIES[1].decode()


def test_a_cursor_is_read_from_and_moved_behind_what_was_printed(node: Daemon) -> None:
    assert penstock("read", "t", "--cursor", "me", "-n", "1", *at(node)) == (0, b"one\n", "")
    assert penstock("cursors", "t", *at(node)) == (0, b"me: offset 1, lag 3\n", "")
    assert penstock("read", "t", "--cursor", "me", *at(node)) == (0, b"\n".join(BODIES[1:]) + b"\n", "")
    assert penstock("read", "t", "--cursor", "me", *at(node)) == (0, b"", "")
    post(node, "/topic/cursor", topic="t", name="owned", to="2", owner="spark")
    told = [json.loads(line) for line in penstock("cursors", "t", "--json", *at(node))[1].splitlines()]
    assert [(one["name"], one["offset"], one["owner"]) for one in told] == [("me", 4, ""), ("owned", 2, "spark")]
    assert penstock("cursors", "t", "--delete", "owned", *at(node))[0] == 1
    assert penstock("cursors", "t", "--delete", "owned", "--owner", "spark", *at(node))[0] == 0
    assert penstock("cursors", "t", *at(node))[1] == b"me: offset 4, lag 0\n"
    assert penstock("read", "t", "--cursor", "me", "--from", "1", *at(node))[0] == 1
    post(node, "/topic/cursor", topic="t", name="owned", to="2", owner="spark")
    code, out, why = penstock("read", "t", "--cursor", "owned", *at(node))
    assert (code, out, "--owner spark" in why) == (1, b"", True)
    assert (
        penstock("read", "t", "--cursor", "owned", "--owner", "spark", *at(node))[1] == b"\n".join(BODIES[2:]) + b"\n"
    )


def test_a_cursor_that_retention_has_passed_goes_on_with_what_is_left(node: Daemon) -> None:
    assert penstock("read", "t", "--cursor", "slow", "-n", "1", *at(node))[1] == b"one\n"
    post(node, "/topic/config", topic="t", retention="0s", retention_bytes="0")
    post(node, "/topic/config", topic="t", retention="1h")
    post(node, "/pub", b"new", topic="t")
    assert penstock("read", "t", "--cursor", "slow", *at(node)) == (
        0,
        b"new\n",
        "penstock: 3 messages expired before cursor slow read them\n",
    )
    assert penstock("read", "t", "--cursor", "slow", *at(node)) == (0, b"", "")


def test_peek_and_act(node: Daemon) -> None:
    assert penstock("peek", "t", "c", "-n", "2", *at(node)) == (0, b"\n".join(BODIES[:2]) + b"\n", "")
    assert penstock("bury", "t", "c", "--offset", "0,2", "--reason", "odd", *at(node)) == (0, b"2 buried\n", "")
    assert penstock("peek", "t", "c", "--state", "buried", *at(node)) == (0, b"one\n\xff\0three\n", "")
    assert penstock("kick", "t", "c", "--state", "buried", *at(node)) == (0, b"1 kicked\n", "")
    assert penstock("requeue", "t", "c", "--offset=3", "--delay=90000", *at(node)) == (0, b"1 requeued\n", "")
    assert penstock("finish", "t", "c", "--offset", "1", "--json", *at(node)) == (0, b'{"finished": 1}\n', "")
    assert penstock("move", "t", "c", "--state", "ready", "--to", "u", *at(node)) == (0, b"1 moved\n", "")
    assert penstock("peek", "t", "c", *at(node)) == (0, b"", "")
    code, out, _ = penstock("peek", "t", "c", "--state", "deferred", "--json", *at(node))
    assert (code, json.loads(out)["body"]) == (0, "four")


def test_errors_say_what_to_do(node: Daemon) -> None:
    code, _, error = penstock("read", "nowhere", *at(node))
    assert (code, error.split(":")[1].strip()) == (1, "TOPIC_NOT_FOUND")
    assert node.http in error
    code, _, error = penstock("read", "t", "--from", "99", *at(node))
    assert (code, "no message with this offset was published yet" in error) == (1, True)
    code, _, error = penstock("kick", "t", "c", *at(node))
    assert (code, "either --offset or --state" in error) == (2, True)
    code, _, error = penstock("peek", "t", "c", "--nsqd-http-address", "127.0.0.1:1")
    assert (code, "cannot reach nsqd at 127.0.0.1:1" in error) == (1, True)
    assert penstock("read", "t", "-n", "x")[0] == 2
    assert penstock("peek", "t")[0] == 2


def state_of(path: Path) -> dict[str, str]:
    """Every file's content and time of change."""
    files = sorted(one for one in path.rglob("*") if one.is_file())
    return {str(one): f"{one.stat().st_mtime_ns} {sha256(one.read_bytes()).hexdigest()}" for one in files}


def test_verify_tells_what_is_there_and_changes_nothing(tmp_path: Path) -> None:
    with nsqd(tmp_path) as daemon:
        post(daemon, "/topic/create", topic="t", retention="1h")
        post(daemon, "/channel/create", topic="t", channel="c")
        for body in BODIES:
            post(daemon, "/pub", body, topic="t")
        post(daemon, "/channel/messages/finish", topic="t", channel="c", offset="0")
        post(daemon, "/channel/messages/bury", topic="t", channel="c", offset="1")
        post(daemon, "/pub", b"waits", topic="u")
        code, _, error = penstock("verify", str(tmp_path))
        assert (code, "possibly in use by another instance of nsqd" in error) == (2, True)
        daemon.process.kill()
        daemon.wait()
    (segment,) = (tmp_path / "log").glob("*.log")
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(b"torn")
    before = state_of(tmp_path)
    code, out, error = penstock("verify", str(tmp_path), "--json")
    assert (code, error) == (3, "")
    told = json.loads(out)
    assert (told["damage"], told["torn_bytes"], told["segments"]) == ([], 4, 1)
    assert told["torn"] == [{"segment": segment.name, "from": size, "to": size + 4}]
    t, u = told["topics"]
    assert t == t | {"topic": "t", "published": 4, "live": 3, "retained": 1, "not_distributed": 0}
    assert t["channels"] == [{"channel": "c", "ready": 2, "deferred": 0, "buried": 1}]
    assert (u["published"], u["live"], u["not_distributed"]) == (1, 1, 1)
    text = penstock("verify", str(tmp_path))[1].decode()
    assert "topic t: 4 published, 3 live, 1 finished" in text
    assert text.splitlines()[-1].startswith("TORN: 4 bytes may have been acknowledged")
    assert state_of(tmp_path) == before


def test_verify_finds_damage(tmp_path: Path) -> None:
    with nsqd(tmp_path) as daemon:
        for number in range(50):
            post(daemon, "/pub", b"body %d" % number, topic="t")
    (segment,) = (tmp_path / "log").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    before = state_of(tmp_path)
    code, out, _ = penstock("verify", str(tmp_path), "--json")
    (spot,) = json.loads(out)["damage"]
    assert (code, spot["segment"]) == (1, segment.name)
    assert spot["from"] <= len(content) // 2 < spot["to"]
    assert "DAMAGE in" in penstock("verify", str(tmp_path))[1].decode()
    assert state_of(tmp_path) == before


def test_verify_says_why_it_cannot_look(tmp_path: Path) -> None:
    code, _, error = penstock("verify", str(tmp_path / "nowhere"))
    assert (code, "it must be a directory that exists" in error) == (2, True)
    code, _, error = penstock("verify", str(tmp_path))
    assert (code, "has no log" in error) == (2, True)
    (tmp_path / "log").mkdir()
    assert penstock("verify", str(tmp_path))[0] == 0
    (tmp_path / "log" / f"{0:020d}.0.log").write_bytes(b"x" * 10_000)
    code, _, error = penstock("verify", str(tmp_path))
    assert (code, "cannot be read" in error) == (1, True)


def test_queues_are_listed_and_their_jobs_acted_on(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-disque-address", "127.0.0.1:0") as node:
        node.wait_for_line("DISQUE: listening on")
        host, _, port = node.addresses["DISQUE"].rpartition(":")
        with Disque((host, int(port))) as disque, Disque((host, int(port))) as waiting:
            ids = [
                disque.do("ADDJOB", "mail", body, 0, *more)
                for body, more in ((b"a", ()), (b"\xff", ()), (b"c", ("DELAY", 900)))
            ]
            disque.do("ADDJOB", "other", "x", 0)
            disque.do("PAUSE", "shut", "in")
            waiting.send("GETJOB", "FROM", "shut")
            eventually(lambda: b"1 clients of Disque wait" in penstock("queues", "shut", *at(node))[1])
            assert penstock("queues", *at(node)) == (
                0,
                b"mail: 2 ready, 0 out, 1 delayed, 0 buried\n"
                b"other: 1 ready, 0 out, 0 delayed, 0 buried\n"
                b"shut: 0 ready, 0 out, 0 delayed, 0 buried; 1 clients of Disque wait; paused in\n",
                "",
            )
            told = json.loads(penstock("queues", "mail", "--json", *at(node))[1])
            assert (told["tube_name"], told["ready_count"], told["queue_paused"]) == ("mail", 2, "none")
            code, out, why = penstock("queues", "other", "nowhere", *at(node))
            assert (code, out[:6], "queue nowhere was not found" in why) == (1, b"other:", True)
            # pauses
            assert penstock("queues", "mail", "other", "--pause", "out", "--by", "ann", *at(node))[:2] == (
                0, b"mail: paused out\nother: paused out\n",
            )  # fmt: skip
            assert disque.get("mail") == []
            assert penstock("queues", "mail", "--pause", "none", *at(node))[1] == b"mail: resumed\n"
            assert penstock("queues", "--pause", "in", *at(node))[0] == 1
            # jobs
            queue = ("--queue", "mail", *at(node))
            assert penstock("peek", *queue) == (0, b"a\n\xff\n", "")
            assert (
                penstock("peek", "--state", "delayed", *queue)[1]
                == penstock("peek", "--state", "deferred", *queue)[1]
                == b"c\n"
            )
            listed = [json.loads(line) for line in penstock("peek", "--json", *queue)[1].splitlines()]
            assert [job["disque_id"] for job in listed] == ids[:2]
            assert penstock("bury", "--id", f"{ids[0]},{listed[1]['id']}", *queue)[:2] == (0, b"2 buried\n")
            assert penstock("kick", "--state", "buried", "--count", "9", *queue)[:2] == (0, b"2 kicked\n")
            assert disque.get("mail", 1) == [b"a"]
            assert penstock("peek", "--state", "active", *queue)[1] == b"a\n"
            assert penstock("requeue", "--id", ids[0], *queue)[:2] == (0, b"1 released\n")
            assert penstock("finish", "--id", ids[0], *queue)[:2] == (0, b"1 deleted\n")
            assert penstock("kick", "--id", ids[2], "--json", *queue)[1] == b'{"kicked": 1}\n'


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("peek",), 2, "name TOPIC and CHANNEL, or --queue"),
        (("peek", "t"), 2, "name TOPIC and CHANNEL, or --queue"),
        (("peek", "t", "c", "--queue", "q"), 2, "name either TOPIC and CHANNEL, or --queue"),
        (("peek", "--queue", "nowhere"), 1, "TUBE_NOT_FOUND: list the existing ones with `penstock queues"),
        (("peek", "t", "c", "--state", "gone"), 2, "expected ready, in_flight, deferred or buried"),
        (("move", "--queue", "q", "--to", "t", "--state", "ready"), 2, "only messages of a channel"),
        (("finish", "--queue", "q", "--offset", "1"), 2, "--offset names messages of a channel, and --id jobs"),
        (("finish", "t", "c", "--id", "1"), 2, "--offset names messages of a channel, and --id jobs"),
        (("finish", "--queue", "q"), 2, "give either --id or --state"),
        (("finish", "t", "c"), 2, "give either --offset or --state"),
        (("requeue", "--queue", "q", "--id", "1", "--delay", "5"), 2, "--delay is for messages of a channel"),
        (("kick", "--queue", "t", "--id", "x"), 1, "INVALID_ARG_ID: a job's id is a number"),
    ],
)
def test_what_a_command_cannot_act_on(node: Daemon, words: tuple[str, ...], code: int, why: str) -> None:
    found = penstock(*words, *at(node))
    assert found[:2] == (code, b"")
    assert why in " ".join(found[2].split())
