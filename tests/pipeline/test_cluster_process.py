"""A standalone cluster from the wheel: a master and two workers; an executor killed under an archive by spark-submit."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pyspark
import pytest

from tests.daemons import ROOT, nsqd
from tests.pipeline.test_pipeline_process import archived, environ, publish
from tests.requirements import require

pytestmark = pytest.mark.process

START = 180.0  # s
CLASS, SUBMIT = (str(Path(pyspark.__file__).parent / "bin" / name) for name in ("spark-class", "spark-submit"))


@contextmanager
def part(log: Path, *arguments: str) -> Iterator[tuple[Path, int]]:
    """A process of the cluster, and its children with it: its log, and the number of their session."""
    environment = environ() | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": f"{log}.work",
    }
    with log.open("w") as file:
        process = subprocess.Popen(
            [CLASS, *arguments], stdout=file, stderr=file, env=environment, start_new_session=True
        )
    try:
        yield log, process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(log: Path, pattern: str) -> re.Match[str]:
    deadline = time.monotonic() + START
    while True:
        match = re.search(pattern, log.read_text())
        if match:
            return match
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def executors(sessions: list[int]) -> list[int]:
    """Those of these workers alone: others on this machine may run this test, too."""
    command = ["pgrep", "-s", ",".join(map(str, sessions)), "-f", "CoarseGrainedExecutorBackend"]
    found = subprocess.run(command, capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


@pytest.mark.campaign  # five JVMs show what Spark does when an executor dies
def test_an_archive_on_a_cluster_over_the_kill_of_an_executor(tmp_path: Path) -> None:
    require("java")
    lake, total = tmp_path / "lake", 12_000
    with nsqd(tmp_path / "node", "-retention", "1h", "-node-id", "7") as node, ExitStack() as stack:
        publish(node, 0, total)
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master, _ = stack.enter_context(part(tmp_path / "master.log", "org.apache.spark.deploy.master.Master", *ports))
        url = wait_for(master, r"Starting Spark master at (spark://\S+)")[1]
        sessions: list[int] = []
        for number in range(2):
            worker = ("org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "700m", *ports, url)
            log, session = stack.enter_context(part(tmp_path / f"worker-{number}.log", *worker))
            wait_for(log, "Successfully registered")
            sessions.append(session)
        environment = environ() | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        words = ("archive", "--topic", "t", "--nsqd", node.http, "--lake", str(lake), "--once", "--max-records", "1500")
        flags = ("--master", url, "--executor-memory", "512m", str(ROOT / "pyspark_nsq" / "submit.py"))
        driver = subprocess.Popen([SUBMIT, *flags, *words], stderr=subprocess.PIPE, text=True, env=environment)
        try:
            deadline = time.monotonic() + START
            while len(list(lake.glob("messages/_delta_log/*.json"))) < 3:
                assert driver.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            os.kill(executors(sessions)[0], signal.SIGKILL)
            _, said = driver.communicate(timeout=300)
        finally:
            driver.kill()
        assert driver.returncode == 0, said
        assert archived(lake) == list(range(total))
        cursors = httpx.get(f"http://{node.http}/topic/cursors?topic=t").json()["cursors"]
        assert [one["lag"] for one in cursors] == [0]
