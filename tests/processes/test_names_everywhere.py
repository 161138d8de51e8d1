"""Names that mean something elsewhere, in paths, markup, labels or terminals: wherever nsqd and nsqlookupd take or show one.

An illegal name is refused at every door and leaves no trace; a legal one is itself everywhere, and never a file's.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from urllib.parse import quote_from_bytes

import httpx
import pytest

from tests import web
from tests.daemons import ERROR, OK, Conversation, Daemon, eventually, nsqd, sized

pytestmark = pytest.mark.process

ILLEGAL = [
    b".", b"..", b"..#ephemeral", b"../../x", b"..\\x", b"/etc/passwd", b"a/b", b"C:x", b"~",
    b"x" * 65, b"x" * 200, b"x" * 55 + b"#ephemeral",
    b"#ephemeral", b"a#EPHEMERAL", b"a#ephemeral#ephemeral", b"a#",
    b"%2e%2e", b"%2e%2e%2fx", b"a%00", b"a%20b", b"a+b",
    b"\0", b"a\0b", b"a\0", b"a\rb", b"a\tb", b"\x1b[2J", b"\x7f",
    "\u202egpj".encode(), "\u0645\u0648\u0636\u0648\u0639".encode(), "\uff0e\uff0e".encode(), "\u212a".encode(),
    b"\xff\xfe", b"\xc0\xae\xc0\xae", b"\xed\xa0\x80",
    b"<script>alert(1)</script>", b'"><img>', b"&lt;", b"a'b", b'a"} 1', b"a{b}", b"a,b", b"a=b", b"a:b",
    b"*", b"$(id)", b"`id`", b"{{7*7}}",
]  # fmt: skip
LEGAL = [
    "...", "....", "-", "_", ".a", "a.", "-rf", "nsqd.dat", "con", "null", "0", "1e9", "x" * 64, "x" * 54 + "#ephemeral",
    "Case", "case", "CASE", "a#ephemeral",
]  # fmt: skip


HTTP = web.Client()  # one for all: each would read the machine's certificates anew


@pytest.fixture(scope="module", autouse=True)
def _one_client() -> Iterator[None]:
    yield
    HTTP.close()


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


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Nothing is ever created in it."""
    outer = tmp_path_factory.mktemp("outer")
    data = outer / "a" / "b" / "data"
    with Daemon("nsqlookupd") as lookupd, nsqd(data, "-lookupd-tcp-address", lookupd.tcp) as daemon:
        yield World(outer, data, daemon, lookupd)


def ids(names: list[bytes]) -> list[str]:
    return [quote_from_bytes(name)[:40] for name in names]


illegal = pytest.mark.parametrize("name", ILLEGAL, ids=ids(ILLEGAL))


# Illegal names


@illegal
def test_illegal_over_tcp(world: World, name: bytes) -> None:
    several = sized(struct.pack(">i", 1) + sized(b"x"))
    for code, line in {
        (b"E_BAD_TOPIC", b"PUB " + name + b"\n" + sized(b"x")),
        (b"E_BAD_TOPIC", b"MPUB " + name + b"\n" + several),
        (b"E_BAD_TOPIC", b"DPUB " + name + b" 1\n" + sized(b"x")),
        (b"E_BAD_TOPIC", b"SUB " + name + b" c\n"),
        (b"E_BAD_CHANNEL", b"SUB t " + name + b"\n"),
    }:
        with Conversation(world.nsqd, b"  V2" + line) as client:
            frame = client.frame()
            assert frame is not None
            assert frame[0] == ERROR
            assert frame[1].startswith(code + b" ")
            assert client.frame() is None
    nothing_was_made(world)


@illegal
def test_illegal_over_http(world: World, name: bytes) -> None:
    word = quote_from_bytes(name, safe="")
    for path, status in {
        f"/pub?topic={word}": 400,
        f"/mpub?topic={word}": 400,
        f"/topic/create?topic={word}": 400,
        f"/topic/empty?topic={word}": 400,
        f"/topic/delete?topic={word}": 404,
        f"/topic/pause?topic={word}": 404,
        f"/channel/create?topic={word}&channel=c": 400,
        f"/channel/create?topic=t&channel={word}": 400,
        f"/channel/delete?topic=t&channel={word}": 400,
    }.items():
        shows_nothing(HTTP.post(f"http://{world.nsqd.http}{path}", content=b"x"), status, name)
    for path in (f"/stats?topic={word}", f"/stats?topic={word}&format=json", f"/stats?topic=t&channel={word}"):
        shows_nothing(HTTP.get(f"http://{world.nsqd.http}{path}"), 200, name)
    for path in (f"/{word}", f"/config/{word}", f"/topic/{word}"):
        answer = HTTP.get(f"http://{world.nsqd.http}{path}", follow_redirects=False)
        assert answer.status_code in (301, 400, 404)
        assert answer.headers.get("location", "/").startswith("/")
        assert not answer.headers.get("location", "/").startswith("//")
    nothing_was_made(world)


