"""Real daemons with an auth file: every port without a token, with one, and when it is revoked."""

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
from shared.auth.rules import Rights, Rule
from shared.auth.tokens import digest
from shared.auth.verbs import BUILT_IN, Verb
from shared.http.authorize import Need
from tests import web
from tests.daemons import Conversation, Daemon, eventually, nsqd
from tests.processes.test_beanstalkd import beanstalk
from tests.processes.test_disque_server import Client

pytestmark = pytest.mark.process

ENTRY = '[[token]]\nname = "{0}"\nsha256 = "{1}"\nroles = ["{0}"]\n'
CREATOR = '[[role]]\nname = "creator"\nrules = [{ verbs = ["create"], topics = ["made*"] }]\n'
KEEPER = '[[role]]\nname = "keeper"\nrules = [{ verbs = ["admin"] }, { verbs = ["read"], topics = ["orders*"] }]\n'
ROLE = (
    CREATOR + KEEPER + '[[role]]\nname = "orders"\nrules = [{ verbs = ["publish", "consume"], topics = ["orders*"] }]\n'
)
FLAGS = ("-beanstalk-address", "127.0.0.1:0", "-disque-address", "127.0.0.1:0", "-debug-routes")


def token(name: str) -> str:
    return "pst_" + name.ljust(43, "_")


def write(path: Path, *names: str) -> None:
    """An auth file with a token for each of these roles."""
    path.write_text(ROLE + "".join(ENTRY.format(name, digest(token(name).encode())) for name in names))
    path.chmod(0o600)


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(name)}"}


class Guarded:
    """An nsqd with an auth file."""

    def __init__(self, node: Daemon, file: Path) -> None:
        self.node, self.file = node, file

    def ask(self, method: str, path: str, name: str = "", **more: object) -> httpx.Response:
        headers = bearer(name) if name else {}
        return web.request(method, f"http://{self.node.http}{path}", headers=headers, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    write(directory / "auth.toml", "orders", "creator", "keeper", *BUILT_IN)
    with nsqd(
        directory / "data", "-auth-file", str(directory / "auth.toml"), *FLAGS, listens=("TCP", "HTTP", "DISQUE")
    ) as node:
        yield Guarded(node, directory / "auth.toml")


# HTTP

SLOW_OR_LAST = ("POST /node/drain", "GET /debug/pprof/profile", "GET /debug/pprof/heap", "POST /cluster/leave")
ROUTES = sorted(route for route in NEEDS if route not in SLOW_OR_LAST and not route.startswith("GET /debug/story"))


def path_of(route: str, need: Need, topic: str = "orders") -> tuple[str, str]:
    method, _, path = route.partition(" ")
    arguments = {name: "orders" for name in (need.topic, need.channel, need.target) if name}
    if need.topic:
        arguments[need.topic] = topic
    return method, path.replace("{option}", "log_level") + "?" + "&".join(
        f"{name}={value}" for name, value in arguments.items()
    )


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_needs_what_its_row_says(guarded: Guarded, route: str) -> None:
    need = NEEDS[route]
    method, path = path_of(route, need)
    assert (guarded.ask(method, path).status_code == 401) is not need.is_open
    if need.is_open:
        return
    wrong = web.request(
        method, f"http://{guarded.node.http}{path}", headers={"Authorization": "Bearer pst_" + "x" * 43}
    )
    assert wrong.status_code in (401, 429)
    for role, verbs in BUILT_IN.items():
        if method == "GET" or role == "consumer":  # what changes something is asked for once, by whom it is refused
            rights = Rights([Rule(verbs)])
            needed = [
                need.verb,
                *([Verb.READ] if need.preview or need.has_bodies else []),
                *([Verb.PUBLISH] if need.target else []),
            ]
            allowed = all(rights.may(verb, "orders", "orders") for verb in needed if verb is not None)
            assert (guarded.ask(method, path, role).status_code != 403) is allowed, role


def test_a_backup_needs_the_right_to_read_everything(guarded: Guarded) -> None:
    assert guarded.ask("GET", "/backup", "keeper").status_code == 403
    assert guarded.ask("GET", "/config/log_level", "keeper").status_code == 200
    assert guarded.ask("GET", "/backup", "admin").status_code == 200


def test_who_may_create_a_topic_does_not_configure_one_that_is_there(guarded: Guarded) -> None:
    def create(role: str, settings: str) -> int:
        return guarded.ask("POST", f"/topic/create?topic=made{settings}", role).status_code

    def settings() -> object:
        return guarded.ask("GET", "/topic/config?topic=made", "admin").json()

    assert create("creator", "&retention=1h&max_attempts=5") == 200  # it is new
    before = settings()
    assert create("creator", "") == create("creator", "&retention=60m&max_attempts=5") == 200
    for change in ("retention=0s", "durability=os", "max_attempts=1", "retention_bytes=5", "retention=default"):
        assert create("creator", f"&{change}") == 403
        assert create("operator", f"&{change}") == 403
    assert guarded.ask("POST", "/topic/config?topic=made&retention=0s", "creator").status_code == 403
    assert settings() == before
    assert create("admin", "&retention=0s") == 200
    assert settings() != before


@pytest.mark.parametrize(("role", "several"), [("operator", 403), ("admin", 404)])
@pytest.mark.parametrize(("listed", "one"), [("messages", "offset=1"), ("buried", "id=0000000000000001")])
def test_finishing_several_messages_needs_delete_as_in_nsqadmin(
    guarded: Guarded, role: str, several: int, listed: str, one: str
) -> None:
    state = "" if listed == "buried" else "&state=ready"
    path = f"/channel/{listed}/finish?topic=nowhere&channel=c&"
    for asked in (one, f"count=1{state}"):
        assert guarded.ask("POST", path + asked, role).status_code == 404, asked
    more = one.partition("=")[2]
    for asked in (f"{one},{more}", f"count=40{state}", f"count=2{state}", f"{one}&count=40", f"{one}%2c{more}"):
        assert guarded.ask("POST", path + asked, role).status_code == several, asked


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("body-viewer", 404)])
@pytest.mark.parametrize("asked", ["contains=x", "header=trace", "header="])
def test_who_may_not_read_bodies_does_not_ask_about_them(guarded: Guarded, role: str, status: int, asked: str) -> None:
    path = f"/channel/messages?topic=nowhere&channel=c&state=ready&preview=0&{asked}"
    assert guarded.ask("GET", path, role).status_code == status
    assert guarded.ask("GET", path.replace(asked, "min_attempts=1"), role).status_code == 404


