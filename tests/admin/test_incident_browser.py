"""The first minute of an incident in a browser: an open page shows true counts, or says how old they are.

Nodes of a real cluster take one message after the other, so that each depth on the page has its time. A page's own time counts,
not that of the test, whose machine may be slow.
"""

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.admin.conftest import Cluster, a_cluster
from tests.daemons import Daemon, publish
from tests.processes.test_cluster_chaos import small_disk
from tests.requirements import require

pytestmark = pytest.mark.process
WAIT = 90_000  # ms
FULL = 3  # %: at most so much of a disk without space is free
BEATS = 6  # of two seconds, in which a page is compared
CACHED = 6.0  # s: the oldest answer that a page may show as current
MOST_BEATS = 90  # until a page must have named what does not answer
_LAST = re.compile(r"Last figures: (\S+ \S+) UTC")
_COUNT_BEATS = "window.beats = 0; document.getElementById('live').addEventListener('beat', () => window.beats++)"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("incident")


@pytest.fixture(scope="module")
def cluster(directory: Path) -> Iterator[Cluster]:
    """Two nodes, the second one on a small disk if the tests run as root."""
    disk = small_disk(directory / "2", "32m") if os.geteuid() == 0 else nullcontext()
    with disk, a_cluster(directory) as found:
        found.channel("t", "c")
        yield found


class Truth:
    """The depth of topic t on each node over time."""

    def __init__(self, cluster: Cluster) -> None:
        self.depths: dict[str, list[tuple[float, int]]] = {node.http: [(time.time(), 0)] for node in cluster.nodes}

    def add(self, node: Daemon, count: int = 1) -> None:
        """Publish messages to a node."""
        publish(node, "t", *["x"] * count)
        self.note(node, count)

    def note(self, node: Daemon, count: int) -> None:
        known = self.depths[node.http]
        known.append((time.time(), known[-1][1] + count))

    def was_true(self, node: str, depth: int, at: float, within: float = CACHED) -> bool:
        """Return whether the node had this depth then, or in the seconds before; an answer takes up to a second."""
        known = self.depths[node]
        ends = [*(end for end, _ in known[1:]), at + 1]
        return any(
            one == depth and begin <= at + 1 and end >= at - within
            for (begin, one), end in zip(known, ends, strict=True)
        )


@pytest.fixture(scope="module")
def truth(cluster: Cluster) -> Truth:
    return Truth(cluster)


@pytest.fixture
def page(chrome: Browser, cluster: Cluster) -> Iterator[Page]:
    context = chrome.new_context(bypass_csp=True)  # for what the test evaluates
    page = context.new_page()
    page.goto(f"{cluster.url}/nodes")
    page.evaluate(_COUNT_BEATS)
    yield page
    context.close()


def compare(page: Page, truth: Truth) -> str:
    """Wait for the next beat, compare the depths with the truth, and return the text of the page."""
    page.evaluate("window.beats = 0")
    page.wait_for_function("() => window.beats > 0", timeout=WAIT)
    at, rows, text = page.evaluate(
        """() => [document.querySelector("#as-of time").dateTime, [...document.querySelectorAll("#live tbody tr")].map(row => {
          const cell = row.querySelector("td[data-label=Depth]");
          return [row.innerText, cell.innerText.split("\\n")[0], cell.querySelector("time")?.dateTime];
        }), document.body.innerText]"""
    )
    assert len(rows) == len(truth.depths)
    for row, depth, since in rows:
        (node,) = (one for one in truth.depths if one in row)
        age = re.search(rf"no answer from node \S*{node} .*up to (\d+) s old", text)
        last = _LAST.search(row)
        when = datetime.fromisoformat(since or (f"{last[1]}+00:00" if last else at)).timestamp()
        within = int(age[1]) + 1 if age else CACHED
        assert truth.was_true(node, int(depth.replace(",", "")), when, within), (row, text, truth.depths)
    return str(text)


def watch(page: Page, truth: Truth, living: list[Daemon], named: str) -> str:
    """Compare a page with the truth until it has named what does not answer, for BEATS at least. Returns its text."""
    texts: list[str] = []
    while len(texts) < BEATS or named not in texts[-1]:
        for node in living:
            truth.add(node)
        texts.append(compare(page, truth))
        assert len(texts) < MOST_BEATS, f"the page did not say {named!r}: {texts[-1]}"
    return texts[-1]


def test_a_node_hangs_after_a_burst(page: Page, cluster: Cluster, truth: Truth) -> None:
    hung, other = cluster.nodes
    watch(page, truth, [hung, other], "Data from")
    truth.add(hung, 100)
    hung.process.send_signal(signal.SIGSTOP)
    try:
        watch(page, truth, [other], "Node down")
    finally:
        hung.process.send_signal(signal.SIGCONT)
    row = page.locator("#live tbody tr", has_text=hung.http)
    expect(row).not_to_contain_text("DOWN", timeout=WAIT)
    watch(page, truth, [hung, other], "Data from")


def test_the_disk_of_a_node_is_full(page: Page, cluster: Cluster, truth: Truth, directory: Path) -> None:
    require("root")
    full, volume = cluster.nodes[1], directory / "2"
    row = page.locator("#live tbody tr", has_text=full.http)
    with (volume / "fill").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(volume).free)
    while httpx.post(f"http://{full.http}/pub?topic=t", content=b"x" * 100_000).status_code == 200:
        truth.note(full, 1)
    expect(row).to_contain_text("Node rejects messages", timeout=WAIT)
    watch(page, truth, [cluster.nodes[0]], "degraded")
    (percent,) = re.findall(r"B, (\d+) %", row.inner_text())
    assert int(percent) <= FULL
    (volume / "fill").unlink()
    expect(row).not_to_contain_text("Node rejects messages", timeout=WAIT)


def test_nsqlookupd_dies_and_then_a_node_after_a_burst(page: Page, cluster: Cluster, truth: Truth) -> None:
    killed, other = cluster.nodes
    cluster.lookupd.kill()
    text = watch(page, truth, [killed, other], "no answer from nsqlookupd")
    assert "The values of nodes that answer are current." in text
    assert "s old" not in text
    truth.add(killed, 100)
    killed.kill()
    text = watch(page, truth, [other], "Node down")
    assert re.search(r"Node down: .*messages .*as of \S+ \S+ UTC", text), text
