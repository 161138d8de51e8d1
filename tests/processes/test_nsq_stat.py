"""nsq_stat as a process: the original's bytes (PENSTOCK_NSQ=DIRECTORY), signals."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import Conversation, Daemon, Tool, nsqd, our_command, post, publish
from tests.originals import original

pytestmark = pytest.mark.process

OURS = our_command("nsq_stat")
NAMES = ("-topic", "t", "-channel", "c", "-interval", "300ms", "-http-client-request-timeout", "60s")


def make_channel(*nodes: Daemon) -> None:
    for node in nodes:
        post(node, "/topic/create", topic="t")
        post(node, "/channel/create", topic="t", channel="c")


def run(command: list[str], *flags: str) -> tuple[int, str, str]:
    with Tool(command, *NAMES, *flags) as tool:
        code = tool.wait()
    return code, "".join(tool.out), "".join(tool.lines)


@pytest.fixture
def addresses(tmp_path: Path) -> Iterator[list[tuple[str, ...]]]:
    """Two nodes with messages in every state. Yields the flags that lead to them: by nsqd, and by nsqlookupd."""
    with Daemon("nsqlookupd") as lookupd:
        where = ("-lookupd-tcp-address", lookupd.tcp, "-broadcast-address", "127.0.0.1")
        with nsqd(tmp_path / "a", *where) as one, nsqd(tmp_path / "b", *where) as two:
            for node in (one, two):
                node.wait_for_line("connected, its HTTP API is at")
            make_channel(one, two)
            publish(one, "t", *"abcdefg")
            publish(two, "t", *"hij")
            with Conversation(one, b"  V2SUB t c\nRDY 2\n") as consumer:
                consumer.frame()
                consumer.send(b"REQ %s 600000\n" % consumer.message().id)
                consumer.message()
                consumer.message()
                by_nsqd = ("-nsqd-http-address", one.http, "-nsqd-http-address", two.http)
                yield [by_nsqd, ("-lookupd-http-address", lookupd.http)]


def test_rows_are_the_sums_of_all_nodes(addresses: list[tuple[str, ...]]) -> None:
    for flags in addresses:
        code, out, err = run(OURS, "-count=2", *flags)
        assert (code, err) == (0, "")
        rows = out.splitlines()
        assert len(rows) == 4
        assert rows[2] == rows[3]
        assert rows[2].split() == ["0", "0", "|", "7", "7", "0", "2", "1", "|", "1", "0", "10", "1"]


def test_the_output_is_the_originals_byte_for_byte(addresses: list[tuple[str, ...]]) -> None:
    original_command = [original("nsq_stat")]
    for flags in addresses:
        wanted = run(original_command, "-count", "27", "-interval=20ms", *flags)
        assert wanted[1].count("ingress") == 2
        assert run(OURS, "-count", "27", "-interval=20ms", *flags) == wanted


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_in_every_state(number: int, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = ("-nsqd-http-address", f"127.0.0.1:{silent.getsockname()[1]}")
        with Tool(OURS, *NAMES, *where) as tool, silent.accept()[0]:
            assert tool.stop(number) == 0


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    with nsqd(tmp_path / "a") as node:
        make_channel(node)
        with Tool(["sh", "-c", 'exec "$@" | head -n 1', "sh", *OURS], *NAMES, "-nsqd-http-address", node.http) as tool:
            assert tool.wait() == 0
        assert len(tool.out) == 1
        assert tool.lines == []
