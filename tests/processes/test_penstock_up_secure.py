"""`penstock up --secure DIR`: a set that speaks TLS on every port, and requires a token."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from apps.daemon_set import HOST, Daemon, Plan
from apps.secure_set import SecureSet
from penstock.client import Consumer, Producer, Settings
from tests import forkserver
from tests.daemons import ROOT, STOP_TIMEOUT, eventually
from tests.forkserver import LAUNCH
from tests.processes.test_penstock_up import child, free_offset, run, started

pytestmark = pytest.mark.process


@dataclass(frozen=True)
class Set:
    """A set that runs."""

    files: SecureSet
    lookupd: Daemon
    node: Daemon
    admin: Daemon

    def token(self, name: str) -> str:
        return self.files.path(f"{name}.token").read_text().strip()

    def get(self, daemon: Daemon, path: str, token: str = "", **more: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with httpx.Client(verify=self.files.context(), timeout=STOP_TIMEOUT, trust_env=False) as client:
            return client.request("POST" if "content" in more else "GET", daemon.url + path, headers=headers, **more)  # type: ignore[arg-type]

    def dial(self, port: int, is_tls: bool) -> socket.socket:
        sock = socket.create_connection((HOST, port), STOP_TIMEOUT)
        return self.files.context().wrap_socket(sock, server_hostname=HOST) if is_tls else sock


@pytest.fixture(scope="module")
def whole_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Set]:
    directory, offset = tmp_path_factory.mktemp("up"), free_offset(1)
    files = SecureSet(directory / "secure")
    arguments = "up", "--logs", "--secure", str(files.directory), "--port-offset", str(offset)
    with (directory / "log").open("w") as errors, run(*arguments, cwd=directory, errors=errors) as process:
        started(process)
        yield Set(files, *Plan(directory / "data", 1, offset, secure=files).daemons())


def test_a_producer_and_a_consumer_with_their_token(whole_set: Set) -> None:
    settings = Settings(
        tls_v1=True, tls_root_ca_file=str(whole_set.files.path("ca.pem")), auth_secret=whole_set.token("app")
    )
    with Producer([f"{HOST}:{whole_set.node.tcp_port}"], settings) as producer:
        producer.publish("orders", b"one")
    assert whole_set.get(whole_set.node, "/pub?topic=orders", whole_set.token("app"), content=b"two").text == "OK"
    lookupd = whole_set.lookupd.url
    with Consumer("orders", "all", lookupd_addresses=[lookupd], settings=settings) as consumer:
        bodies = set()
        for message in consumer:
            bodies.add(message.body)
            message.finish()
            if len(bodies) == 2:
                break
    assert bodies == {b"one", b"two"}


def test_no_request_is_served_without_a_token(whole_set: Set) -> None:
    for daemon in (whole_set.lookupd, whole_set.node):
        for path in ("/ping", "/readyz", "/info"):
            assert whole_set.get(daemon, path).status_code == 200, path
        for path in ("/metrics", "/stats", "/topics", "/nodes", "/pub?topic=t", "/backup", "/config/log_level"):
            for token in ("", "pst_" + "x" * 43):
                assert whole_set.get(daemon, path, token).status_code in (401, 404, 405), path
        plain = httpx.get(f"http://{HOST}:{daemon.http_port}/ping", trust_env=False)
        assert (plain.status_code, plain.json()["message"]) == (403, "TLS_REQUIRED")
    for path in ("/", "/nodes", "/api/topics", "/cluster"):
        answer = whole_set.get(whole_set.admin, path)
        assert answer.status_code in (302, 303, 401), path
        assert "orders" not in answer.text
    nodes = whole_set.get(whole_set.admin, "/api/nodes", whole_set.token("admin"))
    assert nodes.json()["nodes"]
    assert nodes.headers["strict-transport-security"] == "max-age=31536000"  # browsers ask nsqadmin by HTTPS only
    node = whole_set.node
    for port, is_tls, sent, wanted in (
        (node.beanstalk_port, True, b"stats\r\n", b"UNAUTHORIZED\r\n"),
        (node.disque_port, True, b"*1\r\n$4\r\nINFO\r\n", b"-NOAUTH"),
        (node.tcp_port, False, b"  V2PUB t\n\0\0\0\1x", b"E_INVALID"),
    ):
        with whole_set.dial(port, is_tls) as sock:
            sock.sendall(sent)
            assert wanted in sock.recv(4096)
    for port in (node.beanstalk_port, node.disque_port):
        with whole_set.dial(port, False) as sock, suppress(ConnectionResetError):
            sock.sendall(b"stats\r\n")
            assert b"OK" not in sock.recv(4096)


def test_nsqadmin_is_known_by_its_certificate_and_a_node_is_not_nsqadmin(whole_set: Set) -> None:
    admin = whole_set.token("admin")
    whole_set.get(whole_set.node, "/topic/create?topic=acted", admin, content=b"")
    paused = whole_set.get(whole_set.admin, "/api/topics/acted", admin, content=b'{"action":"pause"}')
    assert paused.status_code == 200, paused.text
    (topic,) = whole_set.get(whole_set.node, "/stats?format=json&topic=acted", admin).json()["topics"]
    assert topic["paused"]
    for daemon in (whole_set.lookupd, whole_set.node):
        for name, status in (("nsqd-0", 401), ("client", 401), ("nsqadmin", 200)):
            context = whole_set.files.context()
            context.load_cert_chain(whole_set.files.path(f"{name}.pem"), whole_set.files.path(f"{name}-key.pem"))
            with httpx.Client(verify=context, timeout=STOP_TIMEOUT, trust_env=False) as client:
                answer = client.post(f"{daemon.url}/topic/create?topic=mine", headers={"Penstock-User": "ann"})
            assert answer.status_code == status, (daemon.name, name, answer.text)


def test_the_nodes_of_a_secure_cluster_ask_each_other_over_tls(tmp_path: Path) -> None:
    offset = free_offset(3)
    files, log = SecureSet(tmp_path / "secure"), tmp_path / "log"
    arguments = (
        "up",
        "--logs",
        "--secure",
        str(files.directory),
        "--nodes",
        "3",
        "--restart",
        "--port-offset",
        str(offset),
    )
    with log.open("w") as errors, run(*arguments, cwd=tmp_path, errors=errors) as process:
        started(process)
        nodes = Plan(tmp_path / "data", 3, offset, secure=files).daemons()[1:4]
        all_three = Set(files, nodes[0], nodes[0], nodes[0])
        admin = all_three.token("admin")
        all_three.get(nodes[0], "/topic/create?topic=t&replicate=3", admin, content=b"")
        eventually(lambda: all_three.get(nodes[0], "/pub?topic=t", admin, content=b"x").text == "OK")
        before = len(log.read_text())
        os.kill(child(process.pid, "-node-id=0"), signal.SIGKILL)
        eventually(lambda: "HTTPS: listening" in log.read_text()[before:])
        again = log.read_text()[before:]
        silent = set(re.findall(r"(\S+) does not answer what it has of this node's log", again))
        assert len(silent) < 2, again  # a slow machine may answer too late, not both others
        command = [*LAUNCH, "penstock", "recover", str(tmp_path / "copy"), "--node", "0", "--json"]
        command += ["--from", f"{HOST}:{nodes[1].http_port}", "--tls-root-ca-file", str(files.path("ca.pem"))]
        command += ["--auth-token-file", str(files.path("admin.token"))]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}

        def is_recovered() -> bool:  # not as long as a node still opens its copy
            done = forkserver.run(command, env=environ, capture_output=True, text=True, check=False)
            print(done.stderr)
            return done.returncode == 0

        eventually(is_recovered, what="recovered")
        assert (tmp_path / "copy" / "log").is_dir()
        process.send_signal(signal.SIGINT)
        process.wait(STOP_TIMEOUT)