def test_a_token_works_as_a_password_of_basic_authentication_and_in_a_url(guarded: Guarded) -> None:
    for user, password in ((token("orders"), ""), ("any", token("orders"))):
        url = f"http://{user}:{password}@{guarded.node.http}/pub?topic=orders"
        assert web.post(url, content=b"x").text == "OK"
    assert web.post(f"http://ann:guess@{guarded.node.http}/pub?topic=orders", content=b"x").status_code in (401, 429)


def test_a_publish_is_refused_in_the_turn_and_in_the_thread_alike(guarded: Guarded) -> None:
    with web.Client(base_url=f"http://{guarded.node.http}") as client:
        for _ in range(3):  # the head is known by the second
            assert client.post("/pub?topic=orders", content=b"x", headers=bearer("orders")).text == "OK"
            refused = client.post("/pub?topic=other", content=b"x", headers=bearer("orders"))
            assert (refused.status_code, refused.json()) == (403, {"message": "FORBIDDEN"})
            assert client.get("/stats?format=json&topic=orders", headers=bearer("orders")).status_code == 403
            assert client.get("/stats?format=json&topic=orders", headers=bearer("viewer")).status_code == 200
            assert client.post("/pub?topic=orders", content=b"x").status_code in (401, 429)
    assert "other" not in guarded.ask("GET", "/stats?format=json", "viewer").text


def test_wrong_tokens_are_not_looked_at_for_ever(tmp_path: Path) -> None:
    write(tmp_path / "auth.toml", "viewer")
    with nsqd(tmp_path / "data", "-auth-file", str(tmp_path / "auth.toml")) as node:
        url, wrong = f"http://{node.http}/stats", {"Authorization": "Bearer pst_" + "x" * 43}
        codes = [web.get(url, headers=wrong).status_code for _ in range(25)]
        assert codes == [401] * 20 + [429] * 5
        assert (
            web.get(url, headers=bearer("viewer")).status_code == 200
        )  # others behind the same address are not held up
        assert int(web.get(url, headers=wrong).headers["retry-after"]) <= 11
        assert web.get(f"http://{node.http}/ping").text == "OK"


# TCP


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
        assert web.get(f"http://{node.http}/stats", headers=bearer("viewer")).status_code == 200
        file.write_text("x = [")
        os.utime(file, (1, 1))
        node.wait_for_line("what was read last stays in force")
        assert web.get(f"http://{node.http}/stats", headers=bearer("viewer")).status_code == 200
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
            web.post(f"http://{daemon.http}/topic/create?topic=orders").raise_for_status()
        url = f"http://{lookupd.http}"

        def found(name: str) -> list[int]:
            answer = web.get(f"{url}/lookup?topic=orders", headers=bearer(name))
            return [one["tcp_port"] for one in answer.json().get("producers", ())]

        eventually(lambda: found("orders") == [int(node.tcp.rpartition(":")[2])])
        stranger.wait_for_line("E_UNAUTHORIZED")
        for route, need in LOOKUPD_NEEDS.items():
            method, _, path = route.partition(" ")
            assert (web.request(method, url + path).status_code == 401) is not need.is_open, route
            if method == "POST":
                assert web.post(f"{url}{path}?topic=t&channel=c&node=x", headers=bearer("viewer")).status_code == 403
        write(file, "viewer", "orders")
        eventually(lambda: found("orders") == [])
        assert token("node") not in lookupd.stderr + node.stderr


def test_nodes_of_a_cluster_show_each_other_their_token(tmp_path: Path) -> None:
    file, own = tmp_path / "auth.toml", tmp_path / "token"
    write(file, "admin")
    own.write_text(token("admin"))
    own.chmod(0o600)
    with nsqd(tmp_path / "data", "-auth-file", str(file), "-auth-token-file", str(own)) as node:
        assert web.get(f"http://{node.http}/cluster").status_code == 401
    own.write_text("no token")
    with pytest.raises(AssertionError, match="--auth-token-file"):
        nsqd(tmp_path / "data", "-auth-token-file", str(own)).__enter__()
