"""Secrets in a whole running set: planted everywhere, shown right and wrong on every port, and then searched for everywhere.

They may be in the files in which they were given, and on the command line on which one was given; nowhere else: not in logs,
answers, statistics, options, debug routes, /proc, nor in what the daemons write.
"""

import base64
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher

from shared.auth.tokens import digest
from tests.admin.conftest import nsqadmin
from tests.auth_server import AuthServer, Visit, allowing, says
from tests.certificates import Authority
from tests.daemons import Conversation, Daemon, eventually, nsqd, run, sized
from tests.declared_routes import LOOKUPD, NSQD
from tests.processes.test_beanstalkd import beanstalk

pytestmark = pytest.mark.process

NAMES = ("admin", "node", "orders", "revoked", "wrong", "robot")
TOKENS = {name: "pst_" + f"Secret{name.title()}Token".ljust(43, name[0].upper()) for name in NAMES}
PASSWORD, WRONG_PASSWORD = "TheSecretPasswordOfAnn", "TheSecretMistakeOfAnn"
CLUSTER_SECRET, SESAME = "TheSecretOfThisCluster", "TheSecretForTheAuthServer"
URL_USER, URL_PASSWORD, URL_ARGUMENT = "TheSecretUserOfTheUrl", "TheSecretPasswordOfTheUrl", "TheSecretArgumentOfTheUrl"
PLANTED = [*TOKENS.values(), PASSWORD, WRONG_PASSWORD, CLUSTER_SECRET, SESAME, URL_USER, URL_PASSWORD, URL_ARGUMENT]
MOST_PART = 16  # characters of a secret that must not be shown
SLOW = ("GET /debug/pprof/profile", "GET /backup")  # seconds of work; the backup is what the data directory has


def traces_of(secret: str) -> list[bytes]:
    """What shows that a secret stands somewhere: its beginning and its end, as they are and in base 64."""
    data = secret.encode()
    coded = [base64.b64encode(b"\0" * before + data)[4:-4] for before in range(3)]
    return [trace for one in (data, *coded) for trace in (one[:MOST_PART], one[-MOST_PART:])]


