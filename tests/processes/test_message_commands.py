"""`penstock` with real daemons and real directories: one command, and `verify`."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from tests import forkserver
from tests.daemons import ROOT, nsqd, post
from tests.forkserver import LAUNCH

pytestmark = pytest.mark.process

BODIES = [b"one", "zw\u00f6lf\u2028".encode(), b"\xff\0three", b"four"]


def penstock(*arguments: str) -> tuple[int, bytes, str]:
    """Exit code, standard output and standard error."""
    command = [*LAUNCH, "penstock", *arguments]
    done = forkserver.run(command, capture_output=True, cwd=ROOT, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


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
        assert penstock("read", "t", "--nsqd-http-address", daemon.http) == (0, b"\n".join(BODIES) + b"\n", "")
        code, _, error = penstock("peek", "t", "c", "--nsqd-http-address", "127.0.0.1:1")
        assert (code, "cannot reach nsqd at 127.0.0.1:1" in error) == (1, True)
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
