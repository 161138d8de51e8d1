"""Every route and every action, tried with every built-in role, with every verb alone, and with none."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from admin.users.roles import ACTIONS, NEEDED, Where, Who, of_role
from shared.auth.auth_file import parse
from shared.auth.verbs import Verb
from tests.admin.asking import auth_file, bearer, make, visiting
from tests.async_tests import on_asyncio
from tests.cases import each

REFUSED = (401, 403)
ROLES = ("nobody", "viewer", "body-viewer", "operator", "admin")  # each includes those before it
_PARAMETERS = {
    "{topic}": "t", "{channel}": "c", "{node}": "127.0.0.1:1", "{task}": "1", "{asset}": "keys.js", "{option}": "log_level",
    "{folder}": "how-to", "{page}": "secure",
}  # fmt: skip
OIDC = {"oidc_issuer": "http://127.0.0.1:1", "oidc_client_id": "c", "oidc_role": ("a=viewer",)}
EVERYTHING: dict[str, Any] = {"proxy_graphite": True, "graphite_url": "http://127.0.0.1:1", **OIDC}  # all routes
# the built-in role that a route needs at least, if it is not viewer; as it was before there were verbs
_FREE = ("GET /ping", "GET /livez", "GET /readyz", "GET /info", "GET /login", "POST /login", "POST /logout")
_ADMINS = ("GET /audit", "POST /nodes/{node}", "POST /cluster", "POST /alarms/rules", "POST /configuration/{topic}")
LEAST = {
    **dict.fromkeys((*_FREE, "GET /static/{asset}", "GET /login/oidc", "GET /login/oidc/callback"), "nobody"),
    **dict.fromkeys(("GET /body/{topic}/{channel}", "GET /republish/{topic}/{channel}"), "body-viewer"),
    **{one: "operator" for one in NEEDED if "/tasks" in one or (one.startswith("POST /") and "/log" not in one)},
    **dict.fromkeys(_ADMINS, "admin"),
    **{route: "admin" for route in NEEDED if route.startswith(("DELETE", "PUT", "GET /config/"))},
}
LEAST_OF_ACTION = dict.fromkeys((
    "empty", "finish-many", "delete", "tombstone", "drain", "undrain", "forget", "promote", "configure", "dismiss",
    "set-alarms",
), "admin")  # fmt: skip


def path_of(route: str) -> str:
    for parameter, value in _PARAMETERS.items():
        route = route.replace(parameter, value)
    assert "{" not in route
    return f"{route}?name=t" if route == "/tube" else route


def is_let_in(answer: httpx.Response, path: str) -> bool:
    to_login = answer.status_code == 303 and "/login" in answer.headers["location"] and path != "/logout"
    return answer.status_code not in REFUSED and not to_login


async def routes_of(client: httpx.AsyncClient) -> set[str]:
    """Return the routes whose guard lets the client in. No node answers, so a request that is let in fails elsewhere."""
    found = set()
    for route in NEEDED.keys() - {"POST /login"}:  # an empty form is no user
        method, path = route.split(" ")
        answer = await client.request(method, path_of(path), content=b"{}")
        if is_let_in(answer, path):
            found.add(route)
    return found


FORMS = {
    "publish": "/topics/t", "pause": "/topics/t", "unpause": "/topics/t/c", "empty": "/topics/t/c", "delete": "/topics/t",
    "create": "/lookup", "finish": "/messages/t/c", "finish-many": "/messages/t/c", "requeue": "/messages/t/c",
    "kick": "/messages/t/c",
    "bury": "/messages/t/c", "move": "/messages/t/c", "redrive": "/messages/t/c", "disconnect": "/messages/t/c",
    "release": "/tube", "drain": "/nodes/127.0.0.1:1", "undrain": "/nodes/127.0.0.1:1", "tombstone": "/nodes/127.0.0.1:1",
    "cancel": "/tasks/1", "configure": "/configuration/t", "forget": "/cluster", "promote": "/cluster", "snooze": "/alarms",
    "set-alarms": "/alarms/rules", "dismiss": "/nodes/127.0.0.1:1",
}  # fmt: skip


async def actions_of(client: httpx.AsyncClient) -> set[str]:
    found = set()
    for action, path in FORMS.items():
        confirm = "127.0.0.1:1" if action == "drain" else "c" if action == "empty" else "t"
        form = {
            "action": action.removesuffix("-many"), "rule": "buried", "confirm": confirm, "node": "127.0.0.1:1",
            "state": "ready", "topic": "t", "name": "t", "offset": "1",
        }  # fmt: skip
        if action == "finish-many":
            form |= {"ticked": "1", "pick-1": "127.0.0.1:1 1", "pick-2": "127.0.0.1:1 2"}
        if (await client.post(path, data=form)).status_code not in REFUSED:
            found.add(action)
    return found


@pytest.mark.parametrize("role", ROLES)
@on_asyncio
async def test_built_in_roles_may_do_what_they_always_might(tmp_path: Path, role: str) -> None:
    client = visiting(auth_file=auth_file(tmp_path), anonymous_role=role, **EVERYTHING)
    mine = ROLES[: ROLES.index(role) + 1]
    assert await routes_of(client) == {one for one in NEEDED if LEAST.get(one, "viewer") in mine} - {"POST /login"}
    assert await actions_of(client) == {one for one in ACTIONS if LEAST_OF_ACTION.get(one, "operator") in mine}


SCOPES = {
    "": ("", {Where.PATH, Where.ANY_TOPIC, Where.ALL}),
    "topic": (', topics = ["t"]', {Where.PATH, Where.ANY_TOPIC}),
    "other": (', topics = ["other"]', {Where.ANY_TOPIC}),
}


@pytest.mark.long
@pytest.mark.parametrize("verb", list(Verb))
@each("scope", SCOPES)
@on_asyncio
async def test_each_verb_alone_opens_what_needs_it(tmp_path: Path, verb: Verb, scope: str) -> None:
    rules, places = SCOPES[scope]
    text = f'[[role]]\nname = "one"\nrules = [{{ verbs = ["{verb}"]{rules} }}]\n'
    client = visiting(auth_file=auth_file(tmp_path, text, robot=["one"]), **EVERYTHING)
    client.headers.update(bearer("robot"))
    allowed = {
        route for route, need in NEEDED.items() if not need.verbs or (verb in need.verbs and need.where in places)
    }
    unasked = {"POST /login"} | ({"GET /tube"} if scope == "other" else set())  # it is asked for t
    assert await routes_of(client) == allowed - unasked
    assert await actions_of(client) == {
        action
        for action, verbs in ACTIONS.items()
        if verbs == (verb,)
        and (scope != "other" or action == "cancel")
        and ((verb is not Verb.ADMIN and action != "snooze") or not scope)  # no alarm is raised, so it is of no topic
    }


@each("path, body, verb", [
    ("/api/topics", '{"topic":"t"}', Verb.CREATE), ("/api/topics/t", '{"action":"pause"}', Verb.ACT),
    ("/api/topics/t", '{"action":"empty"}', Verb.DELETE), ("/api/topics/t/c", '{"action":"empty"}', Verb.DELETE),
])  # fmt: skip
@on_asyncio
async def test_the_api_knows_actions_too(tmp_path: Path, path: str, body: str, verb: Verb) -> None:
    names = [one for one in Verb if one is not Verb.ADMIN]
    for scope, found in (("t", [verb]), ("other", [])):
        rules = 'rules = [{{ verbs = ["{0}"], topics = ["{1}"] }}]'
        roles = "".join(f'[[role]]\nname = "{one}"\n{rules.format(one, scope)}\n' for one in names)
        client = visiting(auth_file=auth_file(tmp_path, roles, **{one: [one] for one in names}))
        statuses = {name: (await client.post(path, content=body, headers=bearer(name))).status_code for name in names}
        assert [name for name, status in statuses.items() if status not in REFUSED] == found


@on_asyncio
async def test_a_route_without_a_right_cannot_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = {route: need for route, need in NEEDED.items() if route != "GET /storage"}
    monkeypatch.setattr("admin.users.access.NEEDED", rest)  # a deletion, undone, would change the order for other tests
    with pytest.raises(KeyError):
        make()


@on_asyncio
async def test_the_table_names_no_route_that_is_not_there() -> None:
    app = make(**EVERYTHING)
    patterns = {"/".join(words): methods for words, methods in app._patterns}
    routes = {f"{method} {path}" for path, methods in {**app._exact, **patterns}.items() for method in methods}
    assert routes == set(NEEDED)
    assert set(FORMS) == set(ACTIONS)


def test_patterns_of_topics() -> None:
    who = Who(of_role("ann", "admin", ("orders.*", "clicks")))
    assert who.visible(["orders.eu", "orders", "clicks", "clicks2", "Clicks"]) == ["orders.eu", "clicks"]
    assert Who(of_role("ann", "admin")).sees("anything")


def test_a_page_offers_what_may_be_done_to_its_topic() -> None:
    rules = '{ verbs = ["act"], topics = ["o.*"] }, { verbs = ["delete"], topics = ["o.*"], channels = ["c"] }'
    text = f'[[role]]\nname = "orders"\nrules = [{rules}]\n[[user]]\nname = "ann"\nroles = ["orders"]\n'
    who = Who(parse(text).users["ann"][0])

    def offered(*place: str) -> set[str]:
        return {action for action, is_offered in who.offered(*place).items() if is_offered}

    acts = {
        "pause", "unpause", "finish", "requeue", "kick", "bury", "release", "cancel", "move", "disconnect", "snooze",
    }  # fmt: skip
    assert offered("o.eu") == acts
    assert offered("o.eu", "c") == acts | {"empty", "delete", "finish-many"} == offered()
    assert offered("other", "c") == set()
    assert (who.role, who.sees_all, who.sees("o.eu"), who.is_unknown) == ("orders", False, False, False)