class World:
    """The files, the daemons, and all their output."""

    def __init__(self, path: Path, auth_server: str) -> None:
        self.path = path
        self.output: list[tuple[str, bytes]] = []  # where, and what
        self._client = httpx.Client(timeout=30)
        self.session = ""  # the cookie of nsqadmin
        authority = Authority(path / "tls")
        self.key = Path(authority.key).read_text().splitlines()[1]
        for name, text in (
            ("node.token", TOKENS["node"]),
            ("admin.token", TOKENS["admin"]),
            ("cluster", CLUSTER_SECRET),
        ):
            self.write(name, text)
        hashed = PasswordHasher(time_cost=1, memory_cost=64).hash(PASSWORD)
        self.user = f'[[user]]\nname = "ann"\npassword = "{hashed}"\nroles = ["admin"]\n'
        robot = digest(TOKENS["robot"].encode())
        self.user += f'[[user]]\nname = "robot"\nsha256 = "{robot}"\nroles = ["admin"]\n'
        self.write_auth("admin", "node", "orders", "revoked")
        known = ("-auth-file", str(path / "auth.toml"))
        shown = ("-auth-token-file", str(path / "node.token"))
        url = f"http://{URL_USER}:{URL_PASSWORD}@{auth_server}/auth?key={URL_ARGUMENT}"
        self.lookupd_flags = (*known, "-log-level", "debug")
        self.flags = (
            *known, *shown, *authority.flags(), "-https-address", "127.0.0.1:0", "-log-level", "debug", "-debug-routes",
            "-beanstalk-address", "127.0.0.1:0", "-disque-address", "127.0.0.1:0", "-auth-http-address", url,
            "-cluster-address", "127.0.0.1:0", "-cluster-secret-file", str(path / "cluster"), "-node-id", "1",
        )  # fmt: skip

    def write(self, name: str, text: str) -> None:
        """Write a file that only its owner can read."""
        (self.path / name).write_text(text)
        (self.path / name).chmod(0o600)

    def write_auth(self, *names: str, more: str = "") -> None:
        roles = {"orders": "producer", "revoked": "admin"}
        entry = '[[token]]\nname = "{0}"\nsha256 = "{1}"\nroles = ["{2}"]\n'
        tokens = [entry.format(one, digest(TOKENS[one].encode()), roles.get(one, one)) for one in names]
        self.write("auth.toml", self.user + "".join(tokens) + more)

    def collect(self, where: str, data: bytes | str) -> None:
        self.output.append((where, data.encode(errors="backslashreplace") if isinstance(data, str) else data))

    def get(self, url: str, **options: Any) -> httpx.Response:
        answer = self._client.request(options.pop("method", "GET"), url, **options)
        self._client.cookies.clear()
        headers = [f"{name}: {value}" for name, value in answer.headers.items() if name != "set-cookie"]
        self.collect(url, "\n".join(headers) + answer.text)
        return answer

    def listen_to(self, daemon: Daemon) -> None:
        """Collect the log of a daemon, and what the kernel shows of it."""
        self.collect(f"the log of {daemon.program}", daemon.stderr)
        process = Path(f"/proc/{daemon.process.pid}")
        if process.exists() and daemon.process.poll() is None:
            given = {word.encode() for word in self.flags if URL_USER in word}
            words = (process / "cmdline").read_bytes().split(b"\0")
            self.collect(f"cmdline of {daemon.program}", b" ".join(word for word in words if word not in given))
            self.collect(f"environ of {daemon.program}", (process / "environ").read_bytes())

    def leaks(self) -> list[str]:
        """Where anything stands that must not."""
        traces = {trace: one for one in [*PLANTED, self.key, self.session] if one for trace in traces_of(one)}
        return [f"{one} in {where}" for where, data in self.output for trace, one in traces.items() if trace in data]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    right, wrong = says(200, allowing()), says(403, {"message": "no"})

    def mood(visit: Visit) -> None:
        (right if visit.request.query["secret"] == SESAME else wrong)(visit)

    with AuthServer(mood) as server:
        yield World(tmp_path, server.address)


def say(address: tuple[str, int], data: bytes) -> bytes:
    """Send bytes and an end, and return what comes."""
    said = b""
    with socket.create_connection(address, timeout=30) as sock, suppress(ConnectionError):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while part := sock.recv(65536):
            said += part
    return said


def place_of(daemon: Daemon, name: str) -> tuple[str, int]:
    host, _, port = daemon.addresses[name].rpartition(":")
    return host, int(port)


def forms_of(secret: str) -> list[bytes]:
    """A secret as clients may send it by mistake: cut, twice, with odd bytes, too long."""
    data = secret.encode()
    return [data, data[:-1], data + data, data + b"\0", b"\xff" + data, data * 400]


