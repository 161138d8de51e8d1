"""Names that mean something elsewhere, in files, logs and at nsqlookupd: nobody believes them, and no file is named after one.

What the doors of nsqd make of them is in tests/nsqd/http/test_names.py.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from urllib.parse import quote_from_bytes

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, eventually, nsqd, sized
from tests.nsqd.http.test_names import ILLEGAL, LEGAL, escaped, shows_nothing

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


def test_legal_names_are_themselves_at_nsqlookupd_and_over_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "a" / "b" / "data"
    lasting = {name for name in LEGAL if not name.endswith("#ephemeral")}
    with Daemon("nsqlookupd") as lookupd:
        with nsqd(data, "-lookupd-tcp-address", lookupd.tcp) as daemon:
            world = World(tmp_path, data, daemon, lookupd)
            consumers = []
            for name in LEGAL:
                word = name.encode()
                consumer = Conversation(daemon, b"  V2SUB %s %s\n" % (word, word))
                assert consumer.frame() == OK
                consumers.append(consumer)
            assert world.topics() == {name: [name] for name in LEGAL}
            eventually(lambda: set(found(lookupd, "/topics", "topics")) == set(LEGAL))
            for name in LEGAL:
                eventually(lambda name=name: found(lookupd, f"/channels?topic={escaped(name)}", "channels") == [name])
            for consumer in consumers:
                consumer.close()
            eventually(lambda: set(world.topics()) == lasting)
        saved = json.loads((data / "nsqd.dat").read_text())
        assert {topic["name"] for topic in saved["topics"]} == lasting
        assert {entry["name"] for topic in saved["topics"] for entry in topic["channels"] or ()} == lasting
        assert world.files() == {"a/b/data/nsqd.dat"}
        with nsqd(data) as daemon:
            assert World(tmp_path, data, daemon, lookupd).topics() == {name: [name] for name in lasting}


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


class Liar:
    """A nsqlookupd that knows these channels of every topic."""

    def __init__(self, channels: list[object]) -> None:
        answer = json.dumps({"channels": channels}).encode()

        class Http(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        class Tcp(BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(4)
                while data := self.request.recv(65536):
                    if b"IDENTIFY" in data:
                        self.request.sendall(sized(json.dumps(identity).encode()))
                    self.request.sendall(sized(b"OK") * len(re.findall(rb"^(?:REGISTER|PING)", data, re.MULTILINE)))

        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), Http), ThreadingTCPServer(("127.0.0.1", 0), Tcp)]
        http, tcp = (server.server_address[1] for server in self._servers)
        identity = {"broadcast_address": "127.0.0.1", "tcp_port": tcp, "http_port": http, "version": "1.3.0"}
        self.address = f"127.0.0.1:{tcp}"
        for server in self._servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


def test_names_from_a_nsqlookupd_are_not_believed(tmp_path: Path) -> None:
    names = [name.decode("latin-1") for name in ILLEGAL]
    with contextlib.closing(Liar([*names, "gone#ephemeral", 7, None, ["x"], "good"])) as liar:
        data = tmp_path / "a" / "data"
        with nsqd(data, "-lookupd-tcp-address", liar.address) as daemon:
            world = World(tmp_path, data, daemon, daemon)
            daemon.wait_for_line("LOOKUPD")
            assert HTTP.post(f"http://{daemon.http}/pub?topic=t", content=b"x").text == "OK"
            eventually(lambda: "good" in world.topics()["t"])
            assert set(world.topics()["t"]) <= {"good", "7", "None"}
        assert world.files() == {"a/data/nsqd.dat"}


# What clients call themselves

STRANGE = "\u202e<script>alert(1)</script>\n[nsqd] 2026/01/01 00:00:00.000000 FATAL: gone\x1b[2J\0'\"\\&"


def test_what_clients_call_themselves_is_only_text(tmp_path: Path) -> None:
    identity = dict.fromkeys(("client_id", "hostname", "user_agent"), STRANGE)
    hello = b"  V2IDENTIFY\n" + sized(json.dumps(identity).encode()) + b"SUB t c\n"
    with nsqd(tmp_path, "-log-level", "debug") as daemon, Conversation(daemon, hello) as client:
        assert [client.frame(), client.frame()] == [OK, OK]
        answer = HTTP.get(f"http://{daemon.http}/stats?format=json")
        shown = answer.json()["topics"][0]["channels"][0]["clients"][0]
        assert {key: shown[key] for key in identity} == identity
        assert b"<" not in answer.content
        page = HTTP.get(f"http://{daemon.http}/stats")
        assert page.headers["content-type"].startswith("text/plain")
        assert all(character.isprintable() or character in "\n\t" for character in page.text)
        assert not any(line.startswith("[nsqd]") for line in page.text.splitlines())
    assert all(re.match(r"\[nsqd\] \d{4}/", line) and "FATAL" not in line[:45] for line in daemon.lines)
