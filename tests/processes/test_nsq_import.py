"""An NSQ data directory becomes ours: composed byte by byte, torn, interrupted; and one that NSQ's own nsqd wrote.

PENSTOCK_NSQD=PATH names that nsqd.
"""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from nsqd.storage.data_import import READING
from nsqd.storage.nsq_import import ASIDE, MARKER
from penstock.client import Consumer
from tests import forkserver
from tests.daemons import ROOT, Daemon, drained, nsqd, run
from tests.forkserver import LAUNCH
from tests.nsqd.storage.test_diskqueue import record, write_queue

pytestmark = pytest.mark.process

ORIGINAL = os.environ.get("PENSTOCK_NSQD", "")


def write_metadata(path: Path, topics: dict[str, list[str]], paused: Sequence[str] = ()) -> None:
    entries = [
        {
            "name": name,
            "paused": name in paused,
            "channels": [{"name": channel, "paused": f"{name}/{channel}" in paused} for channel in channels] or None,
        }
        for name, channels in topics.items()
    ]
    (path / "nsqd.dat").write_text(json.dumps({"topics": entries, "version": "1.3.0"}))


def bodies(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def depths(node: Daemon) -> dict[str, Any]:
    topics = httpx.get(f"http://{node.http}/stats", params={"format": "json"}).json()["topics"]
    return {
        topic["topic_name"]: (topic["depth"], {c["channel_name"]: c["depth"] for c in topic["channels"]})
        for topic in topics
    }


def unpause(node: Daemon, topic: str, channel: str = "") -> None:
    path, arguments = ("/channel/unpause", {"channel": channel}) if channel else ("/topic/unpause", {})
    httpx.post(f"http://{node.http}{path}", params={"topic": topic, **arguments}).raise_for_status()


def compose(path: Path) -> None:
    """Topic t with channels a and b, of which a has its own queue; topic u without channels; a leftover of NSQ's."""
    write_metadata(path, {"t": ["a", "b"], "u": []}, paused=["t", "t/b"])
    mine = bodies("a", 5000)
    split = [b"".join(record(body, number) for number, body in enumerate(part)) for part in (mine[:3000], mine[3000:])]
    read = len(record(b"a0")) * 2  # two were read
    write_queue(path, "t:a", split, (4, read), first=4)
    write_queue(path, "t:b", [record(b"only b", attempts=3)])
    write_queue(path, "t", [b"".join(record(body) for body in bodies("t", 10))])
    write_queue(path, "u", [record(b"u")])
    write_queue(path, "u:empty", [], (0, 0))
    (path / "t:a.diskqueue.000003.dat.bad").write_bytes(record(b"was read"))


def test_every_message_comes_out_once(tmp_path: Path) -> None:
    compose(tmp_path)
    originals = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for _ in range(2):
        with nsqd(tmp_path) as node:
            assert depths(node) == {"t": (10, {"a": 4998, "b": 1}), "u": (0, {"empty": 1})}
    aside = {path.name: path.read_bytes() for path in (tmp_path / ASIDE).iterdir()}
    assert aside == originals
    assert not list(tmp_path.glob("*.diskqueue.*"))
    assert not (tmp_path / MARKER).exists()
    with nsqd(tmp_path) as node:
        unpause(node, "t")
        assert drained(node, "t", "a", 5008) == bodies("a", 5000)[2:] + bodies("t", 10)
        unpause(node, "t", "b")
        assert drained(node, "t", "b", 11) == [b"only b", *bodies("t", 10)]
        assert drained(node, "u", "empty", 1) == [b"u"]
    with nsqd(tmp_path) as node:
        assert depths(node) == {"t": (0, {"a": 0, "b": 0}), "u": (0, {"empty": 0})}


@pytest.mark.parametrize("log", [b"", b"half a log"])
def test_an_import_that_was_interrupted_begins_anew(tmp_path: Path, log: bytes) -> None:
    compose(tmp_path)
    (tmp_path / MARKER).write_bytes(READING)
    if log:
        (tmp_path / "log").mkdir()
        (tmp_path / "log" / f"{0:020d}.0.log").write_bytes(log)
    with nsqd(tmp_path) as node:
        assert depths(node)["t"] == (10, {"a": 4998, "b": 1})


def test_killed_at_any_moment_it_doubles_and_loses_nothing(tmp_path: Path) -> None:
    compose(tmp_path)
    delay, kills = 0.0, 0
    while True:
        command = [*LAUNCH, "nsqd", "-data-path", str(tmp_path)]
        command += ["-tcp-address", "127.0.0.1:0", "-http-address", "127.0.0.1:0"]
        process = forkserver.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.kill()
        process.wait()
        kills += 1
        delay += 0.01 + delay / 2  # a slow machine is not killed a hundred times
        if (tmp_path / ASIDE).exists() and not (tmp_path / MARKER).exists():
            break
        assert kills < 1000
    with nsqd(tmp_path) as node:
        assert depths(node) == {"t": (10, {"a": 4998, "b": 1}), "u": (0, {"empty": 1})}


def run_import(*arguments: str) -> tuple[int, str, str]:
    done = run("penstock", "import", *arguments)
    return done.returncode, done.stdout, done.stderr


def test_what_came_after_going_back_to_nsq_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    compose(tmp_path)
    assert run_import(str(tmp_path))[0] == 0
    write_queue(tmp_path, "t", [record(b"new")])
    code, out, why = run_import(str(tmp_path))
    assert (code, out) == (1, "")
    assert "1 files of NSQ's queues are not imported" in why or "2 files of NSQ's queues are not imported" in why
    with nsqd(tmp_path) as node:
        assert any("WARNING: IMPORT" in line for line in node.lines)
    assert (tmp_path / "t.diskqueue.000000.dat").exists()


def test_the_command_reports_unreadable_files(tmp_path: Path) -> None:
    write_queue(tmp_path, "t", [record(b"1") + b"torn"])
    code, out, _ = run_import(str(tmp_path), "--json")
    size = len(record(b"1"))
    assert (code, json.loads(out)) == (
        3,
        {
            "messages": 1,
            "jobs": 0,
            "queues": [{"topic": "t", "channel": "", "messages": 1}],
            "unreadable": [{"file": "t.diskqueue.000000.dat", "from": size, "to": size + 4}],
        },
    )
    code, out, why = run_import(str(tmp_path / "nowhere"))
    assert (code, out) == (1, "")
    assert "nowhere" in why
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(not ORIGINAL, reason="PENSTOCK_NSQD names no nsqd of NSQ")
def test_what_the_real_nsqd_wrote(tmp_path: Path) -> None:
    flags = ["-mem-queue-size", "5", "-max-bytes-per-file", "3000", "-data-path", str(tmp_path)]
    with Daemon("nsqd", *flags, command=(ORIGINAL,)) as original:
        for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=a", "/channel/create?topic=t&channel=b"):
            httpx.post(f"http://{original.http}{path}").raise_for_status()
        for body in bodies("m", 500):
            httpx.post(f"http://{original.http}/pub", params={"topic": "t"}, content=body).raise_for_status()
        with Consumer("t", "a", [original.tcp], max_in_flight=1) as consumer:
            done = []
            for message in consumer:
                done.append(message.body)
                message.finish()
                if len(done) == 100:
                    break
        httpx.post(f"http://{original.http}/topic/pause", params={"topic": "t"}).raise_for_status()
        for body in bodies("late", 50):
            httpx.post(f"http://{original.http}/pub", params={"topic": "t"}, content=body).raise_for_status()
    with nsqd(tmp_path) as node:
        unpause(node, "t")
        everything = sorted(bodies("m", 500) + bodies("late", 50))
        assert sorted(drained(node, "t", "b", 550)) == everything
        assert sorted([*done, *drained(node, "t", "a", 450)]) == everything
