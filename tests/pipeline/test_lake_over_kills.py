"""The lake while the driver is killed in a batch (in a campaign: at every stage), and the node under it: nothing is lost."""

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.daemons import ROOT, nsqd, post
from tests.effort import IS_CAMPAIGN
from tests.pipeline.test_pipeline_process import archived, die, dying, environ, manifests, publish, run_all, stats
from tests.requirements import require

pytestmark = pytest.mark.process


@pytest.mark.timeout(1800)
def test_a_lake_over_kills_at_every_stage(tmp_path: Path) -> None:
    require("java")
    lake, total, page = tmp_path / "lake", 8000, tmp_path / "report.html"
    most = 500 if IS_CAMPAIGN else 1000  # messages of a batch
    in_lake, flags = ("--lake", str(lake)), ("-retention", "1h", "-node-id", "7")
    archive = ("archive", "--topic", "t", "--out", str(lake), "--every", "0.1", "--max-records", str(most), "--nsqd")
    with nsqd(tmp_path / "node", *flags) as node:
        post(node, "/topic/create", topic="t")
        for channel in ("mail", "other"):
            post(node, "/channel/create", topic="t", channel=channel)
        publish(node, 0, total // 2)
        same = ("-http-address", node.http)
        whole = 0
        stages = (("batch begun", 1), ("cursor moved", 2), ("manifest written", 2))
        for stage, more in stages if IS_CAMPAIGN else ():  # each is a JVM that starts
            die(stage, (*archive, node.http))
            whole += more
            assert manifests(lake) in (whole, whole - 1)  # the unfinished batch is repeated
            whole = manifests(lake)
        driver = subprocess.Popen(
            dying(f"node {node.process.pid},files written", (*archive, node.http)), env=environ(), cwd=ROOT,
            start_new_session=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert node.process.wait(180) == -signal.SIGKILL  # a JVM starts, and reads first
    with nsqd(tmp_path / "node", *flags, *same) as node:  # where it was: the batch is read now
        assert driver.wait(180) == -signal.SIGKILL
        assert whole <= manifests(lake) <= total // 2 // most
        publish(node, total // 2, total)
        once = (*archive, node.http, "--once")
        replay = ("replay", *in_lake, "--nsqd", node.http, "--topic", "t", "--where", "offset % 10 = 0")
        compact, rollup = ("compact", *in_lake), ("rollup", *in_lake)
        jobs = {
            "archive": once, "rollup dies": rollup, "rollup": rollup, "compact dies": compact, "compact dies again": compact,
            "compact": compact, "rollup, nothing": rollup, "report": ("report", *in_lake, "--out", str(page)),
            "replay": (*replay, "--to", "again"), "replay, nothing": (*replay, "--to", "again"),
            "replay to a channel": (*replay, "--to", "t", "--channel", "mail"),
        }  # fmt: skip
        said = dict(zip(jobs, run_all(*jobs.values(), stages="rolled up,files compacted,compacted"), strict=True))
        assert f"has {total:,}" in said["archive"]
        assert "MISSING" not in said["archive"]
        cursors = httpx.get(f"http://{node.http}/topic/cursors?topic=t").json()["cursors"]
        assert [(one["name"], one["lag"]) for one in cursors] == [("archive", total // 10)]  # the replayed ones
        assert [name for name, text in said.items() if text.endswith("died\n")] == [
            name for name in jobs if "dies" in name
        ]
        assert f"rolled up {total:,} messages, {total:,} in total" in said["rollup"]
        assert not list(lake.glob("archive/*"))
        assert archived(lake / "compact") == list(range(total))
        (manifest,) = [path for path in lake.glob("manifests/*.json") if not path.name.startswith("rollup")]
        assert sum(one["count"] for one in json.loads(manifest.read_text())["ranges"]) == total
        assert "nothing new is archived" in said["rollup, nothing"]  # though its files were moved
        assert f"{total:,} messages of 1 topics" in said["report"]
        text = page.read_text()
        assert f"<b>{total:,}</b> messages" in text
        assert "<svg" in text
        assert "http" not in text.replace("http-equiv", "")  # it loads nothing
        assert f"published {total // 10:,} messages of t to again" in said["replay"]
        assert "replayed before" in said["replay, nothing"]
        lines = httpx.get(f"http://{node.http}/topic/read?topic=again&max_bytes=8000000").text.splitlines()
        numbers = Counter(int(json.loads(line)["body"].split()[1]) for line in lines)
        assert numbers == Counter(range(0, total, 10))
        assert f"published {total // 10:,} messages of t to channel mail of t" in said["replay to a channel"]
        depths = {one["channel_name"]: one["depth"] for one in stats(node, "t")["channels"]}
        assert depths == {"other": total, "mail": total + total // 10}
