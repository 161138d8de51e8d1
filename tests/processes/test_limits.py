"""Real daemons whose auth file has limits: too many connections on all ports together, and what nsqadmin shows."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from shared.auth.tokens import digest
from tests.admin.conftest import nsqadmin
from tests.auth_files import bearer, token
from tests.daemons import Conversation, Daemon, eventually, nsqd
from tests.nsqd.protocols.nsq.wire import body
from tests.processes.test_rights import FLAGS

pytestmark = pytest.mark.process

ENTRY = '[[token]]\nname = "{0}"\nsha256 = "{1}"\nroles = ["{2}"]\n'


def write(path: Path, limits: str) -> None:
    """An auth file with an admin, a viewer, and a producer `slow` that has limits."""
    people = ("admin", "admin"), ("viewer", "viewer"), ("slow", "producer")
    entries = [ENTRY.format(name, digest(token(name).encode()), role) for name, role in people]
    path.write_text("".join(entries) + f"limits = {limits}\n")
    path.chmod(0o600)


def hello(name: str) -> bytes:
    return b"  V2AUTH\n" + body(token(name).encode())


def use_of(node: Daemon, name: str) -> dict[str, int]:
    answer = httpx.get(f"http://{node.http}/identities", headers=bearer("viewer"))
    return next((one for one in answer.json()["identities"] if one["name"] == name), {})


def test_too_many_connections_are_refused_on_all_ports(tmp_path: Path) -> None:
    with ExitStack() as stack:
        file = tmp_path / "auth.toml"
        write(file, "{ connections = 2 }")
        flags = ("-auth-file", str(file), *FLAGS)
        node = stack.enter_context(nsqd(tmp_path / "data", *flags, listens=("TCP", "HTTP", "DISQUE")))
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


def test_nsqadmin_shows_who_publishes_the_most(tmp_path: Path) -> None:
    own = tmp_path / "token"
    own.write_text(token("admin"))
    own.chmod(0o600)
    file = tmp_path / "auth.toml"
    write(file, "{ messages = 100 }")
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
