"""Real daemons whose auth file has limits: a producer that sends too much, its answers, and the file that changes."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from shared.auth.tokens import digest
from tests.admin.conftest import nsqadmin
from tests.daemons import START_TIMEOUT, Conversation, Daemon, eventually, nsqd
from tests.nsqd.protocols.nsq.wire import body
from tests.processes.test_rights import FLAGS, bearer, token

pytestmark = pytest.mark.process

ENTRY = '[[token]]\nname = "{0}"\nsha256 = "{1}"\nroles = ["{2}"]\n'


def write(path: Path, limits: str = "") -> None:
    """An auth file with a producer `slow` that may have limits, one that has none, and a viewer."""
    entries = [ENTRY.format(name, digest(token(name).encode()), role) for name, role in (
        ("viewer", "viewer"), ("free", "producer"), ("slow", "producer"),
    )]  # fmt: skip
    path.write_text("".join(entries) + (f"limits = {limits}\n" if limits else ""))
    path.chmod(0o600)


def start(stack: ExitStack, directory: Path, limits: str) -> tuple[Daemon, Path]:
    file = directory / "auth.toml"
    write(file, limits)
    return stack.enter_context(
        nsqd(directory / "data", "-auth-file", str(file), *FLAGS, listens=("TCP", "HTTP", "DISQUE"))
    ), file


def hello(name: str) -> bytes:
    return b"  V2AUTH\n" + body(token(name).encode())


def use_of(node: Daemon, name: str) -> dict[str, int]:
    answer = httpx.get(f"http://{node.http}/identities", headers=bearer("viewer"))
    return next((one for one in answer.json()["identities"] if one["name"] == name), {})


def fill(sock: socket.socket, data: bytes) -> None:
    """Send until the node does not read any more."""
    sock.settimeout(0.5)
    try:
        while True:
            sock.sendall(data)
    except TimeoutError:
        pass


def test_a_producer_that_sends_too_much_slows_no_other(tmp_path: Path) -> None:
    with ExitStack() as stack:
        node, _ = start(stack, tmp_path, "{ messages = 10 }")
        slow = stack.enter_context(node.connect())
        slow.sendall(hello("slow"))
        fill(slow, (b"PUB slow\n" + body(bytes(1000))) * 100)
        free = stack.enter_context(Conversation(node, hello("free")))
        assert free.frame() is not None
        for _ in range(500):  # each waits for its answer
            free.send(b"PUB free\n" + body(b"x"))
            assert free.frame() == (0, b"OK")
        used, other = use_of(node, "slow"), use_of(node, "free")
        assert other["messages"] == 500
        assert other["throttled"] == 0
        assert used["throttled"] > 0
        assert used["throttled_ms"] > 0
        assert used["messages"] < 500 < 1000  # what one read brought; thousands are on their way
        assert (used["connections"], used["bytes"]) == (1, 1000 * used["messages"])


@pytest.mark.parametrize("route", ["/pub?topic=t", "/pub?topic=t&defer=5", "/mpub?topic=t", "/mpub?topic=t&binary=1"])
def test_http_says_429_and_publishes_nothing(tmp_path: Path, route: str) -> None:
    binary = b"\0\0\0\1\0\0\0\1x"
    with ExitStack() as stack:
        node, _ = start(stack, tmp_path, "{ messages = 100 }")
        url = f"http://{node.http}"
        burst = httpx.post(f"{url}/mpub?topic=t", content=b"x\n" * 100_000, headers=bearer("slow"))
        assert burst.text == "OK"  # more than there is, but nothing was used before
        for _ in range(2):
            refused = httpx.post(url + route, content=binary if "binary" in route else b"x", headers=bearer("slow"))
            assert (refused.status_code, refused.json()) == (429, {"message": "TOO_MANY_MESSAGES"})
            assert 900 < int(refused.headers["retry-after"]) <= 999
        assert httpx.post(url + "/pub?topic=t", content=b"x", headers=bearer("free")).text == "OK"
        assert use_of(node, "slow")["messages"] == 100_000
        assert use_of(node, "slow")["refused"] == 2
        stats = httpx.get(f"{url}/stats?format=json&topic=t", headers=bearer("viewer")).json()
        assert stats["topics"][0]["message_count"] == 100_001


def test_too_many_connections_are_refused_on_all_ports(tmp_path: Path) -> None:
    with ExitStack() as stack:
        node, _ = start(stack, tmp_path, "{ connections = 2 }")
        first = stack.enter_context(Conversation(node, hello("slow")))
        assert first.frame() is not None
        beanstalk = stack.enter_context(node.connect("BEANSTALK"))
        beanstalk.sendall(b"auth %s\r\n" % token("slow").encode())
        assert beanstalk.recv(100) == b"AUTHORIZED\r\n"
        third = stack.enter_context(Conversation(node, hello("slow")))
        assert third.frame() == (1, b"E_AUTH_FAILED AUTH too many connections")
        assert third.frame() is None
        other = stack.enter_context(node.connect("BEANSTALK"))
        other.sendall(b"auth %s\r\nput 0 0 9 1\r\nx\r\n" % token("slow").encode())
        said = b""
        while said.count(b"\n") < 2:
            said += other.recv(100)
        assert said == b"UNAUTHORIZED\r\nUNAUTHORIZED\r\n"
        disque = stack.enter_context(node.connect("DISQUE"))
        disque.sendall(b"AUTH %s\r\n" % token("slow").encode())
        assert disque.recv(100) == b"-ERR too many connections\r\n"
        assert use_of(node, "slow")["refused"] == 3
        beanstalk.close()
        eventually(lambda: use_of(node, "slow")["connections"] == 1)
        disque.sendall(b"AUTH %s\r\n" % token("slow").encode())
        assert disque.recv(100) == b"+OK\r\n"


def test_limits_change_with_the_file(tmp_path: Path) -> None:
    with ExitStack() as stack:
        node, file = start(stack, tmp_path, "{ messages = 1 }")
        slow = stack.enter_context(Conversation(node, hello("slow")))
        assert slow.frame() is not None
        pub = b"PUB t\n" + body(b"x")
        slow.send(pub * 100)
        assert [slow.frame() for _ in range(100)] == [(0, b"OK")] * 100
        slow.send(pub * 1000)
        assert use_of(node, "slow")["messages"] == 100  # the next one is read in a minute and a half
        write(file)
        assert [slow.frame() for _ in range(1000)] == [(0, b"OK")] * 1000
        throttled = use_of(node, "slow")["throttled"]
        write(file, "{ messages = 1 }")
        node.wait_until(lambda: sum("AUTH: read" in line for line in node.lines) == 3, START_TIMEOUT)
        slow.send(pub * 100)
        eventually(lambda: use_of(node, "slow")["throttled"] > throttled)


def test_metrics_name_identities_where_there_is_an_auth_file(tmp_path: Path) -> None:
    with ExitStack() as stack:
        node, _ = start(stack, tmp_path, "{ messages = 100 }")
        httpx.post(f"http://{node.http}/pub?topic=t", content=b"12345", headers=bearer("slow")).raise_for_status()
        text = httpx.get(f"http://{node.http}/metrics").text
        assert 'nsqd_identity_messages_total{identity="slow"} 1.0\n' in text
        assert 'nsqd_identity_message_bytes_total{identity="slow"} 5.0\n' in text
        assert httpx.get(f"http://{node.http}/identities").status_code == 401
        plain = stack.enter_context(nsqd(tmp_path / "plain"))
        assert "nsqd_identity" not in httpx.get(f"http://{plain.http}/metrics").text
        assert httpx.get(f"http://{plain.http}/identities").status_code == 404


def test_nsqadmin_shows_who_publishes_the_most(tmp_path: Path) -> None:
    own = tmp_path / "token"
    own.write_text(token("admin"))
    own.chmod(0o600)
    file = tmp_path / "auth.toml"
    write(file, "{ messages = 100 }")
    file.write_text(file.read_text() + ENTRY.format("admin", digest(token("admin").encode()), "admin"))
    with ExitStack() as stack:
        node = stack.enter_context(nsqd(tmp_path / "data", "-auth-file", str(file)))
        plain = stack.enter_context(nsqd(tmp_path / "plain"))
        httpx.post(f"http://{node.http}/pub?topic=t", content=bytes(5000), headers=bearer("slow")).raise_for_status()
        flags = "-nsqd-http-address", node.http, "-nsqd-http-address", plain.http, "-auth-token-file", str(own)
        admin = stack.enter_context(nsqadmin(*flags))
        page = httpx.get(f"http://{admin.http}/nodes/{node.http}").text
        assert "Top talkers" in page
        assert '<th scope="row" data-label="Identity">slow</th>' in page
        page = httpx.get(f"http://{admin.http}/nodes/{plain.http}").text
        assert "Top talkers" not in page
        assert "NOT_FOUND" not in page
