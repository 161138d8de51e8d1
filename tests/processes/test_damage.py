"""`penstock verify` on right, damaged and other directories; a start says damage at ERROR, counts it and keeps a copy."""

import json
import re
import signal
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from tests import forkserver
from tests.daemons import ROOT, Daemon, nsqd, post
from tests.forkserver import LAUNCH

pytestmark = pytest.mark.process

BODIES = [b"body number %d" % number for number in range(10)]


def publish(path: Path, stop: int, mode: str = "always") -> Path:
    """Messages are acknowledged, then the daemon ends. Returns the segment."""
    with nsqd(path, "-durability", mode) as daemon:
        post(daemon, "/topic/create", topic="t")
        post(daemon, "/channel/create", topic="t", channel="c")
        for body in BODIES:
            post(daemon, "/pub", body, topic="t")
        daemon.process.send_signal(stop)
        daemon.wait()
    (segment,) = (path / "log").glob("*.log")
    return segment


def flip(segment: Path, what: bytes) -> None:
    content = bytearray(segment.read_bytes())
    content[content.index(what)] ^= 1
    segment.write_bytes(content)


def counted(daemon: Daemon) -> tuple[int, int, int]:
    """The channel's depth, and bytes found damaged and torn."""
    stats = httpx.get(f"http://{daemon.http}/stats?format=json&topic=t").json()
    metrics = httpx.get(f"http://{daemon.http}/metrics").text
    damage, torn = (re.search(rf"^nsqd_log_{name}_total (\S+)", metrics, re.M) for name in ("damage", "torn"))
    assert damage is not None
    assert torn is not None
    return stats["topics"][0]["channels"][0]["depth"], int(float(damage[1])), int(float(torn[1]))


@pytest.mark.parametrize("mode", ["always", "os"])
def test_behind_a_clean_stop_one_wrong_bit_costs_one_message_and_is_reported(tmp_path: Path, mode: str) -> None:
    segment = publish(tmp_path, signal.SIGTERM, mode)
    assert penstock("verify", str(tmp_path))[0] == 0
    flip(segment, BODIES[-1])
    code, out, _ = penstock("verify", str(tmp_path))
    assert (code, out.splitlines()[-1].split(b":")[0]) == (1, b"CORRUPT")
    with nsqd(tmp_path) as daemon:
        depth, damage, torn = counted(daemon)
        assert (depth, torn) == (len(BODIES) - 1, 0)
        (copy,) = (tmp_path / "log").glob("*.damaged")
        assert copy.stat().st_size == damage
        assert copy.name in daemon.wait_for_line("ERROR: LOG: DAMAGE in")


def test_a_torn_end_of_a_log_is_cut_off_copied_and_reported(tmp_path: Path) -> None:
    segment = publish(tmp_path, signal.SIGKILL)
    with segment.open("ab") as file:
        file.write(b"\0\0\1half a record")
    code, out, _ = penstock("verify", str(tmp_path))
    assert (code, out.splitlines()[-1].split(b":")[0]) == (3, b"TORN")
    with nsqd(tmp_path) as daemon:
        assert counted(daemon) == (len(BODIES), 0, 16)
        (copy,) = (tmp_path / "log").glob("*.torn")
        assert copy.read_bytes() == b"\0\0\1half a record"
        assert "cutting off 16 bytes, which may have been acknowledged," in daemon.wait_for_line(copy.name)
    assert penstock("verify", str(tmp_path))[0] == 0


# other directories

TEXTS = [b"one", "zw\u00f6lf\u2028".encode(), b"\xff\0three", b"four"]


def penstock(*arguments: str) -> tuple[int, bytes, str]:
    """Exit code, standard output and standard error."""
    command = [*LAUNCH, "penstock", *arguments]
    done = forkserver.run(command, capture_output=True, cwd=ROOT, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


def state_of(path: Path) -> dict[str, str]:
    """Every file's content and time of change."""
    files = sorted(one for one in path.rglob("*") if one.is_file())
    return {str(one): f"{one.stat().st_mtime_ns} {sha256(one.read_bytes()).hexdigest()}" for one in files}


def test_verify_reports_the_content_and_changes_nothing(tmp_path: Path) -> None:
    with nsqd(tmp_path) as daemon:
        post(daemon, "/topic/create", topic="t", retention="1h")
        post(daemon, "/channel/create", topic="t", channel="c")
        for body in TEXTS:
            post(daemon, "/pub", body, topic="t")
        assert penstock("read", "t", "--nsqd-http-address", daemon.http) == (0, b"\n".join(TEXTS) + b"\n", "")
        code, _, error = penstock("peek", "t", "c", "--nsqd-http-address", "127.0.0.1:1")
        assert (code, "http://127.0.0.1:1/info: connection refused" in error) == (3, True)
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
    response = json.loads(out)
    assert (response["damage"], response["torn_bytes"], response["segments"]) == ([], 4, 1)
    assert response["torn"] == [{"segment": segment.name, "from": size, "to": size + 4}]
    t, u = response["topics"]
    assert t == t | {"topic": "t", "published": 4, "live": 3, "retained": 1, "not_distributed": 0}
    assert t["channels"] == [{"channel": "c", "ready": 2, "deferred": 0, "buried": 1}]
    assert (u["published"], u["live"], u["not_distributed"]) == (1, 1, 1)
    text = penstock("verify", str(tmp_path))[1].decode()
    assert "topic t: 4 published, 3 live, 1 finished" in text
    assert text.splitlines()[-1].startswith("TORN: 4 bytes may have been acknowledged")
    assert state_of(tmp_path) == before
