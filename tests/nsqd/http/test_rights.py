"""Who may ask what over HTTP: each route of a node with an auth file, without a token, with a wrong one, and for each role."""

import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from shared.auth.rules import Rights, Rule
from shared.auth.verbs import BUILT_IN, Verb
from shared.http.route import Need
from shared.log import log
from tests.auth_files import bearer, write
from tests.cases import each
from tests.declared_routes import NSQD
from tests.local_node import LocalNode

WRONG = {"Authorization": "Bearer pst_" + "x" * 43}


class Guarded:
    def __init__(self, file: Path) -> None:
        write(file, "orders", "creator", "keeper", "owner", *BUILT_IN)
        self.client = LocalNode("-auth-file", str(file)).client

    def ask(self, method: str, path: str, name: str = "", **headers: str) -> httpx.Response:
        return self.client.request(method, path, headers=(bearer(name) if name else {}) | headers)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    level = log.level
    log.setLevel(logging.ERROR)  # one that the API knows
    yield Guarded(tmp_path_factory.mktemp("guarded") / "auth.toml")
    log.setLevel(level)


ELSEWHERE = ("POST /node/drain", "POST /cluster/leave")  # they change the node
ROUTES = sorted(route for route in NSQD if route not in ELSEWHERE and "/debug/" not in route)


def path_of(route: str, need: Need, topic: str = "orders") -> tuple[str, str]:
    method, _, path = route.partition(" ")
    arguments = {name: "orders" for name in (need.topic, need.channel, need.target) if name}
    if need.topic:
        arguments[need.topic] = topic
    return method, path.replace("{option}", "log_level") + "?" + "&".join(
        f"{name}={value}" for name, value in arguments.items()
    )


def test_a_batch_needs_the_rights_to_the_topics_with_its_members(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path / "auth.toml")
    for topic in ("owned1", "orders"):
        path = f"/pub?topic={topic}&batch={topic}"
        guarded.client.post(path, content=b"x", headers=bearer("admin")).raise_for_status()
    found = [
        guarded.ask("POST", f"/batch/close?batch={name}", "owner").status_code for name in ("owned1", "orders", "new")
    ]
    assert found == [200, 403, 200]
    assert [guarded.ask("GET", "/batch?batch=orders", name).status_code for name in ("owner", "viewer")] == [403, 200]


def test_a_batch_without_members_needs_a_right_to_any_topic(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path / "auth.toml")
    for method, path, refused, allowed in (
        ("POST", "/batch/close?batch=b", "consumer", "producer"),  # else anyone could take all names for a day
        ("GET", "/batch?batch=b", "consumer", "viewer"),
    ):
        assert [guarded.ask(method, path, name).status_code for name in (refused, allowed)] == [403, 200]


@each("route", ROUTES)
def test_every_route_needs_what_its_row_says(guarded: Guarded, route: str) -> None:
    need = NSQD[route].need
    method, path = path_of(route, need)
    assert (guarded.ask(method, path).status_code == 401) is not need.is_open
    if need.is_open:
        return
    assert guarded.ask(method, path, **WRONG).status_code in (401, 429)
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


def test_a_dead_letter_topic_and_a_redrive_need_the_right_to_publish(guarded: Guarded) -> None:
    for topic in ("owned", "foreign"):
        assert guarded.ask("POST", f"/topic/create?topic={topic}", "admin").status_code == 200
    assert guarded.ask("POST", "/channel/create?topic=owned&channel=c", "admin").status_code == 200
    for path in ("/topic/config?topic=owned&", "/topic/config?topic=owned&channel=c&", "/topic/create?topic=owned-2&"):
        for target, status in (("foreign", 403), ("owned-dead", 200), ("none", 200), ("default", 200)):
            assert guarded.ask("POST", f"{path}dead_letter={target}", "owner").status_code == status
    move = "/channel/messages/move?topic=owned&channel=c&state=ready&count=1"
    for target, status in (("", 403), ("&to=", 403), ("&to=foreign", 403), ("&to=owned-dead", 200)):
        assert guarded.ask("POST", move + target, "owner").status_code == status
    assert guarded.ask("POST", move, "admin").status_code == 200


