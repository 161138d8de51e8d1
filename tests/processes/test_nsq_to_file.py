"""nsq_to_file as a process: kills of each process, full disks, signals; and the names and contents of the original."""

import contextlib
import random
import signal
import socket
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.daemons import Daemon, Tool, eventually, nsqd, publish
from tests.originals import original
from tests.processes.test_cluster_chaos import small_disk
from tests.processes.to_file import OURS, QUICK, consumers, content, lines, make_channel, numbers, waiting

pytestmark = pytest.mark.process


class Publisher:
    """A thread that publishes numbered messages to a node, which may go and come back elsewhere."""

    def __init__(self, node: Daemon) -> None:
        self.node = node
        self.acked: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ends.wait(0.002):
            body = f"message-{number:06}"
            number += 1
            with contextlib.suppress(httpx.HTTPError):
                if httpx.post(f"http://{self.node.http}/pub?topic=t", content=body, timeout=5).status_code == 200:
                    self.acked.append(body)


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), marks=pytest.mark.campaign, id="plain"),
        pytest.param(("-gzip", "-rotate-interval", "500ms", "-work-dir", "WORK"), id="gzip"),
    ],
)
def test_every_message_is_in_a_file_over_kills_of_tool_nsqd_and_nsqlookupd(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    flags = tuple(str(work) if flag == "WORK" else flag for flag in flags)
    with contextlib.ExitStack() as stack:

        def start_lookupd(*addresses: str) -> Daemon:
            return stack.enter_context(Daemon("nsqlookupd", *addresses))

        lookupd = start_lookupd()
        addresses = ("-tcp-address", lookupd.tcp, "-http-address", lookupd.http)

        def start_nsqd() -> Daemon:
            found = ("-lookupd-tcp-address", addresses[1], "-broadcast-address", "127.0.0.1")
            return stack.enter_context(nsqd(tmp_path / "data", *found, "-requeue-on-disconnect", "-msg-timeout=5s"))

        def start_tool() -> Tool:
            poll = ("-consumer-opt", "lookupd_poll_interval,200ms")
            where = ("-output-dir", str(out), "-lookupd-http-address", addresses[3])
            return stack.enter_context(Tool(OURS, "-topic", "t", *where, *poll, *QUICK, *flags))

        node, tool = start_nsqd(), start_tool()
        make_channel(node)
        publisher = Publisher(node)
        stack.callback(publisher.stop)

        def wait_for_progress() -> None:
            written, acked = len(set(lines(out, work))), len(publisher.acked)
            eventually(lambda: len(publisher.acked) > acked + 50)
            eventually(lambda: len(set(lines(out, work))) > written + 50)

        wait_for_progress()
        tool.process.kill()
        tool.wait()
        tool = start_tool()
        wait_for_progress()
        node.kill()
        publisher.node = node = start_nsqd()
        eventually(lambda: consumers(node) == 1)
        wait_for_progress()
        lookupd.kill()
        wait_for_progress()
        lookupd = start_lookupd(*addresses)
        publisher.stop()
        eventually(lambda: waiting(node) == 0)
        assert tool.stop() == 0
    assert set(publisher.acked) <= set(lines(out, work))
    assert len(publisher.acked) > 200


@pytest.mark.parametrize(
    "flags", [pytest.param((), marks=pytest.mark.campaign), ("-gzip", "-rotate-size", "100000")], ids=["plain", "gzip"]
)
def test_on_a_full_disk_nothing_is_finished_and_each_line_is_written_once(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    out, others = tmp_path / "volume" / "out", tmp_path / "volume" / "others"
    noise = random.Random(1)  # gzip must not make it small
    bodies = [f"{body}.{noise.randbytes(500).hex()}" for body in numbers(300)]
    with small_disk(tmp_path / "volume", "2m"), nsqd(tmp_path / "data") as node:
        make_channel(node)
        where = ("-output-dir", str(out), "-nsqd-tcp-address", node.tcp)
        with Tool(OURS, "-topic", "t", *where, *QUICK, *flags) as tool:
            publish(node, "t", *bodies[:10])
            eventually(lambda: waiting(node) == 0)
            with others.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            with others.open("r+b") as file:
                file.truncate(others.stat().st_size - 8192)  # room for a few lines, not for all
            publish(node, "t", *bodies[10:])
            tool.wait_for_line("cannot write: [Errno 28]")
            assert waiting(node) > 200
            others.unlink()
            eventually(lambda: waiting(node) == 0)
            assert tool.stop() == 0
            assert sum("cannot write" in line for line in tool.lines) == 1
            assert sum("writing works again" in line for line in tool.lines) == 1
        assert lines(out) == bodies


def test_sighup_closes_the_file_and_the_next_message_opens_another(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with nsqd(tmp_path / "data") as node:
        make_channel(node)
        where = ("-output-dir", str(out), "-nsqd-tcp-address", node.tcp)
        with Tool(OURS, "-topic", "t", *where, "-filename-format=t.log", "-skip-empty-files", "-gzip-level=1") as tool:
            publish(node, "t", "one")
            eventually(lambda: lines(out) == ["one"])
            (out / "t.log").rename(out / "aside")  # as logrotate does
            publish(node, "t", "two")
            eventually(lambda: lines(out) == ["one", "two"])
            tool.process.send_signal(signal.SIGHUP)
            eventually(lambda: publish(node, "t", "three") or (out / "t.log").exists())
            eventually(lambda: waiting(node) == 0)
            assert tool.stop(signal.SIGINT) == 0
        assert waiting(node) == 0
    assert {*(out / "t.log").read_text().splitlines()} == {"three"}
    assert (out / "aside").read_text().startswith("one\ntwo\n")


def test_topics_are_found_by_their_pattern_and_new_ones_later(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Daemon("nsqlookupd") as lookupd:
        where = ("-lookupd-tcp-address", lookupd.tcp, "-broadcast-address", "127.0.0.1")
        with nsqd(tmp_path / "data", *where) as node, socket.create_server(("127.0.0.1", 0)) as refused:
            publish(node, "orders.a", "a")
            publish(node, "others", "no")
            down = f"127.0.0.1:{refused.getsockname()[1]}"
            refused.close()
            flags = (
                "-topic-pattern",
                "^orders",
                "-topic-refresh",
                "300ms",
                "-skip-empty-files",
                "-filename-format=<TOPIC>",
            )
            asked = ("-lookupd-http-address", lookupd.http, "-lookupd-http-address", down)
            with Tool(OURS, *flags, *asked, *QUICK, "-output-dir", str(out)) as tool:
                eventually(lambda: lines(out) == ["a"])
                tool.wait_for_line("skipping topic others (doesn't match pattern ^orders)")
                publish(node, "orders.b", "b")
                eventually(lambda: lines(out) == ["a", "b"])
                assert tool.stop() == 0
            assert sum("skipping topic" in line for line in tool.lines) == 1
    assert sorted(path.name for path in out.iterdir()) == ["orders.a", "orders.b"]


# beside the original: PENSTOCK_NSQ=DIRECTORY says where it is

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
    the_original = original("nsq_to_file")
    bodies = [*numbers(900), "two words", "ünïcode", "tab\tand {json: 1}"]
    with nsqd(tmp_path / "data") as node:
        make_channel(node, "ours", "theirs")
        publish(node, "t", *bodies)
        for name, command in (("ours", OURS), ("theirs", [the_original])):
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
    the_original = original("nsq_to_file")
    with nsqd(tmp_path / "data") as node:
        make_channel(node, "ours", "theirs")
        for round in range(3):
            publish(node, "t", f"in round {round}")
            for name, command in (("ours", OURS), ("theirs", [the_original])):
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