@illegal
def test_illegal_at_nsqlookupd(world: World, name: bytes) -> None:
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


def shows_nothing(answer: httpx.Response, status: int, name: bytes) -> None:
    """The answer has this status, and nothing of the name in it that markup or terminals would understand."""
    assert answer.status_code == status, answer.text
    if len(name) > 3:
        assert name not in answer.content
    assert b"<" not in answer.content


def nothing_was_made(world: World) -> None:
    assert world.topics() == {}
    assert world.files() <= {"a/b/data/nsqd.dat"}


def test_the_log_of_all_that_has_no_line_of_a_strangers_making(world: World) -> None:
    assert all(re.match(r"\[nsq\w+\] \d{4}/", line) for line in world.nsqd.lines + world.lookupd.lines)
    assert all(line.isprintable() for text in (world.nsqd.stderr, world.lookupd.stderr) for line in text.splitlines())


# Legal names


def test_legal_names_are_themselves_everywhere(tmp_path: Path) -> None:
    data = tmp_path / "a" / "b" / "data"
    lasting = {name for name in LEGAL if not name.endswith("#ephemeral")}
    with Daemon("nsqlookupd") as lookupd:
        with nsqd(data, "-lookupd-tcp-address", lookupd.tcp) as daemon:
            world = World(tmp_path, data, daemon, lookupd)
            consumers = []
            for count, name in enumerate(LEGAL, 1):
                word = name.encode()
                consumer = Conversation(daemon, b"  V2SUB %s %s\n" % (word, word))
                assert consumer.frame() == OK
                consumers.append(consumer)
                with Conversation(daemon, b"  V2" + (b"PUB %s\n" % word + sized(b"x")) * count) as producer:
                    assert [producer.frame() for _ in range(count)] == [OK] * count
            assert world.topics() == {name: [name] for name in LEGAL}
            counted_apart(daemon)
            shown_as_text(daemon)
            labelled(daemon)
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


def escaped(name: str) -> str:
    return quote_from_bytes(name.encode(), safe="")


def found(daemon: Daemon, path: str, key: str) -> list[str]:
    names: list[str] = HTTP.get(f"http://{daemon.http}{path}").json()[key]
    return names


def counted_apart(daemon: Daemon) -> None:
    """Twins that differ in case only are three topics, each with its own messages."""
    for count, name in enumerate(LEGAL, 1):
        stats = HTTP.get(f"http://{daemon.http}/stats?format=json&topic={escaped(name)}").json()
        assert [(topic["topic_name"], topic["message_count"]) for topic in stats["topics"]] == [(name, count)]


def shown_as_text(daemon: Daemon) -> None:
    answer = HTTP.get(f"http://{daemon.http}/stats")
    assert answer.headers["content-type"].startswith("text/plain")
    shown = re.findall(r"^ +\[(\S+) *\]", answer.text, re.MULTILINE)
    assert {name for name in shown if name in LEGAL} == set(LEGAL)


def labelled(daemon: Daemon) -> None:
    text = HTTP.get(f"http://{daemon.http}/metrics").text
    assert set(re.findall(r'^nsqd_topic_depth\{topic="([^"]*)"\}', text, re.MULTILINE)) == set(LEGAL)
    assert set(re.findall(r'^nsqd_channel_depth\{channel="([^"]*)",topic="\1"\}', text, re.MULTILINE)) == set(LEGAL)


def test_labels_are_bounded(tmp_path: Path) -> None:
    with nsqd(tmp_path) as daemon, web.Client(base_url=f"http://{daemon.http}") as client:
        for number in range(450):
            assert client.post(f"/topic/create?topic=t{number}").status_code == 200
            assert client.post(f"/channel/create?topic=t{number}&channel=c").status_code == 200
        lines = client.get("/metrics").text.splitlines()
    labels = {label for line in lines for label in re.findall(r'topic="([^"]*)"', line)}
    assert 2 <= len(labels) <= 401
    assert len(lines) < 4_000


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
