"""Bad nights of a cluster of real nodes: a disk without space, and a stop while copies are awaited.

After each of them everything that was acknowledged is delivered. test_cluster_disks.py, test_failover_rounds.py and
tests/simulation have more of them.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.daemons import Daemon, drained, eventually, post, publish, run
from tests.processes.test_cluster import in_sync
from tests.processes.test_cluster import node as node  # the fixture
from tests.requirements import require

pytestmark = pytest.mark.process

NodeMaker = Callable[..., Daemon]


def create(daemon: Daemon, **copies: int) -> None:
    """Make topics with these numbers of copies, each with the channel c."""
    for topic, count in copies.items():
        post(daemon, "/topic/create", topic=topic, replicate=str(count))
        post(daemon, "/channel/create", topic=topic, channel="c")


def again(stack: ExitStack, node: NodeMaker, number: int, old: Daemon, peer: Daemon, **flags: str) -> Daemon:
    """Start a killed node on its directory and its cluster address."""
    return stack.enter_context(node(number, peer, cluster_address=old.addresses["CLUSTER"], **flags))


def mounted(*command: str) -> None:
    """Mount something. The test is skipped if that cannot be done."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}")


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of a few megabytes, in a new directory."""
    require("root")
    place.mkdir()
    mounted("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_copy_on_a_disk_without_space_recovers_a_lost_node(node: NodeMaker, tmp_path: Path) -> None:
    def failures() -> dict[int, str]:
        """Return why each follower cannot copy the log."""
        followers = httpx.get(f"http://{first.http}/cluster").json()["followers"]
        return {each["node"]: each["failure"] for each in followers if each["failure"]}

    with small_disk(tmp_path / "1", "32m") as volume, node(0) as first, node(1, first) as second:
        eventually(lambda: in_sync(first) == {1})
        create(first, two=2)
        publish(first, "two", *(b"%d" % number for number in range(100)))
        with (volume / "fill").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(volume).free - (1 << 20))
        eventually(lambda: failures() == {1: "too little space is free"})
        first.wait_for_line("CLUSTER: node 1 cannot copy this node's log")
        first.kill()
        shutil.rmtree(tmp_path / "0")
        arguments = (str(tmp_path / "0"), "--node", "0", "--from", second.http)
        refused = run("penstock", "recover", *arguments)
        assert "cannot read its copy at present: too little space is free" in refused.stderr
        eventually(lambda: run("penstock", "recover", *arguments).returncode == 0)
        with node(0, second, cluster_address=first.addresses["CLUSTER"]) as again:
            assert len(drained(again, "two", "c", 100)) == 100


def test_a_request_that_waits_for_copies_is_answered_when_its_node_stops(node: NodeMaker) -> None:
    with node(0, replicate_timeout="60s") as first, node(1, first) as second, ThreadPoolExecutor(1) as pool:
        eventually(lambda: in_sync(first) == {1})
        create(first, two=2)
        second.process.send_signal(signal.SIGSTOP)
        answer = pool.submit(httpx.post, f"http://{first.http}/pub?topic=two&key=k", content=b"x", timeout=60)
        stats = f"http://{first.http}/stats?format=json&topic=two"
        eventually(lambda: httpx.get(stats).json()["topics"][0]["message_count"] == 1)
        assert first.stop() == 0
        second.process.send_signal(signal.SIGCONT)
        assert (answer.result().status_code, answer.result().text) == (503, '{"message":"NOREPL_MAY_BE_DELIVERED"}')