def show_to_ports(world: World, node: Daemon, lookupd: Daemon, *forms: bytes) -> None:
    """Show forms of a secret on every port. A secret in place of a command may be quoted to its sender."""
    tcp, disque, lookup = place_of(node, "TCP"), place_of(node, "DISQUE"), place_of(lookupd, "TCP")
    for data in forms:
        world.collect("TCP", say(tcp, b"  V2AUTH\n" + sized(data) + b"PUB orders\n" + sized(b"x")))
        world.collect("TCP", say(tcp, b"  V2AUTH %b\n" % data))
        say(tcp, b"  V2AUTH\n\0\0\0\4" + data + b"\n")
        world.collect("beanstalkd", say(beanstalk(node), b"auth %b\r\nuse orders\r\nput 0 0 9 1\r\nx\r\n" % data))
        bulk = b"$%d\r\n%b\r\n" % (len(data), data)
        world.collect("Disque", say(disque, b"*2\r\n$4\r\nAUTH\r\n" + bulk + b"*2\r\n$4\r\nQLEN\r\n$6\r\norders\r\n"))
        world.collect("Disque", say(disque, b"*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n" + bulk))
        shown = b'{"broadcast_address":"a","tcp_port":1,"http_port":1,"version":"1","auth_token":"%b"}' % data
        world.collect("nsqlookupd", say(lookup, b"  V1IDENTIFY\n" + sized(shown)))
        world.collect("nsqlookupd", say(lookup, b"  V1IDENTIFY\n" + sized(shown[:-9])))
        request = (
            b"GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %b\r\n\r\n" % data
        )
        for port in (tcp, place_of(node, "HTTP"), beanstalk(node), disque, lookup, place_of(lookupd, "HTTP")):
            world.collect("HTTP on any port", say(port, request))
            world.collect(
                "the auth of beanstalkd on any port", say(port, b"auth %b\r\n" % data) if port != disque else b""
            )


def ask_everything(world: World, node: Daemon, lookupd: Daemon) -> None:
    """Ask every route that shows anything, as the admin and with what is wrong."""
    bearer = {"Authorization": f"Bearer {TOKENS['admin']}"}
    for daemon, routes in ((node, NSQD), (lookupd, LOOKUPD)):
        for key, route in routes.items():
            path = route.path
            if route.method != "GET" or key in SLOW or "{" in path:
                continue
            for headers in (bearer, {"Authorization": f"Bearer {TOKENS['wrong']}"}):
                world.get(f"http://{daemon.http}{path}?topic=orders&channel=c&tube=orders", headers=headers)
    for option in ("auth_http_address", "auth_file", "auth_token_file", "cluster_secret_file", "tls_key", "log_level"):
        world.get(f"http://{node.http}/config/{option}", headers=bearer)
    for query in ("?format=json&include_clients=true", "?format=text"):
        world.get(f"http://{node.http}/stats{query}", headers=bearer)
    for login in (f"ann:{PASSWORD}", f"ann:{WRONG_PASSWORD}", f"{TOKENS['orders']}:", f"any:{TOKENS['revoked']}"):
        world.get(f"http://{login}@{node.http}/stats")
    world.get(f"http://{node.http}/config/auth_http_address", headers=bearer, method="PUT", content=TOKENS["orders"])


def visit_nsqadmin(world: World, admin: Daemon) -> None:
    """Log in wrong and right, look around, change something."""
    url, own_site = f"http://{admin.http}", {"Origin": f"http://{admin.http}"}
    for name, password in (("ann", WRONG_PASSWORD), ("robot", TOKENS["robot"]), ("ann", PASSWORD)):
        form = {"user": name, "password": password, "next": ""}
        answer = world.get(f"{url}/login", method="POST", data=form, headers=own_site)
        world.session = next(iter(answer.cookies.values()), world.session)
    for token in (TOKENS["robot"], TOKENS["wrong"]):
        headers = {"Authorization": f"Bearer {token}", **own_site}
        for path in (
            "",
            "nodes",
            "counter",
            "lookup",
            "api/topics",
            "api/nodes",
            "config/log_level",
            "audit",
            "metrics",
        ):
            world.get(f"{url}/{path}", headers=headers)
        world.get(f"{url}/api/topics/orders", headers=headers, method="POST", json={"action": "pause"})


