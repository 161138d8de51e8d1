"""A directory of beanstalkd becomes ours: composed byte by byte, torn; and one that the real beanstalkd wrote.

PENSTOCK_BEANSTALKD=PATH names that beanstalkd.
"""

import json
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import greenstalk
import pytest

from bench.ports import lease_port
from nsqd.storage.binlog import find_binlogs
from nsqd.storage.binlog_import import ASIDE, MARKER
from nsqd.storage.data_import import READING
from tests.daemons import run
from tests.nsqd.storage.test_binlog import BURIED, DELAYED, DELETED, HEADER, READY
from tests.nsqd.storage.test_binlog import record as binlog_record
from tests.processes.test_beanstalkd import Beanstalkd

pytestmark = pytest.mark.process

ORIGINAL = os.environ.get("PENSTOCK_BEANSTALKD", "")


def compose(path: Path) -> None:
    record = partial(binlog_record, now=time.time_ns())
    first = (
        HEADER + record(1, READY, b"one") + record(2, READY, b"two", counts=(3, 1, 1, 0, 0)) + record(3, READY, b"gone")
    )
    first += record(4, DELAYED, b"late", delay=500) + record(5, READY, b"x" * 65_535, tube="a/b;c") + bytes(4000)
    second = (
        HEADER + record(3, DELETED) + record(1, BURIED, priority=9, counts=(1, 0, 0, 1, 0)) + record(6, READY, b"six")
    )
    (path / "binlog.9").write_bytes(first)
    (path / "binlog.10").write_bytes(second + b"torn" + bytes(3))
    (path / "lock").write_bytes(b"")


def test_every_job_is_there_with_its_id_and_state(tmp_path: Path) -> None:
    compose(tmp_path)
    originals = {path.name: path.read_bytes() for path in find_binlogs(tmp_path)}
    for life in range(2):
        with Beanstalkd("-b", str(tmp_path)) as daemon, daemon.client(use="work", watch=["work", "a/b;c"]) as client:
            response = client.stats_job(1)
            assert (response["state"], response["pri"], response["buries"], response["reserves"]) == ("buried", 9, 1, 1)
            assert 90 < response["age"] < 200
            response = client.stats_job(2)
            assert [response[name] for name in ("timeouts", "releases", "ttr")] == [1, 1, 60]
            assert response["reserves"] == 3 + 2 * life  # what this test does itself
            assert 400 < client.stats_job(4)["time-left"] <= 500
            with pytest.raises(greenstalk.NotFoundError):
                client.peek(3)
            assert [client.reserve(timeout=0).id for _ in range(3)] == [2, 5, 6]
            assert client.put("new") > 6
            daemon.stop(signal.SIGKILL)
        with Beanstalkd("-b", str(tmp_path)) as daemon, daemon.client(watch="work") as client:
            client.delete(next(job for job in (client.reserve(timeout=0) for _ in range(3)) if job.body == "new"))
            daemon.stop(signal.SIGTERM)
    assert {path.name: path.read_bytes() for path in (tmp_path / ASIDE).iterdir()} == originals
    assert not (tmp_path / MARKER).exists()
    assert not find_binlogs(tmp_path)


def test_an_interrupted_import_whose_files_are_gone_is_not_begun_with_half_a_log(tmp_path: Path) -> None:
    compose(tmp_path)
    with Beanstalkd("-b", str(tmp_path)):
        pass
    (tmp_path / MARKER).write_bytes(READING)
    done = run("beanstalkd", "-l127.0.0.1", "-p0", "-b", str(tmp_path))
    assert done.returncode == 10
    assert "it was interrupted, and beanstalkd's files are gone" in done.stderr


def test_the_command(tmp_path: Path) -> None:
    compose(tmp_path)
    command = ("penstock", "import", str(tmp_path), "--json")
    done = run(*command)
    response = json.loads(done.stdout)
    assert (done.returncode, response["jobs"], response["messages"]) == (3, 5, 0)
    assert [one["file"] for one in response["unreadable"]] == ["binlog.10"]
    (tmp_path / "binlog.1").write_bytes(HEADER)
    (tmp_path / "t.diskqueue.000000.dat").write_bytes(b"")
    assert run(*command).returncode == 1


@pytest.mark.skipif(not ORIGINAL, reason="PENSTOCK_BEANSTALKD names no beanstalkd")
def test_what_the_real_beanstalkd_wrote(tmp_path: Path) -> None:
    port = lease_port()
    process = subprocess.Popen([ORIGINAL, "-l", "127.0.0.1", "-p", str(port), "-b", str(tmp_path), "-f0"])
    try:
        for _ in range(100):
            try:
                client = greenstalk.Client(("127.0.0.1", port), use="work", watch="work")
                break
            except OSError:
                time.sleep(0.05)
        bodies = {
            client.put(f"job {number}", priority=number % 4, delay=600 * (number % 5 == 4)): number
            for number in range(300)
        }
        gone = {client.reserve(timeout=0).id for _ in range(100)}
        for job in sorted(gone)[:50]:
            client.delete(job)
            del bodies[job]
        buried = sorted(gone)[50:60]
        for job in buried:
            client.bury(greenstalk.Job(job, ""), priority=7)
        client.close()
    finally:
        process.kill()
        process.wait()
    with Beanstalkd("-b", str(tmp_path)) as daemon, daemon.client(watch="work", use="work") as client:
        response = client.stats_tube("work")
        assert response["current-jobs-buried"] == 10
        assert response["current-jobs-delayed"] == 60
        assert response["current-jobs-ready"] == 300 - 50 - 10 - 60
        found = {}
        for job, number in bodies.items():
            found[job] = client.peek(job).body
            assert found[job] == f"job {number}"
        assert client.put("next") > max(bodies)
