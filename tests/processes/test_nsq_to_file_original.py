"""nsq_to_file beside the original: the same names and the same contents. PENSTOCK_NSQ=DIRECTORY says where it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.daemons import eventually, nsqd, publish
from tests.originals import original
from tests.processes.to_file import OURS, content, lines, make_channel, numbers, waiting
from tests.tools import Tool

pytestmark = pytest.mark.process

COMMON = (
    "-datetime-format",
    "%Y",
    "-host-identifier",
    "<SHORT_HOST>-x",
    "-max-in-flight",
    "50",
    "-sync-interval",
    "1s",
)


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("-gzip",),
        ("-rotate-size", "5000"),
        ("-gzip", "-gzip-level", "1", "-rotate-size", "3000", "-work-dir", "WORK"),
        ("-filename-format", "<TOPIC>/%Y/<DATETIME>-<HOST><REV>", "-work-dir", "WORK"),
        ("-rotate-interval", "1h", "-filename-format", "<REV>.<TOPIC>"),
    ],
    ids=["plain", "gzip", "rotated", "all", "directories", "interval"],
)
def test_names_and_contents_are_the_originals(flags: tuple[str, ...], tmp_path: Path) -> None:
    theirs = original("nsq_to_file")
    bodies = [*numbers(900), "two words", "ünïcode", "tab\tand {json: 1}"]
    with nsqd(tmp_path / "data") as node:
        make_channel(node, "ours", "theirs")
        publish(node, "t", *bodies)
        for name, command in (("ours", OURS), ("theirs", [theirs])):
            out, work = tmp_path / name, tmp_path / f"{name}-work"
            chosen = [str(work) if flag == "WORK" else flag for flag in flags]
            where = ("-output-dir", str(out), "-nsqd-tcp-address", node.tcp, "-channel", name)
            with Tool(command, "-topic", "t", *where, *COMMON, *chosen) as tool:
                eventually(lambda name=name: waiting(node, channel=name) == 0)
                assert tool.stop() == 0
            eventually(lambda name=name: waiting(node, channel=name) == 0)
    found = [
        {
            str(path.relative_to(tmp_path / name)): path
            for path in sorted((tmp_path / name).rglob("*"))
            if path.is_file()
        }
        for name in ("ours", "theirs")
    ]
    assert found[0].keys() == found[1].keys()
    for name, path in found[0].items():
        assert content(path) == content(found[1][name]), name
    assert Counter(lines(tmp_path / "ours")) == Counter(bodies)


def test_a_restart_goes_on_as_the_original_does(tmp_path: Path) -> None:
    theirs = original("nsq_to_file")
    with nsqd(tmp_path / "data") as node:
        make_channel(node, "ours", "theirs")
        for round in range(3):
            publish(node, "t", f"in round {round}")
            for name, command in (("ours", OURS), ("theirs", [theirs])):
                for kind, flags in (("plain", ()), ("gzip", ("-gzip",))):
                    out = tmp_path / name / kind
                    channel = f"{name}-{kind}"
                    make_channel(node, channel)
                    where = ("-output-dir", str(out), "-nsqd-tcp-address", node.tcp, "-channel", channel)
                    with Tool(command, "-topic", "t", *where, *COMMON, *flags) as tool:
                        publish(node, "t", f"to {kind} in round {round}")
                        eventually(lambda channel=channel: waiting(node, channel=channel) == 0)
                        tool.wait_for_line("opening")
                        assert tool.stop() == 0
    names = [
        sorted(str(path.relative_to(tmp_path / name)) for path in (tmp_path / name).rglob("*.*"))
        for name in ("ours", "theirs")
    ]
    assert names[0] == names[1]
    assert len(names[0]) == 4
