"""Real daemons with an auth file: every port without a token, with one, and when it is revoked.

Who may ask what over HTTP is in tests/nsqd/http/test_rights.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import gnsq
import greenstalk
import httpx
import pytest
import redis

from lookupd.rights import NEEDS as LOOKUPD_NEEDS
from nsqd.http.rights import NEEDS
from shared.auth.verbs import BUILT_IN
from tests.auth_files import bearer, token, write
from tests.daemons import Conversation, Daemon, eventually, nsqd
from tests.disque_client import Client
from tests.processes.test_beanstalkd import beanstalk

pytestmark = pytest.mark.process

SLOW = ("GET /debug/pprof/profile", "GET /debug/pprof/heap", "GET /debug/story")
FLAGS = ("-beanstalk-address", "127.0.0.1:0", "-disque-address", "127.0.0.1:0", "-debug-routes")


class Guarded:
    """An nsqd with an auth file."""

    def __init__(self, node: Daemon, file: Path) -> None:
        self.node, self.file = node, file

    def ask(self, method: str, path: str, name: str = "", **more: object) -> httpx.Response:
        headers = bearer(name) if name else {}
        return httpx.request(method, f"http://{self.node.http}{path}", headers=headers, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    write(directory / "auth.toml", "orders", "creator", "keeper", *BUILT_IN)
    with nsqd(
        directory / "data", "-auth-file", str(directory / "auth.toml"), *FLAGS, listens=("TCP", "HTTP", "DISQUE")
    ) as node:
        yield Guarded(node, directory / "auth.toml")


# clients


def test_a_token_in_a_url_and_none(guarded: Guarded) -> None:
    url = f"{guarded.node.http}/pub?topic=orders"
    assert httpx.post(f"http://any:{token('orders')}@{url}", content=b"x").text == "OK"
    assert httpx.post(f"http://{url}", content=b"x").status_code == 401


def test_debug_routes_need_what_their_rows_say(guarded: Guarded) -> None:
    for route in (one for one in NEEDS if "/debug/" in one and one not in SLOW):
        method, _, path = route.partition(" ")
        assert guarded.ask(method, path).status_code == 401, route
        for role in ("viewer", "admin"):
            is_allowed = NEEDS[route].verb in BUILT_IN[role]
            assert (guarded.ask(method, path, role).status_code != 403) is is_allowed, (route, role)


def test_unchanged_clients_of_nsq(guarded: Guarded) -> None:
    producer = gnsq.Producer(nsqd_tcp_addresses=[guarded.node.tcp], auth_secret=token("orders").encode())
    producer.start()
    producer.publish("orders", b"by gnsq")
    producer.close()
    assert "orders" in guarded.ask("GET", "/stats?format=json&topic=orders", "viewer").text


def test_clients_of_beanstalkd_and_of_disque(guarded: Guarded) -> None:
    with guarded.node.connect("BEANSTALK") as sock:
        sock.sendall(b"put 0 0 9 1\r\nx\r\nauth %s\r\nuse orders\r\nput 0 0 9 1\r\nx\r\n" % token("orders").encode())
        said = b""
        while said.count(b"\r\n") < 4:
            said += sock.recv(1000)
        assert said.startswith(b"UNAUTHORIZED\r\nAUTHORIZED\r\nUSING orders\r\nINSERTED ")
    with pytest.raises(greenstalk.UnknownResponseError), greenstalk.Client(beanstalk(guarded.node)) as client:
        client.stats()
    host, _, port = guarded.node.addresses["DISQUE"].rpartition(":")
    with Client((host, int(port))) as stranger:
        assert stranger.do("ADDJOB", "orders", "x", 0) == "-NOAUTH Authentication required."
    client = redis.Redis(host, int(port), password=token("orders"), protocol=2)
    assert client.execute_command("ADDJOB", "orders", "x", 0).startswith(b"D-")


# what ends


def test_connections_end_when_their_token_is_revoked(tmp_path: Path) -> None:
    file = tmp_path / "auth.toml"
    write(file, "orders", "viewer")
    with ExitStack() as stack:
        node = stack.enter_context(nsqd(tmp_path / "data", "-auth-file", str(file), *FLAGS))
        secret = token("orders").encode()
        consumer = stack.enter_context(
            Conversation(node, b"  V2AUTH\n" + len(secret).to_bytes(4) + secret + b"SUB orders c\n")
        )
        assert consumer.frame() is not None
        assert consumer.frame() == (0, b"OK")
        worker = stack.enter_context(node.connect("BEANSTALK"))
        worker.sendall(b"auth %s\r\nwatch orders\r\nignore default\r\nreserve\r\n" % secret)
        said = b""
        while not said.endswith(b"WATCHING 1\r\n"):  # else the file might change before the token is looked at
            said += worker.recv(1000)
        write(file, "viewer")
        assert consumer.frame() == (1, b"E_UNAUTHORIZED AUTH is no longer valid")
        assert consumer.frame() is None
        said = b""
        while data := worker.recv(1000):
            said += data
        assert said.endswith(b"UNAUTHORIZED\r\n")
        assert httpx.get(f"http://{node.http}/stats", headers=bearer("viewer")).status_code == 200
        file.write_text("x = [")
        os.utime(file, (1, 1))
        node.wait_for_line("what was read last stays in force")
        assert httpx.get(f"http://{node.http}/stats", headers=bearer("viewer")).status_code == 200
        assert secret.decode() not in node.stderr


def test_a_node_with_an_auth_file_does_not_warn_of_open_ports(tmp_path: Path) -> None:
    write(tmp_path / "auth.toml", "viewer")
    flags = "-auth-file", str(tmp_path / "auth.toml"), "-beanstalk-address", "0.0.0.0:0"
    with nsqd(tmp_path / "data", *flags, "-tcp-address", "0.0.0.0:0", "-http-address", "0.0.0.0:0") as node:
        assert "without authentication" not in node.stderr


@pytest.mark.parametrize("text", ["x = [", '[[token]]\nname = "a"\nroles = ["admin"]\n'])
def test_a_file_that_is_not_valid_stops_the_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "auth.toml").write_text(text)
    (tmp_path / "auth.toml").chmod(0o600)
    node = nsqd(tmp_path / "data", "-auth-file", str(tmp_path / "auth.toml"))
    with pytest.raises(AssertionError, match="--auth-file"):
        node.__enter__()
    node = nsqd(tmp_path / "data", "-auth-file", str(tmp_path / "auth.toml"), "-check-config")
    with pytest.raises(AssertionError, match="--auth-file"):
        node.__enter__()


# nsqlookupd, and a whole set


def test_nsqlookupd_takes_only_those_who_may_register(tmp_path: Path) -> None:
    file, own = tmp_path / "auth.toml", tmp_path / "token"
    write(file, "node", "viewer", "admin", "orders")
    own.write_text(token("node") + "\n")
    own.chmod(0o600)
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd", "-auth-file", str(file)))
        flags = "-lookupd-tcp-address", lookupd.tcp
        stranger = stack.enter_context(nsqd(tmp_path / "stranger", *flags))
        node = stack.enter_context(nsqd(tmp_path / "node", *flags, "-auth-token-file", str(own)))
        for daemon in (stranger, node):
            httpx.post(f"http://{daemon.http}/topic/create?topic=orders").raise_for_status()
        url = f"http://{lookupd.http}"

        def found(name: str) -> list[int]:
            answer = httpx.get(f"{url}/lookup?topic=orders", headers=bearer(name))
            return [one["tcp_port"] for one in answer.json().get("producers", ())]

        eventually(lambda: found("orders") == [int(node.tcp.rpartition(":")[2])])
        stranger.wait_for_line("E_UNAUTHORIZED")
        for route, need in LOOKUPD_NEEDS.items():
            method, _, path = route.partition(" ")
            assert (httpx.request(method, url + path).status_code == 401) is not need.is_open, route
            if method == "POST":
                assert httpx.post(f"{url}{path}?topic=t&channel=c&node=x", headers=bearer("viewer")).status_code == 403
        write(file, "viewer", "orders")
        eventually(lambda: found("orders") == [])
        assert token("node") not in lookupd.stderr + node.stderr


def test_nodes_of_a_cluster_show_each_other_their_token(tmp_path: Path) -> None:
    file, own = tmp_path / "auth.toml", tmp_path / "token"
    write(file, "admin")
    own.write_text(token("admin"))
    own.chmod(0o600)
    with nsqd(tmp_path / "data", "-auth-file", str(file), "-auth-token-file", str(own)) as node:
        assert httpx.get(f"http://{node.http}/cluster").status_code == 401
    own.write_text("no token")
    with pytest.raises(AssertionError, match="--auth-token-file"):
        nsqd(tmp_path / "data", "-auth-token-file", str(own)).__enter__()
