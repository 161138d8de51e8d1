"""Real daemons on unix sockets: the requested files, their permissions, and clients known by the machine's user alone."""

import asyncio
import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from penstock import aio
from penstock.client import Producer
from tests.admin.conftest import nsqadmin
from tests.auth_files import bearer, write
from tests.certificates import Authority
from tests.daemons import OK, Conversation, Daemon, nsqd, sized
from tests.disque_client import Client
from tests.requirements import require

pytestmark = pytest.mark.process

SIDECAR, STRANGER, GROUP = 12345, 23456, 34567  # users of the machine, who need no names, and a group
SOCKETS = (
    f'[[socket]]\nname = "sidecar"\nuid = [{SIDECAR}]\nroles = ["producer"]\ntopics = ["work"]\n'
    '[[socket]]\nname = "own"\nuid = 0\nroles = ["node", "admin"]\n'
)


@contextmanager
def as_user(user: int, group: int) -> Iterator[None]:
    """Be another user of the machine for a moment: this process could not even import a module meanwhile."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(group)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def connected(path: Path | str, user: int = 0, group: int = 0) -> socket.socket:
    """A connection that a user of the machine has made. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(10)
    try:
        with as_user(user, group or user):
            sock.connect(str(path))
    except OSError:
        sock.close()
        raise
    return sock


