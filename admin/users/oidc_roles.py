"""The user and the roles of an ID token, and the rights of these roles now. Pure, except for the auth file that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from admin.users.roles import BUILT_IN_RULES
from shared.auth.auth_file import NAME, Identity, folded_name
from shared.auth.keyring import Keyring
from shared.auth.rules import Rights, Rule

KIND = "oidc"  # of an identity
MOST_VALUES = 1000  # of a claim
MOST_TOGETHER = 1000  # combinations of roles whose rights are kept


class NoUserError(Exception):
    """The claims name no user that nsqadmin can use, for the reason in the text."""


class OidcRoles:
    """The mapping of a claim's values to roles, over the auth file as it is now."""

    def __init__(self, pairs: Sequence[str], users: Keyring | None, reserved: Sequence[str] = ()) -> None:
        """`pairs`: VALUE=ROLE. `reserved`: names of other users. Raises ValueError for an unknown role."""
        self._reserved = reserved
        self._mapping = [(value, role) for value, _, role in (pair.rpartition("=") for pair in pairs)]
        self._users = users
        self._rights: dict[tuple[str, ...], Rights] = {}  # by roles
        self._epoch = -1  # of the auth file from which they were made
        unknown = [role for _, role in self._mapping if role not in self._known()]
        if unknown:
            known = ", ".join(sorted(self._known()))
            raise ValueError(f"--oidc-role: the role {unknown[0]!r} is not known: use {known}")

    def roles_of(self, values: Sequence[str]) -> tuple[str, ...]:
        """Return the roles of a user with these values of the claim, each once."""
        held = set(values)
        return tuple(dict.fromkeys(role for value, role in self._mapping if value in held))

    def identity(self, name: str, roles: tuple[str, ...]) -> Identity | None:
        """Return the user with the rights of these roles now; None if the auth file has none of them, or has the name."""
        if self._twin(name):
            return None
        epoch = self._users.epoch if self._users is not None else 0  # read first: another thread may replace the file
        known = self._known()
        left = tuple(role for role in roles if role in known)
        if not left:
            return None
        if epoch != self._epoch:
            self._rights, self._epoch = {}, epoch
        rights = self._rights.get(left)
        if rights is None:
            rights = Rights([rule for role in left for rule in known[role]])
            rights.compile()
            if len(self._rights) >= MOST_TOGETHER:
                self._rights.clear()
            self._rights[left] = rights
        return Identity(name, KIND, left, rights)

    def user_name(self, claims: Mapping[str, Any], claim: str) -> str:
        """Return the name of the user. Raises NoUserError."""
        name = claims.get(claim)
        if not isinstance(name, str):
            raise NoUserError(f"the ID token has no text in the claim {claim!r}: use another -oidc-user-claim")
        if NAME.fullmatch(name) is None:
            wrong = f"{name[:200]!r} of the claim {claim!r} is not a valid user name"
            raise NoUserError(f"{wrong}: use letters, digits and . _ @ + -")
        if claim == "email" and claims.get("email_verified") is False:
            raise NoUserError(f"the provider has not verified the address {name!r}")
        twin = self._twin(name)
        if twin:  # the audit could not distinguish them
            raise NoUserError(f"{name!r} is also the name of {twin}: remove that one, or rename it")
        return name

    def _twin(self, name: str) -> str:
        """Return the other user with this name in any case: of the auth file, or an -admin-user; "" if there is none."""
        found = self._users.twin(name) if self._users is not None else None
        if found is not None:
            return f"a {found.kind} in the auth file" + (f", {found.name!r}" if found.name != name else "")
        reserved = next((one for one in self._reserved if folded_name(one) == folded_name(name)), "")
        return f"an -admin-user, {reserved!r}" if reserved else ""

    def _known(self) -> Mapping[str, tuple[Rule, ...]]:
        return BUILT_IN_RULES if self._users is None else {**BUILT_IN_RULES, **self._users.roles}


def claim_values(claims: Mapping[str, Any], claim: str) -> tuple[str, ...]:
    """Return the values of a claim: a text, or the texts of a list. A name with dots may be a path: realm_access.roles."""
    found: Any = claims.get(claim)
    if found is None:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return (found,)
    return tuple(one for one in found[:MOST_VALUES] if isinstance(one, str)) if isinstance(found, list) else ()
