"""Names that mean something elsewhere, in files, logs and at nsqlookupd: nobody believes them, and no file is named after one.

What the doors of nsqd make of them is in tests/nsqd/http/test_names.py.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_from_bytes

import httpx
import pytest

from tests.daemons import Conversation, Daemon, eventually, nsqd, sized
from tests.nsqd.http.test_names import ILLEGAL, shows_nothing

pytestmark = pytest.mark.process

HTTP = httpx.Client()  # one for all: each would read the machine's certificates anew


LOG = re.compile(r"(a/|a/b/)?data/log/(\d{20}\.\d+\.log|log\.id|reserve|spare\.\d+)")


@dataclass(frozen=True)
class World:
    """An nsqd, its nsqlookupd, and the directory that holds nothing but the directory of the nsqd's data."""

    outer: Path
    data: Path
    nsqd: Daemon
    lookupd: Daemon

    def files(self) -> set[str]:
        """All there are but the log's segments, which no name has to do with, as paths below `outer`."""
        found = {str(path.relative_to(self.outer)) for path in self.outer.rglob("*") if path.is_file()}
        return {path for path in found if not LOG.fullmatch(path)}

    def topics(self) -> dict[str, list[str]]:
        """The nsqd's topics and their channels, by /stats."""
        stats = HTTP.get(f"http://{self.nsqd.http}/stats?format=json").json()
        return {
            topic["topic_name"]: [channel["channel_name"] for channel in topic["channels"]] for topic in stats["topics"]
        }


# Illegal names


def test_no_illegal_name_leaves_a_file_or_a_line_of_a_strangers_making(tmp_path: Path) -> None:
    data = tmp_path / "a" / "b" / "data"
    with Daemon("nsqlookupd") as lookupd, nsqd(data, "-lookupd-tcp-address", lookupd.tcp) as daemon:
        world = World(tmp_path, data, daemon, lookupd)
        for name in ILLEGAL:
            with Conversation(daemon, b"  V2PUB " + name + b"\n" + sized(b"x")) as client:
                client.frames()
            HTTP.post(f"http://{daemon.http}/pub?topic={quote_from_bytes(name, safe='')}", content=b"x")
            refused_by_nsqlookupd(world, name)
        assert world.topics() == {}
        assert world.files() <= {"a/b/data/nsqd.dat"}
    assert all(re.match(r"\[nsq\w+\] \d{4}/", line) for line in daemon.lines + lookupd.lines)
    assert all(line.isprintable() for text in (daemon.stderr, lookupd.stderr) for line in text.splitlines())


def refused_by_nsqlookupd(world: World, name: bytes) -> None:
    word = quote_from_bytes(name, safe="")
    for path in (
        f"/topic/create?topic={word}",
        f"/channel/create?topic={word}&channel=c",
        f"/channel/create?topic=t&channel={word}",
    ):
        shows_nothing(HTTP.post(f"http://{world.lookupd.http}{path}"), 400, name)
    shows_nothing(HTTP.get(f"http://{world.lookupd.http}/lookup?topic={word}"), 400 if name == b"*" else 404, name)
    for line, code in (
        (b"REGISTER " + name + b" c\n", b"E_BAD_TOPIC "),
        (b"REGISTER t " + name + b"\n", b"E_BAD_CHANNEL "),
    ):
        with world.lookupd.connect() as sock:
            hello = json.dumps(
                {"broadcast_address": "n", "hostname": "h", "tcp_port": 1, "http_port": 2, "version": "1"}
            )
            sock.sendall(b"  V1IDENTIFY\n" + sized(hello.encode()) + line)
            answers = b""
            while data := sock.recv(4096):
                answers += data
        assert code in answers
    eventually(lambda: len(HTTP.get(f"http://{world.lookupd.http}/nodes").json()["producers"]) == 1)
    assert HTTP.get(f"http://{world.lookupd.http}/topics").json() == {"topics": []}


# Legal names


def found(daemon: Daemon, path: str, key: str) -> list[str]:
    names: list[str] = HTTP.get(f"http://{daemon.http}{path}").json()[key]
    return names


# Names from files and from nsqlookupd


def test_names_in_nsqd_dat_are_not_believed(tmp_path: Path) -> None:
    names = ["../../x", "..", "<script>", "a\0b", "x" * 65, "good"]
    topics = [
        {"name": name, "paused": False, "channels": [{"name": other, "paused": False} for other in names]}
        for name in names
    ]
    data = tmp_path / "a" / "data"
    data.mkdir(parents=True)
    (data / "nsqd.dat").write_text(json.dumps({"topics": topics, "version": "1.3.0"}))
    with nsqd(data) as daemon:
        world = World(tmp_path, data, daemon, daemon)
        assert world.topics() == {"good": ["good"]}
    assert world.files() == {"a/data/nsqd.dat"}


# What clients call themselves