class Http(HTTPConnection):
    """A connection of a user of the machine to an HTTP API at a unix socket."""

    def __init__(self, path: Path, user: int = 0) -> None:
        super().__init__("localhost")
        self._place = path, user

    def connect(self) -> None:
        self.sock = connected(*self._place)

    def ask(self, method: str, target: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
        """Send a request, and return the status and the answer's body."""
        self.request(method, target, body, headers)
        answer = self.getresponse()
        return answer.status, answer.read().decode()


def ask(path: Path, user: int, method: str, target: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """Send a request of a user on a connection of its own, and return the status and the answer's body."""
    with closing(Http(path, user)) as client:
        return client.ask(method, target, body, **headers)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may enter; those of pytest are its owner's alone."""
    require("root")
    path = Path(tempfile.mkdtemp(prefix="penstock-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def write_rights(path: Path, *roles: str, sockets: str = SOCKETS) -> None:
    """An auth file with a token for each of the roles, and the users of unix sockets."""
    write(path, *roles)
    with path.open("a") as file:
        file.write(sockets)


# the files


def test_every_listener_has_the_mode_and_the_owner_that_were_asked_for(place: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")

    def at(name: str) -> str:
        return f"unix:{place}/{name}?mode=660&user={SIDECAR}&group={GROUP}"

    flags = [
        *authority.flags(), "-tcp-address", at("tcp"), "-http-address", at("http"), "-https-address", at("https"),
        "-beanstalk-address", at("jobs"), "-beanstalk-tls-address", at("jobs-tls"), "-disque-address", at("queues"),
    ]  # fmt: skip
    with ExitStack() as stack:
        listens = ("TCP", "HTTP", "HTTPS", "BEANSTALK", "DISQUE")
        node = stack.enter_context(nsqd(tmp_path / "data", *flags, listens=listens))
        stack.enter_context(Daemon("nsqlookupd", "-tcp-address", at("lookup"), "-http-address", at("lookup-http")))
        stack.enter_context(nsqadmin("-http-address", at("admin"), "-nsqd-http-address", "127.0.0.1:1"))
        names = {"tcp", "http", "https", "jobs", "jobs-tls", "queues", "lookup", "lookup-http", "admin"}
        assert {path.name for path in place.iterdir()} == names
        assert node.addresses["HTTPS"] == str(place / "https")
        for path in place.iterdir():
            found = path.stat()
            assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o660, SIDECAR, GROUP), path
            connected(path, SIDECAR).close()
            connected(path, STRANGER, GROUP).close()
            with pytest.raises(PermissionError):
                connected(path, STRANGER)
        for name in ("http", "lookup-http", "admin"):
            assert ask(place / name, SIDECAR, "GET", "/ping") == (200, "OK")
        with At(place / "tcp", SIDECAR, b"SUB t c\n") as client:
            assert client.frame() == OK
            stats = json.loads(ask(place / "http", SIDECAR, "GET", "/stats?format=json")[1])
            assert stats["topics"][0]["channels"][0]["clients"][0]["remote_address"] == "@"
            info = json.loads(ask(place / "http", SIDECAR, "GET", "/info")[1])
            assert (info["tcp_port"], info["http_port"]) == (-1, -1)
        secure(authority, place / "https", b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", b"OK")
        secure(authority, place / "jobs-tls", b"use t\r\n", b"USING t\r\n")
    assert list(place.iterdir()) == []


def secure(authority: Authority, path: Path, said: bytes, reply: bytes) -> None:
    """Send over TLS at a unix socket, and compare the end of the response."""
    plain = connected(path)
    with authority.client().wrap_socket(plain, server_hostname="localhost") as client:
        client.sendall(said)
        assert client.recv(1000).endswith(reply)


# known users


class At(Conversation):
    """A client of NSQ at a unix socket, of a user of the machine."""

    def __init__(self, path: Path, user: int, data: bytes) -> None:
        self._place = path, user
        super().__init__(self, b"  V2" + data)  # type: ignore[arg-type]

    def connect(self) -> socket.socket:
        return connected(*self._place)


class Queue(Client):
    """A client of Disque, of a user of the machine."""

    def __init__(self, path: Path, user: int) -> None:
        super().__init__(str(path))
        self._socket.close()
        self._socket = connected(path, user)


def read(sock: socket.socket, lines: int) -> bytes:
    said = b""
    while said.count(b"\r\n") < lines:
        said += sock.recv(1000)
    return said


PUB = b"PUB work\n" + sized(b"x")


def test_a_sidecar_may_publish_on_every_port_until_its_user_is_unknown(place: Path, tmp_path: Path) -> None:
    """The rights of a user by each protocol are in tests/nsqd/protocols/rights/test_sockets.py."""
    file = tmp_path / "auth.toml"
    write_rights(file, "viewer")
    tcp, http, jobs, queues = paths = [place / name for name in ("tcp", "http", "jobs", "queues")]
    flags = ["-auth-file", str(file)]
    for name, path in zip(("tcp", "http", "beanstalk", "disque"), paths, strict=True):
        flags += [f"-{name}-address", f"unix:{path}?mode=666"]
    flags += ["-tcp-address", "127.0.0.1:0"]
    with ExitStack() as stack:
        node = stack.enter_context(nsqd(tmp_path / "data", *flags, listens=("TCP", "HTTP", "DISQUE")))
        client = stack.enter_context(At(tcp, SIDECAR, PUB))
        assert client.frame() == OK
        with At(tcp, STRANGER, PUB) as stranger:
            assert stranger.frame() == (1, b"E_AUTH_FIRST AUTH required before PUB")
        with Conversation(node, b"  V2" + PUB) as stranger:  # over TCP no client is known by a user
            assert stranger.frame() == (1, b"E_AUTH_FIRST AUTH required before PUB")
        publish_with_our_clients(tcp)
        worker = stack.enter_context(connected(jobs, SIDECAR))
        worker.sendall(b"use work\r\nput 0 0 9 1\r\nx\r\nwatch work\r\n")
        said = read(worker, 3)
        assert (said[:21], said[-14:]) == (b"USING work\r\nINSERTED ", b"UNAUTHORIZED\r\n")
        with Queue(queues, SIDECAR) as queue:
            assert str(queue.do("ADDJOB", "work", "x", 0)).startswith("D-")
        with Queue(queues, STRANGER) as queue:
            assert queue.do("ADDJOB", "work", "x", 0) == "-NOAUTH Authentication required."
        kept = stack.enter_context(closing(Http(http, SIDECAR)))
        assert kept.ask("POST", "/pub?topic=work", b"x") == (200, "OK")
        assert kept.ask("POST", "/pub?topic=work&defer=1", b"x") == (200, "OK")  # from now on in the HTTP thread
        write_rights(file, "viewer", sockets="")
        assert client.frames() == [(1, b"E_UNAUTHORIZED AUTH is no longer valid")]
        assert read(worker, 1) == b"UNAUTHORIZED\r\n"
        assert worker.recv(100) == b""
        assert kept.ask("POST", "/pub?topic=work", b"x")[0] == 401
        assert kept.ask("GET", "/ping") == (200, "OK")


def publish_with_our_clients(path: Path) -> None:
    for address in (str(path), f"unix:{path}"):
        with Producer([address]) as producer:
            producer.publish("work", b"x")

        async def publish(address: str = address) -> None:
            async with aio.Producer([address]) as producer:
                await producer.publish("work", b"x")

        asyncio.run(publish())


# /metrics


@pytest.mark.parametrize("program", ["nsqd", "nsqlookupd"])
def test_metrics_need_the_right_to_stats(program: str, tmp_path: Path) -> None:
    write(tmp_path / "auth.toml", "viewer", "consumer")
    flags = ("-auth-file", str(tmp_path / "auth.toml"), "-metrics-auth")
    with Daemon(program, *flags, *(("-data-path", str(tmp_path)) if program == "nsqd" else ())) as daemon:
        url = f"http://{daemon.http}"
        assert httpx.get(f"{url}/metrics").status_code == 401
        assert httpx.get(f"{url}/metrics", headers=bearer("consumer")).status_code == 403
        assert "# TYPE" in httpx.get(f"{url}/metrics", headers=bearer("viewer")).text
        for open_path in ("/ping", "/livez", "/readyz", "/info"):
            assert httpx.get(f"{url}{open_path}").status_code == 200