def test_no_secret_stands_anywhere_but_where_it_was_given(world: World) -> None:
    path = world.path
    listens = ("TCP", "HTTP", "DISQUE")
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd", *world.lookupd_flags))
        flags = (*world.flags, "-lookupd-tcp-address", lookupd.tcp)
        node = stack.enter_context(nsqd(path / "data", *flags, listens=listens))
        given = ("-lookupd-http-address", lookupd.http, "-auth-token-file", str(path / "admin.token"))
        more = ("-auth-file", str(path / "auth.toml"), "-audit-file", str(path / "audit"), "-log-level", "debug")
        admin = stack.enter_context(nsqadmin(*given, *more))
        watcher = stack.enter_context(socket.create_connection(place_of(node, "DISQUE"), timeout=30))
        watcher.sendall(b"AUTH %b\r\nMONITOR\r\n" % TOKENS["admin"].encode())
        with Conversation(node, b"  V2AUTH\n" + sized(SESAME.encode()) + b"PUB orders\n" + sized(b"x")) as talk:
            assert [talk.frame(), talk.frame()][1] == (0, b"OK")
        all_forms = [forms_of(TOKENS[name]) for name in ("admin", "orders", "revoked", "wrong")]
        for forms in (*all_forms, forms_of(SESAME), forms_of(PASSWORD)):
            show_to_ports(
                world, node, lookupd, forms[0]
            )  # first what is right: after 20 wrong ones nothing is looked at
        for forms in all_forms:
            show_to_ports(world, node, lookupd, *forms[1:])
        ask_everything(world, node, lookupd)
        visit_nsqadmin(world, admin)
        world.write_auth("admin", "node", "orders")  # one token is revoked
        show_to_ports(world, node, lookupd, TOKENS["revoked"].encode())
        for more_text in (f'[[token]]\nname = "x"\nsha256 = "{TOKENS["wrong"]}"\nroles = ["admin"]\n',
                          f'[[user]]\nname = "x"\npassword = "{WRONG_PASSWORD}"\nroles = ["admin"]\n',
                          f'x = "{TOKENS["wrong"]}'):  # fmt: skip
            before = len(node.lines)
            world.write_auth("admin", "node", "orders", more=more_text)
            eventually(lambda before=before: any("stays in force" in line for line in node.lines[before:]))
            for word in ("-check-config", "-print-config"):
                done = run("nsqd", *flags, "-data-path", str(path / "data"), word)
                world.collect(f"nsqd {word}", done.stdout + done.stderr)
        for daemon in (node, lookupd, admin):
            daemon.process.send_signal(signal.SIGHUP)
        node.wait_for_line("SIGHUP")
        ask_everything(world, node, lookupd)
        world.write_auth("admin", "node", "orders")
        for daemon in (node, lookupd, admin):
            world.listen_to(daemon)
        watcher.settimeout(0.2)
        with suppress(TimeoutError):
            while data := watcher.recv(65536):
                world.collect("MONITOR", data)
        node.process.kill()
        node.wait()
        world.listen_to(node)
        with nsqd(path / "data", *flags, listens=listens) as again:
            ask_everything(world, again, lookupd)
            world.listen_to(again)
        world.write("node.token", TOKENS["node"] + " " + TOKENS["admin"])
        with pytest.raises(AssertionError, match="--auth-token-file") as refused:
            nsqd(path / "data", *flags, listens=listens).__enter__()
        # in the first line is the command, with the URL that it was given
        world.collect("a start that was refused", str(refused.value).partition("\n")[2])
    for place, _, files in os.walk(path / "data"):
        for name in files:
            world.collect(f"{place}/{name}", (Path(place) / name).read_bytes().strip(b"\0"))  # which is reserved
    world.collect("the audit file", (path / "audit").read_bytes())
    assert world.session
    assert any(where == "MONITOR" and b"QLEN" in data.upper() for where, data in world.output)
    assert len(world.output) > 500
    assert world.leaks() == []


def test_the_search_would_find_them() -> None:
    for found in (TOKENS["admin"], base64.b64encode(f"ann:{TOKENS['admin']}".encode()).decode(), TOKENS["admin"][:20]):
        assert any(trace in f"before {found} after".encode() for trace in traces_of(TOKENS["admin"]))
    assert not any(trace in " ".join(PLANTED[1:]).encode() for trace in traces_of(PLANTED[0]))
