"""docs/operations/rehearsal-failover.md is true: a node dies, one hangs, one is cut off, and consumers get everything once.

Meanwhile others publish to all nodes and consume, in a topic of their own, and lose nothing either.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import httpx
import pytest

from penstock.client import Consumer, Settings
from tests.daemons import ROOT, eventually
from tests.processes.test_penstock_up import free_offset
from tests.processes.test_rehearsal import BLOCK, shell
from tests.tools import Tool, ours

pytestmark = pytest.mark.process

PAGE = ROOT / "docs/operations/rehearsal-failover.md"
# What the last line of each block is; None: it prints nothing that matters
ENDS = (None, "1000", None, "2000", "3000", "4000", "5000", "6000")


SECOND_SET = "## Two of three nodes die"
HTTP_PORTS = (4151, 4251, 4351)
LOOKUPD_PORT = 4161
ANSWER = 60.0  # s: a node hangs meanwhile
PATIENCE = 120.0  # s until the load goes on, and until all that was acknowledged has come


class Load:
    """Publishes to each node of the set, and consumes what nsqlookupd knows, until it is stopped."""

    def __init__(self, offset: int) -> None:
        self.acknowledged: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.came: set[bytes] = set()
        self.unexpected: list[str] = []
        self._offset = offset
        self._stops = [threading.Event(), threading.Event()]
        self._publishers = [threading.Thread(target=self._publish, args=(port,)) for port in HTTP_PORTS]
        self._consumer = threading.Thread(target=self._consume)

    def __enter__(self) -> Load:
        for port in HTTP_PORTS:
            for path in ("topic/create?topic=load&replicate=2", "channel/create?topic=load&channel=c"):
                httpx.post(f"http://127.0.0.1:{port + self._offset}/{path}").raise_for_status()
        for thread in (*self._publishers, self._consumer):
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for stop in self._stops:
            stop.set()
        for thread in (*self._publishers, self._consumer):
            thread.join()

    def goes_on(self) -> None:
        """Wait until each node has acknowledged more, and more has come."""
        before = self._acknowledged_by(), len(self.came)
        eventually(
            lambda: all(now >= then + 30 for now, then in zip(self._acknowledged_by(), before[0], strict=True)),
            PATIENCE,
        )
        eventually(lambda: len(self.came) >= before[1] + 90, PATIENCE)

    def _acknowledged_by(self) -> list[int]:
        bodies = list(self.acknowledged)
        return [sum(body.endswith(b" of %d" % port) for body in bodies) for port in HTTP_PORTS]

    def check(self) -> None:
        """Publish no more, and check that all that was acknowledged comes, and nothing that was refused."""
        self._stops[0].set()
        for thread in self._publishers:
            thread.join()
        try:
            eventually(lambda: self.acknowledged <= self.came, PATIENCE)
        except AssertionError:
            stats = [
                httpx.get(f"http://127.0.0.1:{port + self._offset}/stats?format=json&topic=load").text
                for port in HTTP_PORTS
            ]
            raise AssertionError(f"did not come: {sorted(self.acknowledged - self.came)}; {stats}") from None
        assert not self.refused & self.came
        assert not self.unexpected

    def _publish(self, port: int) -> None:
        url, number = f"http://127.0.0.1:{port + self._offset}/pub?topic=load", 0
        while not self._stops[0].wait(0.02):
            number += 1
            body = b"%d of %d" % (number, port)
            try:
                answer = httpx.post(url, content=body, timeout=ANSWER)
            except httpx.HTTPError:  # it may be there
                continue
            if answer.status_code == 200:
                self.acknowledged.add(body)
            elif answer.text == '{"message":"NOREPL"}':
                self.refused.add(body)
            elif answer.status_code != 503:
                self.unexpected.append(answer.text)

    def _consume(self) -> None:
        lookupd = [f"127.0.0.1:{LOOKUPD_PORT + self._offset}"]
        with Consumer(
            "load", "c", [], lookupd, max_in_flight=50, settings=Settings(lookupd_poll_interval_s=1)
        ) as consumer:
            while not self._stops[1].is_set():
                for message in consumer.poll(0.2):
                    self.came.add(message.body)
                    message.finish()


def rehearse(text: str, ends: tuple[str | None, ...], place: Path, *options: str) -> list[str]:
    """Run the blocks of a part of the page with a cluster of its own; return the ids of the logs that its nodes own then."""
    offset = free_offset(3)
    words = ("--nodes", "3", "--chaos", "--port-offset", str(offset), *options)
    with Tool([*ours("penstock"), "up", *words, "--data", str(place / "data")]) as tool:
        try:
            eventually(lambda: any("Ctrl-C" in line for line in tool.out))
            with Load(offset) as load:
                load.goes_on()
                for block, end in zip(BLOCK.findall(text), ends, strict=True):
                    said = shell(block, offset, place)
                    assert end is None or said.splitlines()[-1] == end
                load.goes_on()
                load.check()
            found = [httpx.get(f"http://127.0.0.1:{port + offset}/cluster").json() for port in HTTP_PORTS]
            return [one["log_id"] for figures in found for one in figures["led"]]
        finally:
            tool.stop(signal.SIGINT)


@pytest.mark.campaign
def test_the_rehearsal_loses_nothing_and_gives_nothing_twice(tmp_path: Path) -> None:
    rehearse(PAGE.read_text().partition(SECOND_SET)[0], ENDS, tmp_path)


@pytest.mark.campaign
def test_two_of_three_nodes_die_and_each_log_has_one_leader_when_they_are_back(tmp_path: Path) -> None:
    logs = rehearse(
        PAGE.read_text().partition(SECOND_SET)[2], ("1000", "2000"), tmp_path, "--set", "failover-quorum=any"
    )
    assert len(logs) == len({*logs}) >= 3
