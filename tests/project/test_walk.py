"""The walks of messages and jobs stay short: a test fails if one is a tenth longer than ARCHITECTURE.md says."""

import re
import sys

import pytest

from tests.cases import each
from tests.daemons import ROOT
from tests.walk import Walk, walks

COMMANDS = ["PUB", "FIN", "ADDJOB", "GETJOB", "ACKJOB", "put", "reserve", "delete"]
TABLE = re.compile(r"^\| (\| PUB.*) \|\n.*\n\| calls .*? \| (.*) \|\n\| bytecodes \| (.*) \|$", re.MULTILINE)
SLACK = 1.1
UNPACKS = "nsqd/core/work_queue/job.py:unpack"  # makes an object of a job


@pytest.fixture(scope="module")
def walked() -> dict[str, Walk]:
    return walks()


def documented() -> dict[str, tuple[int, int, int, int]]:
    """Calls, files, crossings and bytecodes by command, as ARCHITECTURE.md has them."""
    table = TABLE.search((ROOT / "ARCHITECTURE.md").read_text())
    names, calls, bytecodes = (row.removeprefix("| ").split(" | ") for row in table.groups())
    found = {}
    for name, cell, count in zip(names, calls, bytecodes, strict=True):
        a, b, c = map(int, cell.split(" / "))
        found[name] = a, b, c, int(count.replace(",", ""))
    return found


@each("command", COMMANDS)
def test_the_walk_is_no_longer_than_architecture_md_says(walked: dict[str, Walk], command: str) -> None:
    calls, files, crossings, bytecodes = documented()[command]
    walk = walked[command]
    found = f"{command}: {walk}; ARCHITECTURE.md: {calls} calls, {files} files, {crossings} crossings, {bytecodes} bytecodes"
    assert walk.calls <= calls * SLACK, found
    assert walk.crossings <= crossings * SLACK, found
    assert walk.crossings * SLACK >= crossings, f"it has become shorter, write it down: {found}"
    if sys.version_info[:2] == (3, 11):
        assert walk.bytecodes <= bytecodes * SLACK, found
        assert walk.bytecodes * SLACK >= bytecodes, f"it has become shorter, write it down: {found}"


@each("command", COMMANDS[2:])
def test_a_command_of_a_job_writes_one_record_and_makes_no_object_of_the_job(
    walked: dict[str, Walk], command: str
) -> None:
    walk = walked[command]
    assert walk.records == 1
    assert not any(line.endswith(UNPACKS) for line in walk.trace)
    assert any("nsqd/core/work_queue/job_pages.py" in line for line in walk.trace)


def test_the_tracer_sees_the_parts_that_every_publish_passes(walked: dict[str, Walk]) -> None:
    """Else a walk of nothing would be the shortest."""
    passed = {"nsqd/net/reactor.py", "nsqd/core/topic.py", "nsqd/core/channel/channel.py", "nsqd/storage/log/writer.py"}
    assert passed <= walked["PUB"].files
    assert walked["PUB"].crossings >= len(walked["PUB"].files) - 1