def test_who_may_create_a_topic_does_not_configure_one_that_is_there(guarded: Guarded) -> None:
    def create(role: str, settings: str) -> int:
        return guarded.ask("POST", f"/topic/create?topic=made{settings}", role).status_code

    def settings() -> object:
        return guarded.ask("GET", "/topic/config?topic=made", "admin").json()

    assert create("creator", "&retention=1h&max_attempts=5") == 200  # it is new
    before = settings()
    assert create("creator", "") == create("creator", "&retention=60m&max_attempts=5") == 200
    for change in ("retention=0s", "durability=os", "max_attempts=1", "retention_bytes=5", "retention=default"):
        assert (create("creator", f"&{change}"), create("operator", f"&{change}")) == (403, 403)
    assert guarded.ask("POST", "/topic/config?topic=made&retention=0s", "creator").status_code == 403
    assert (settings(), create("admin", "&retention=0s")) == (before, 200)
    assert settings() != before


@pytest.mark.parametrize(("role", "several"), [("operator", 403), ("admin", 404)])
@pytest.mark.parametrize(("listed", "one"), [("messages", "offset=1"), ("buried", "id=0000000000000001")])
def test_finishing_several_needs_delete(guarded: Guarded, role: str, several: int, listed: str, one: str) -> None:
    state = "" if listed == "buried" else "&state=ready"
    path = f"/channel/{listed}/finish?topic=nowhere&channel=c&"
    for asked in (one, f"count=1{state}"):
        assert guarded.ask("POST", path + asked, role).status_code == 404, asked
    more = one.partition("=")[2]
    for asked in (f"{one},{more}", f"count=40{state}", f"count=2{state}", f"{one}&count=40", f"{one}%2c{more}"):
        assert guarded.ask("POST", path + asked, role).status_code == several, asked


@each("role, status", [("viewer", 403), ("body-viewer", 404)])
@each("asked", ["contains=x", "header=trace", "header="])
def test_who_may_not_read_bodies_does_not_ask_about_them(guarded: Guarded, role: str, status: int, asked: str) -> None:
    path = f"/channel/messages?topic=nowhere&channel=c&state=ready&preview=0&{asked}"
    assert guarded.ask("GET", path, role).status_code == status
    assert guarded.ask("GET", path.replace(asked, "min_attempts=1"), role).status_code == 404


def test_a_publish_is_refused_in_the_turn_and_in_the_thread_alike(guarded: Guarded) -> None:
    client = guarded.client
    for _ in range(3):  # the head is known by the second
        assert client.post("/pub?topic=orders", content=b"x", headers=bearer("orders")).text == "OK"
        refused = client.post("/pub?topic=other", content=b"x", headers=bearer("orders"))
        assert (refused.status_code, refused.json()) == (403, {"message": "FORBIDDEN"})
        assert client.get("/stats?format=json&topic=orders", headers=bearer("orders")).status_code == 403
        assert client.get("/stats?format=json&topic=orders", headers=bearer("viewer")).status_code == 200
        assert client.post("/pub?topic=orders", content=b"x").status_code in (401, 429)
    assert "other" not in guarded.ask("GET", "/stats?format=json", "viewer").text


def test_wrong_tokens_are_not_looked_at_for_ever(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path / "auth.toml")
    codes = [guarded.ask("GET", "/stats", **WRONG).status_code for _ in range(25)]
    assert codes == [401] * 20 + [429] * 5
    assert guarded.ask("GET", "/stats", "viewer").status_code == 200  # others behind the same address are not held up
    assert int(guarded.ask("GET", "/stats", **WRONG).headers["retry-after"]) <= 11
    assert guarded.ask("GET", "/ping").text == "OK"
