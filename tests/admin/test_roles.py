"""Every route and every action, tried with every role, and with none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from admin.roles import ACTIONS, NEEDED, Role, Who
from tests.admin.asking import OURS, browser, in_loop, make, users_file

REFUSED = (401, 403)
_PARAMETERS = {
    "{topic}": "t", "{channel}": "c", "{node}": "127.0.0.1:1", "{task}": "1", "{asset}": "keys.js", "{option}": "log_level",
}  # fmt: skip


GRAPHITE: dict[str, Any] = {"proxy_graphite": True, "graphite_url": "http://127.0.0.1:1"}


def path_of(route: str) -> str:
    for parameter, value in _PARAMETERS.items():
        route = route.replace(parameter, value)
    assert "{" not in route
    return route


@pytest.mark.process
@pytest.mark.parametrize("role", list(Role))
def test_each_route_is_for_those_who_may(tmp_path: Path, role: Role) -> None:
    async def work() -> dict[str, bool]:
        app = make(users_file=users_file(tmp_path), anonymous_role=role.word, **GRAPHITE)
        found = {}
        async with browser(app, **OURS) as client:
            for route in NEEDED:
                method, path = route.split(" ")
                answer = await client.request(method, path_of(path), content=b"{}")
                to_login = answer.status_code == 303 and "/login" in answer.headers["location"] and path != "/logout"
                found[route] = answer.status_code not in REFUSED and not to_login
        return found

    # That it is refused tells of the role alone: nothing is behind it, so what is let through fails elsewhere.
    assert in_loop(work) == {route: role >= needed for route, needed in NEEDED.items() if route != "POST /login"} | {
        "POST /login": False  # an empty form is no user
    }


FORMS = {
    "publish": "/topics/t", "pause": "/topics/t", "unpause": "/topics/t/c", "empty": "/topics/t/c", "delete": "/topics/t",
    "create": "/lookup", "finish": "/messages/t/c", "requeue": "/messages/t/c", "kick": "/messages/t/c",
    "bury": "/messages/t/c",
    "release": "/tube", "drain": "/nodes/127.0.0.1:1", "undrain": "/nodes/127.0.0.1:1", "tombstone": "/nodes/127.0.0.1:1",
    "cancel": "/tasks/1", "forget": "/cluster", "adopt": "/cluster",
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("role", list(Role))
def test_each_action_is_for_those_who_may(tmp_path: Path, role: Role) -> None:
    async def work() -> dict[str, bool]:
        app = make(users_file=users_file(tmp_path), anonymous_role=role.word)
        found = {}
        async with browser(app, **OURS) as client:
            for action, path in FORMS.items():
                confirm = "127.0.0.1:1" if action == "drain" else "c" if action == "empty" else "t"
                form = {
                    "action": action, "confirm": confirm, "node": "127.0.0.1:1", "state": "ready", "topic": "t", "name": "t",
                }  # fmt: skip
                answer = await client.post(path, data=form)
                found[action] = answer.status_code not in REFUSED
        return found

    assert in_loop(work) == {action: role >= needed for action, needed in ACTIONS.items()}


@pytest.mark.process
@pytest.mark.parametrize(
    ("method", "path", "body", "needed"),
    [
        ("POST", "/api/topics/t", '{"action":"pause"}', Role.OPERATOR),
        ("POST", "/api/topics/t", '{"action":"empty"}', Role.ADMIN),
        ("POST", "/api/topics/t/c", '{"action":"empty"}', Role.ADMIN),
    ],
)
@pytest.mark.parametrize("role", list(Role))
def test_the_api_knows_actions_too(
    tmp_path: Path, role: Role, method: str, path: str, body: str, needed: Role
) -> None:  # fmt: skip
    async def work() -> int:
        app = make(users_file=users_file(tmp_path), anonymous_role=role.word)
        async with browser(app) as client:
            return (await client.request(method, path, content=body)).status_code

    assert (in_loop(work) not in REFUSED) == (role >= needed)


def test_a_route_that_nobody_thought_of_is_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = {route: role for route, role in NEEDED.items() if route != "GET /storage"}
    monkeypatch.setattr("admin.access.NEEDED", rest)  # a deletion, undone, would change the order for other tests
    with pytest.raises(KeyError):
        in_loop_make()


def in_loop_make() -> None:
    async def work() -> None:
        make()

    in_loop(work)


def test_the_table_names_no_route_that_is_not_there() -> None:
    async def work() -> set[str]:
        app = make(**GRAPHITE)
        patterns = {"/".join(words): methods for words, methods in app._patterns}
        return {f"{method} {path}" for path, methods in {**app._exact, **patterns}.items() for method in methods}

    assert in_loop(work) == set(NEEDED)
    assert set(FORMS) == set(ACTIONS)


def test_patterns_of_topics() -> None:
    who = Who("ann", Role.ADMIN, ("orders.*", "clicks"))
    assert who.visible(["orders.eu", "orders", "clicks", "clicks2", "Clicks"]) == ["orders.eu", "clicks"]
    assert Who("ann", Role.ADMIN).sees("anything")
