"""`penstock backup`: a running node copied while it is published to; the copy is whole, with what was acknowledged before."""

import json
import tarfile
import threading
import time
from io import BytesIO
from pathlib import Path

import httpx
import pytest

from tests.daemons import nsqd, publish, run

pytestmark = pytest.mark.process


def penstock(*arguments: str) -> tuple[int, str, str]:
    done = run("penstock", *arguments)
    return done.returncode, done.stdout, done.stderr


def test_a_copy_is_whole_and_has_what_was_acknowledged_before(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    stop = threading.Event()
    acked: list[int] = []
    with nsqd(tmp_path / "node") as node:
        for path in ("/topic/create?topic=t&retention=1h", "/channel/create?topic=t&channel=c"):
            httpx.post(f"http://{node.http}{path}").raise_for_status()
        publish(node, "t", *(b"%d" % number for number in range(1000)))

        def work() -> None:
            number = 1000
            while not stop.is_set():
                publish(node, "t", *(b"%d" % one for one in range(number, number + 100)))
                number += 100
                acked.append(number)

        thread = threading.Thread(target=work)
        thread.start()
        while len(acked) < 5:
            time.sleep(0.01)
        before = acked[-1]
        code, out, error = penstock("backup", str(tmp_path / "copy"), "--nsqd-http-address", node.http)
        response = json.loads(penstock("backup", str(tmp_path / "told"), "--json", "--nsqd-http-address", node.http)[1])
        assert response == response | {"directory": str(tmp_path / "told")}
        assert response["bytes"] == sum(
            path.stat().st_size for path in (tmp_path / "told").rglob("*") if path.is_file()
        )
        assert (code, error) == (0, ""), error
        assert f"penstock verify {tmp_path / 'copy'}" in out
        after = acked[-1] + 100
        stop.set()
        thread.join()
        assert penstock("backup", str(tmp_path / "copy"), "--nsqd-http-address", node.http)[0] == 1
    code, out, _ = penstock("verify", str(tmp_path / "copy"))
    assert (code, out.splitlines()[-1]) == (0, "whole")
    with nsqd(tmp_path / "copy") as copy:
        answer = httpx.get(f"http://{copy.http}/topic/read", params={"topic": "t", "max_bytes": "8000000"})
        bodies = [int(line.split('"body":"')[1].split('"')[0]) for line in answer.text.splitlines()]
        assert bodies == list(range(len(bodies)))
        assert before <= len(bodies) <= after
        stats = httpx.get(f"http://{copy.http}/stats", params={"format": "json"}).json()
        assert stats["topics"][0]["channels"][0]["depth"] == len(bodies)


def test_one_at_a_time_and_one_that_is_given_up_holds_nothing(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        for _ in range(40):
            publish(node, "t", *[b"x" * 1000] * 1000)
        with httpx.stream("GET", f"http://{node.http}/backup", timeout=30) as answer:
            assert answer.status_code == 200
            chunks = answer.iter_raw(1000)
            assert next(chunks)
            second = httpx.get(f"http://{node.http}/backup")
            assert (second.status_code, second.json()["message"]) == (409, "BACKUP_RUNNING")
        deadline = time.monotonic() + 20
        while True:
            third = httpx.get(f"http://{node.http}/backup", timeout=30)
            if third.status_code == 200:
                break
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with tarfile.open(fileobj=BytesIO(third.content)) as archive:
            sizes = {entry.name: entry.size for entry in archive}
        assert sum(size for name, size in sizes.items() if name.startswith("log/")) > 40_000_000
        assert len(third.content) == int(third.headers["content-length"])
