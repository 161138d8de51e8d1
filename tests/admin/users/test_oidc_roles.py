"""Which user and which roles claims stand for."""

from pathlib import Path
from typing import Any

import pytest

from admin.options import AdminOptions
from admin.users.access import Access
from admin.users.oidc_roles import KIND, NoUserError, OidcRoles, claim_values
from admin.users.roles import Who
from shared.auth.keyring import Keyring
from shared.auth.verbs import Verb
from tests.admin.asking import auth_file, entry
from tests.cases import each

ORDERS = '[[role]]\nname = "orders"\nrules = [{ verbs = ["act"], topics = ["orders.*"] }]\n'


def keyring(directory: Path, text: str) -> Keyring:
    return Keyring(auth_file(directory, text), lambda: 0.0)


@each("claims, claim, values", [
    ({"groups": ["a", "b"]}, "groups", ("a", "b")), ({"groups": "a b"}, "groups", ("a b",)),
    ({"groups": ["a", 7, None, ["b"]]}, "groups", ("a",)), ({"groups": {"a": 1}}, "groups", ()),
    ({}, "groups", ()), ({"realm": {"roles": ["a"]}}, "realm.roles", ("a",)), ({"realm": "x"}, "realm.roles", ()),
    ({"https://x.example/roles": ["a"]}, "https://x.example/roles", ("a",)),
    ({"groups": ["a"] * 2000}, "groups", ("a",) * 1000),
])  # fmt: skip
def test_values_of_a_claim(claims: dict[str, Any], claim: str, values: tuple[str, ...]) -> None:
    assert claim_values(claims, claim) == values


def test_values_give_roles_in_the_order_of_the_options_and_each_once() -> None:
    roles = OidcRoles(["cn=a,dc=x=operator", "b=viewer", "c=operator"], None)
    assert roles.roles_of(["c", "b", "cn=a,dc=x", "d"]) == ("operator", "viewer")
    assert roles.roles_of(["d"]) == ()


def test_an_identity_may_what_its_roles_allow_together(tmp_path: Path) -> None:
    roles = OidcRoles(["a=orders", "b=viewer"], keyring(tmp_path, ORDERS))
    found = roles.identity("ann", ("orders", "viewer"))
    assert (found.name, found.kind, found.roles) == ("ann", KIND, ("orders", "viewer"))
    may = found.rights.may
    assert (may(Verb.ACT, "orders.new"), may(Verb.ACT, "x"), may(Verb.STATS, "x"), may(Verb.DELETE, "orders.new")) == (
        True, False, True, False,
    )  # fmt: skip
    assert roles.identity("bob", ("orders", "viewer")).rights is found.rights  # type: ignore[union-attr]
    assert roles.identity("ann", ()) is None


def test_a_role_and_a_task_of_a_user_change_with_the_file(tmp_path: Path) -> None:
    users = keyring(tmp_path, ORDERS)
    access = Access(AdminOptions(oidc_issuer="https://x", oidc_role=("a=orders",)), users)
    began = access.oidc.identity("ann", ("orders",))
    assert began is not None
    for text, allowed in (
        (ORDERS, [True, False]), (ORDERS.replace("orders.*", "x*"), [False, True]), ("", [False, False]),
    ):  # fmt: skip
        auth_file(tmp_path, text)
        users.reload_if_changed()
        assert [access.still_may(Who(began), "requeue", topic) for topic in ("orders.new", "x")] == allowed
        found = access.oidc.identity("ann", ("orders",))
        assert (found and [found.rights.may(Verb.ACT, topic) for topic in ("orders.new", "x")]) == (
            allowed if text else None
        )


def test_an_unknown_role_fails_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--oidc-role: the role 'orders' is not known: use admin, body-viewer"):
        OidcRoles(["a=orders"], None)
    OidcRoles(["a=orders"], keyring(tmp_path, ORDERS))


def test_names(tmp_path: Path) -> None:
    roles = OidcRoles([], keyring(tmp_path, entry("ann", ["viewer"])))
    assert roles.user_name({"name": "bob"}, "name") == "bob"
    assert roles.user_name({"email": "bob@x", "email_verified": True}, "email") == "bob@x"
    for claims, claim in (
        ({}, "name"), ({"name": 7}, "name"), ({"name": ""}, "name"), ({"name": "a\nb"}, "name"), ({"name": "a" * 101}, "name"),
        ({"email": "bob@x", "email_verified": False}, "email"), ({"name": "ann"}, "name"),
    ):  # fmt: skip
        with pytest.raises(NoUserError):
            roles.user_name(claims, claim)


OTHERS = (
    entry("ann", ["viewer"])
    + entry("robot", ["operator"], kind="token")
    + '[[certificate]]\nname = "Billing"\nsubject = "CN=billing"\nroles = ["viewer"]\n'
    + '[[socket]]\nname = "side.car"\nuid = 990\nroles = ["viewer"]\n'
)


@each("name, whose", [
    ("ann", "a user in the auth file"), ("ANN", "a user in the auth file, 'ann'"),
    ("robot", "a token in the auth file"), ("Robot", "a token in the auth file, 'robot'"),
    ("billing", "a certificate in the auth file, 'Billing'"),
    ("Side.Car", "a socket in the auth file, 'side.car'"), ("ROOT", "an -admin-user, 'root'"),
])  # fmt: skip
def test_a_name_of_another_user_is_refused(tmp_path: Path, name: str, whose: str) -> None:
    roles = OidcRoles(["a=viewer"], keyring(tmp_path, OTHERS), ["root"])
    with pytest.raises(NoUserError, match=f"'{name}' is also the name of {whose}: remove"):
        roles.user_name({"name": name}, "name")
    assert roles.identity(name, ("viewer",)) is None
    assert roles.user_name({"name": "anna"}, "name") == "anna"
