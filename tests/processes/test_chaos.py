"""`penstock chaos` on real processes: partitions, kills and paused nodes, all of which can be undone."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons import eventually, run
from tests.processes.test_penstock_up import free_offset
from tests.tools import Tool, our_command

pytestmark = pytest.mark.process

COUNT = 3
ALL = set(range(COUNT))


def in_sync(http: str) -> int:
    """Return the number of in-sync followers of a node."""
    followers = httpx.get(f"http://{http}/cluster").json()["followers"]
    return sum(one["state"] == "in sync" for one in followers)


# the commands


@dataclass(frozen=True)
class Set:
    """A set of `penstock up --chaos`."""

    data: Path
    http: list[str]  # of the nodes, by number
    lookupd: str
    tool: Tool

    def chaos(self, *words: str) -> dict[str, Any]:
        """Run a command that must succeed, and return what it prints as JSON."""
        done = run("penstock", "chaos", *words, "--data", str(self.data), "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def refused(self, *words: str) -> str:
        done = run("penstock", "chaos", *words, "--data", str(self.data))
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    def sees(self, number: int) -> dict[int, dict[str, Any]]:
        """Return what a node knows of the nodes."""
        nodes = httpx.get(f"http://{self.http[number]}/cluster").json()["nodes"]
        return {one["node"]: one for one in nodes}

    def suspects(self, number: int) -> set[int]:
        return {other for other, known in self.sees(number).items() if known["suspected"]}

    def is_whole(self) -> bool:
        """Return True if each node has a connection to all others and their copies of its log are in sync."""
        try:
            return all(in_sync(http) == COUNT - 1 for http in self.http) and all(
                {other for other, known in self.sees(number).items() if known["connected"]} == ALL - {number}
                for number in ALL
            )
        except httpx.HTTPError:  # one is starting
            return False


@contextmanager
def running_set(data: Path, count: int) -> Iterator[Set]:
    """Run a set, stop it in the end, and hold every daemon to a clean end."""
    offset = free_offset(count)
    words = ("--nodes", str(count), "--port-offset", str(offset), "--data", str(data), "--chaos")
    with Tool([*our_command("penstock"), "up", *words, "--set", "failover-after=3s"]) as tool:
        nodes = [f"127.0.0.1:{4151 + 100 * number + offset}" for number in range(count)]
        made = Set(data, nodes, f"127.0.0.1:{4161 + offset}", tool)
        try:
            eventually(lambda: any("Ctrl-C" in line for line in tool.out))
            yield made
        finally:
            code = tool.stop(signal.SIGINT)
    assert code == 0, "".join(tool.err)
    assert not (data / "up.json").exists()


@pytest.fixture(scope="module")
def shared_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Set]:
    with running_set(tmp_path_factory.mktemp("chaos") / "data", COUNT) as made:
        yield made


@pytest.fixture
def whole(shared_set: Set) -> Set:
    """A set of three nodes that are connected and in sync."""
    eventually(shared_set.is_whole)
    return shared_set


def test_both_sides_of_a_partition_suspect_each_other_and_heal(whole: Set) -> None:
    assert whole.chaos("partition", "1")["others"] == [0, 2]
    eventually(lambda: (whole.suspects(0), whole.suspects(1), whole.suspects(2)) == ({1}, {0, 2}, {1}))
    assert whole.sees(0)[2]["connected"]
    assert whole.chaos("heal", "nsqd-2")["undo"] == ""
    eventually(whole.is_whole)
    assert [whole.suspects(number) for number in ALL] == [set()] * COUNT


def test_a_partition_that_nsqlookupd_takes_part_in(whole: Set) -> None:
    def known() -> set[int]:
        answer = httpx.get(f"http://{whole.lookupd}/nodes").json()
        return {int(one["http_port"]) for one in answer["producers"]}

    before = known()
    whole.chaos("partition", "2", "--lookupd")
    eventually(lambda: known() == {int(http.partition(":")[2]) for http in whole.http[:2]})
    whole.chaos("heal", "2")
    eventually(lambda: known() == before)
    assert len(before) == COUNT


def test_a_frozen_node_is_suspected_until_it_is_thawed(whole: Set) -> None:
    whole.chaos("freeze", "2")
    assert "nsqd-3 is not running: it is frozen" in whole.refused("freeze", "2")
    assert "it is frozen" in whole.refused("partition", "2")
    eventually(lambda: (whole.suspects(0), whole.suspects(1)) == ({2}, {2}))
    whole.chaos("thaw", "2")
    eventually(whole.is_whole)
    whole.chaos("freeze", "2", "--for", "1ms")
    whole.tool.wait_for_line("penstock up: nsqd-3 continues", times=2)
    assert "is not frozen: it is running" in whole.refused("thaw", "2")
