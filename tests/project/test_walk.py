"""The walk of a message stays short: ARCHITECTURE.md has the counts, and no change makes it a tenth longer unnoticed."""

import re

import pytest

from tests.cases import each
from tests.daemons import ROOT
from tests.walk import Walk, walks

FIGURES = re.compile(r"\| (PUB|FIN) \| (\d+) \| (\d+) \| (\d+) \|")
SLACK = 1.1


@pytest.fixture(scope="module")
def walked() -> dict[str, Walk]:
    return dict(zip(("PUB", "FIN"), walks(), strict=True))


def documented() -> dict[str, tuple[int, int, int]]:
    """Calls, files and crossings by command, as ARCHITECTURE.md has them."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    return {name: (int(calls), int(files), int(crossings)) for name, calls, files, crossings in FIGURES.findall(text)}


@each("command", ["PUB", "FIN"])
def test_the_walk_is_no_longer_than_architecture_md_says(walked: dict[str, Walk], command: str) -> None:
    calls, files, crossings = documented()[command]
    walk = walked[command]
    found = f"{command}: {walk}; ARCHITECTURE.md says {calls} calls, {files} files, {crossings} crossings"
    assert walk.calls <= calls * SLACK, found
    assert walk.crossings <= crossings * SLACK, found
    assert walk.crossings * SLACK >= crossings, f"it has become shorter, write it down: {found}"


def test_the_tracer_sees_the_parts_that_every_publish_passes(walked: dict[str, Walk]) -> None:
    """Else a walk of nothing would be the shortest."""
    passed = {"nsqd/net/reactor.py", "nsqd/core/topic.py", "nsqd/core/channel/channel.py", "nsqd/storage/log/writer.py"}
    assert passed <= walked["PUB"].files
    assert walked["PUB"].crossings >= len(walked["PUB"].files) - 1
