"""Damage to the log of a real nsqd: `penstock verify` finds it, the start says it at ERROR, counts it and keeps a copy."""

import re
import signal
from pathlib import Path

import httpx
import pytest

from tests.daemons import Daemon, nsqd, post
from tests.processes.test_message_commands import penstock

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
def test_behind_a_clean_stop_one_wrong_bit_costs_one_message_and_is_told(tmp_path: Path, mode: str) -> None:
    segment = publish(tmp_path, signal.SIGTERM, mode)
    assert penstock("verify", str(tmp_path))[0] == 0
    flip(segment, BODIES[-1])
    code, out, _ = penstock("verify", str(tmp_path))
    assert (code, out.splitlines()[-1].split(b":")[0]) == (1, b"DAMAGED")
    with nsqd(tmp_path) as daemon:
        depth, damage, torn = counted(daemon)
        assert (depth, torn) == (len(BODIES) - 1, 0)
        (copy,) = (tmp_path / "log").glob("*.damaged")
        assert copy.stat().st_size == damage
        assert copy.name in daemon.wait_for_line("ERROR: LOG: DAMAGE in")


def test_what_is_wrong_at_the_logs_end_is_cut_off_copied_and_told(tmp_path: Path) -> None:
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


def test_a_log_of_one_segment_is_read_without_its_header(tmp_path: Path) -> None:
    segment = publish(tmp_path, signal.SIGTERM)
    content = segment.read_bytes()
    segment.write_bytes(bytes(64) + content[64:])
    code, out, _ = penstock("verify", str(tmp_path))
    assert (code, b"the header is corrupt; the next start rebuilds it" in out) == (1, True)
    with nsqd(tmp_path) as daemon:
        assert counted(daemon) == (len(BODIES), 64, 0)
        daemon.wait_for_line(f"ERROR: LOG: the header of {segment.name} was corrupt")
