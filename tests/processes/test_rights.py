"""Real daemons with an auth file: every port without a token, with one, and when it is revoked.

The rights of each HTTP route are in tests/nsqd/http/test_rights.py.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import greenstalk
import httpx
import pytest
import redis

from tests.admin.conftest import nsqadmin
from tests.auth_files import bearer, token, write
from tests.daemons import Daemon, eventually, nsqd, run
from tests.declared_routes import LOOKUPD
from tests.disque_client import Client
from tests.processes.test_beanstalkd import beanstalk

pytestmark = pytest.mark.process

SLOW = ("GET /debug/pprof/profile", "GET /debug/pprof/heap", "GET /debug/trace")
FLAGS = ("-beanstalk-address", "127.0.0.1:0", "-disque-address", "127.0.0.1:0", "-debug-routes")


def test_clients_of_beanstalkd_and_of_disque(tmp_path: Path) -> None:
    write(tmp_path / "auth.toml", "orders")
    flags = ("-auth-file", str(tmp_path / "auth.toml"), *FLAGS)
    with nsqd(tmp_path / "data", *flags, listens=("TCP", "HTTP", "DISQUE")) as node:
        clients(node)


def clients(node: Daemon) -> None:
    with node.connect("BEANSTALK") as sock:
        sock.sendall(b"put 0 0 9 1\r\nx\r\nauth %s\r\nuse orders\r\nput 0 0 9 1\r\nx\r\n" % token("orders").encode())
        said = b""
        while said.count(b"\r\n") < 4:
            said += sock.recv(1000)
        assert said.startswith(b"UNAUTHORIZED\r\nAUTHORIZED\r\nUSING orders\r\nINSERTED ")
    with pytest.raises(greenstalk.UnknownResponseError), greenstalk.Client(beanstalk(node)) as client:
        client.stats()
    host, _, port = node.addresses["DISQUE"].rpartition(":")
    with Client((host, int(port))) as stranger:
        assert stranger.do("ADDJOB", "orders", "x", 0) == "-NOAUTH Authentication required."
    client = redis.Redis(host, int(port), password=token("orders"), protocol=2)
    assert client.execute_command("ADDJOB", "orders", "x", 0).startswith(b"D-")


# what ends


def test_a_node_with_an_auth_file_does_not_warn_of_open_ports(tmp_path: Path) -> None:
    write(tmp_path / "auth.toml", "viewer")
    flags = "-auth-file", str(tmp_path / "auth.toml"), "-beanstalk-address", "0.0.0.0:0"
    with nsqd(tmp_path / "data", *flags, "-tcp-address", "0.0.0.0:0", "-http-address", "0.0.0.0:0") as node:
        assert "without authentication" not in node.stderr


def test_files_that_are_not_valid_stop_the_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for flag, text in (
        ("-auth-file", "x = ["),
        ("-auth-file", '[[token]]\nname = "a"\nroles = ["admin"]\n'),
        ("-auth-token-file", "no token"),
    ):
        file.write_text(text)
        file.chmod(0o600)
        for more in ((), ("-check-config",)):
            ended = run("nsqd", "-data-path", str(tmp_path), "-tcp-address=127.0.0.1:0", flag, str(file), *more)
            assert (ended.returncode in (1, 2), f"-{flag}" in ended.stderr) == (True, True), ended.stderr


# nsqlookupd, and a whole set


def test_nsqlookupd_registers_only_nodes_with_that_right(tmp_path: Path) -> None:
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
        for route in LOOKUPD.values():
            method, path = route.method, route.path
            assert (httpx.request(method, url + path).status_code == 401) is not route.need.is_open, route.key
            if method == "POST":
                assert httpx.post(f"{url}{path}?topic=t&channel=c&node=x", headers=bearer("viewer")).status_code == 403
        write(file, "viewer", "orders")
        eventually(lambda: found("orders") == [])
        assert token("node") not in lookupd.stderr + node.stderr


def test_nsqadmin_shows_who_publishes_the_most(tmp_path: Path) -> None:
    write(tmp_path / "auth.toml", "admin", "orders")
    own = tmp_path / "token"
    own.write_text(token("admin"))
    own.chmod(0o600)
    with ExitStack() as stack:
        node = stack.enter_context(nsqd(tmp_path / "data", "-auth-file", str(tmp_path / "auth.toml")))
        plain = stack.enter_context(nsqd(tmp_path / "plain"))
        url = f"http://{node.http}/pub?topic=orders"
        httpx.post(url, content=bytes(5000), headers=bearer("orders")).raise_for_status()
        flags = "-nsqd-http-address", node.http, "-nsqd-http-address", plain.http, "-auth-token-file", str(own)
        admin = stack.enter_context(nsqadmin(*flags))
        page = httpx.get(f"http://{admin.http}/nodes/{node.http}", timeout=30).text
        assert "Top talkers" in page
        assert '<th scope="row" data-label="Identity">orders</th>' in page
        page = httpx.get(f"http://{admin.http}/nodes/{plain.http}", timeout=30).text
        assert "Top talkers" not in page
        assert "NOT_FOUND" not in page
