"""Which user and which roles an ID token stands for, and what these roles allow now. Pure, except for the auth file it asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from admin.users.oidc_options import role_mapping
from shared.auth.auth_file import NAME, Identity, folded_name
from shared.auth.keyring import Keyring
from shared.auth.rules import Rights, Rule
from shared.auth.verbs import BUILT_IN

KIND = "oidc"  # of an identity
MOST_VALUES = 1000  # of a claim
MOST_TOGETHER = 1000  # combinations of roles whose rights are kept

_BUILT_IN: dict[str, tuple[Rule, ...]] = {
    name: (Rule(verbs, source=f"role {name}"),) for name, verbs in BUILT_IN.items()
}


class NoUserError(Exception):
    """The claims name no user that nsqadmin can use. The text says why."""


class OidcRoles:
    """The mapping of a claim's values to roles, over the auth file as it is now."""

    def __init__(self, pairs: Sequence[str], users: Keyring | None, reserved: Sequence[str] = ()) -> None:
        """`pairs`: VALUE=ROLE. `reserved`: names that others have. Raises ValueError for a role that is not known."""
        self._reserved = reserved
        self._mapping = role_mapping(pairs)
        self._users = users
        self._rights: dict[tuple[str, ...], Rights] = {}  # by roles
        self._epoch = -1  # of the auth file from which they were made
        unknown = [role for _, role in self._mapping if role not in self._known()]
        if unknown:
            known = ", ".join(sorted(self._known()))
            raise ValueError(f"--oidc-role: the role {unknown[0]!r} is not known: use {known}")

    def roles_of(self, values: Sequence[str]) -> tuple[str, ...]:
        """Return the roles of somebody with these values of the claim, each once."""
        held = set(values)
        return tuple(dict.fromkeys(role for value, role in self._mapping if value in held))

    def identity(self, name: str, roles: tuple[str, ...]) -> Identity | None:
        """Return the user with what these roles allow now; None: the auth file has none of them any more, or has the name."""
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
            raise NoUserError(
                f"the ID token has no text in the claim {claim!r}: choose another one by -oidc-user-claim"
            )
        if NAME.fullmatch(name) is None:
            raise NoUserError(
                f"{name[:200]!r} of the claim {claim!r} is not a valid user name: use letters, digits, . _ @ + -"
            )
        if claim == "email" and claims.get("email_verified") is False:
            raise NoUserError(f"the provider has not verified the address {name!r}")
        twin = self._twin(name)
        if twin:  # the audit could not tell them apart
            raise NoUserError(f"{name!r} is also the name of {twin}: remove that one, or rename it")
        return name

    def _twin(self, name: str) -> str:
        """Return who else has a name, or one that differs in case only: of the auth file, or an -admin-user; "": nobody."""
        found = self._users.twin(name) if self._users is not None else None
        if found is not None:
            return f"a {found.kind} in the auth file" + (f", {found.name!r}" if found.name != name else "")
        reserved = next((one for one in self._reserved if folded_name(one) == folded_name(name)), "")
        return f"an -admin-user, {reserved!r}" if reserved else ""

    def _known(self) -> Mapping[str, tuple[Rule, ...]]:
        return _BUILT_IN if self._users is None else {**_BUILT_IN, **self._users.roles}


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
