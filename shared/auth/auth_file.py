"""The auth file: identities, their credentials and their rights. In TOML; checked as a whole.

A table [[token]], [[user]], [[certificate]] or [[socket]] is an identity, with its credentials, roles, topics, limits and
expiry; [[role]] defines a role by rules. docs/reference/security.md has an example. A name may have several tokens, to replace one.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from shared.auth.limits import NONE, Limits, LimitsError, read_limits
from shared.auth.passwords import MADE_BY
from shared.auth.rules import ANY, PatternError, Rights, Rule, expression, matches, matches_subject
from shared.auth.tokens import DIGEST
from shared.auth.verbs import BUILT_IN, Verb
from shared.process.unix_sockets import MOST_ID, user_number

MOST_BYTES = 16 * 1024 * 1024
NEVER = float("inf")
NAME = re.compile(r"[A-Za-z0-9._@+-]{1,100}")
_KINDS = ("token", "user", "certificate", "socket", "role")
_COMMON = frozenset({"name", "roles", "topics", "expires", "limits"})
_KEYS = {
    "token": _COMMON | {"sha256"},
    "user": _COMMON | {"password", "sha256"},
    "certificate": _COMMON | {"subject", "san"},
    "socket": _COMMON | {"uid", "user"},
    "role": frozenset({"name", "rules"}),
}
_RULE_KEYS = frozenset({"verbs", "topics", "channels"})


class AuthFileError(ValueError):
    """The file is not valid. The text names the line, and quotes no secret."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A program or a person that is known by its credentials."""

    name: str
    kind: str  # "token", "user", "certificate" or "socket"; in nsqadmin also "oidc"
    roles: tuple[str, ...]
    rights: Rights
    expires: float = NEVER  # s since the epoch
    limits: Limits = NONE

    def __repr__(self) -> str:
        return f"<Identity {self.name}, by {self.kind}>"


@dataclass(slots=True)
class AuthFile:
    """The content of an auth file, by the credentials that clients show."""

    tokens: dict[str, Identity] = field(default_factory=dict)  # by the SHA-256 of the token
    users: dict[str, tuple[Identity, str]] = field(default_factory=dict)  # by name, with the hash of the password
    unproven: set[str] = field(
        default_factory=set
    )  # names of users without password and token: only a proxy names them
    certificates: list[tuple[str, str, Identity]] = field(default_factory=list)  # "subject" or "san", pattern
    sockets: dict[int, Identity] = field(default_factory=dict)  # by the number of the machine's user
    roles: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)  # rules by role, also of the built-in ones
    _folded: dict[str, Identity] | None = None  # by `folded_name`, the first of each; None: not made yet

    def of_certificate(self, subject: str, names: list[str]) -> Identity | None:
        """Return the identity of a certificate: the first entry that fits. `names`: its URIs and DNS names."""
        for kind, pattern, identity in self.certificates:
            if (
                matches_subject(pattern, subject)
                if kind == "subject"
                else any(matches((pattern,), one) for one in names)
            ):
                return identity
        return None

    def twin(self, name: str) -> Identity | None:
        """Return the identity whose name is this one, or differs from it in case only."""
        if self._folded is None:
            self._folded = {folded_name(one.name): one for one in reversed(self.identities())}
        return self._folded.get(folded_name(name))

    def twins(self) -> list[tuple[str, str]]:
        """Return the names that differ in case only, as pairs."""
        named = [(one.name, self.twin(one.name)) for one in {one.name: one for one in self.identities()}.values()]
        return [(twin.name, name) for name, twin in named if twin is not None and twin.name != name]

    def identities(self) -> list[Identity]:
        """Return all, those of tokens first."""
        users = [identity for identity, _ in self.users.values()]
        sockets = {id(one): one for one in self.sockets.values()}  # one may have several numbers
        return [*self.tokens.values(), *users, *(one for _, _, one in self.certificates), *sockets.values()]


def folded_name(name: str) -> str:
    """Return a key that is the same for names that people, and some providers, do not distinguish."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def parse(text: str) -> AuthFile:
    """Return the content of a file. Raises AuthFileError."""
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise AuthFileError("it is nested too deeply") from None
    except ValueError as error:  # also a number of thousands of digits
        reason = re.sub(r"(?s)^(.*?) ?\(at (line \d+|end of document).*\)$", r"\2: \1", str(error))
        raise AuthFileError(reason) from None
    return _Reader(text, content).read()


class _Reader:
    """Reads one file. Its errors name lines."""

    def __init__(self, text: str, content: Mapping[str, Any]) -> None:
        self._text = text
        self._content = content
        self._found = AuthFile()
        self._rights: dict[tuple[tuple[str, ...], tuple[str, ...]], Rights] = {}  # by roles and patterns of topics
        self._roles: dict[str, tuple[Rule, ...]] = {
            name: (Rule(verbs, source=f"role {name}"),) for name, verbs in BUILT_IN.items()
        }

    def read(self) -> AuthFile:
        for kind in self._content:
            if kind not in _KINDS:
                raise AuthFileError(f"{self._line_of(kind, 0)}{kind!r} is not known: use {', '.join(_KINDS)}")
        for place, entry in self._entries("role"):
            self._role(place, entry)
        for kind in ("token", "user", "certificate", "socket"):
            for place, entry in self._entries(kind):
                self._identity(kind, place, entry)
        self._found.roles = self._roles
        return self._found

    def _entries(self, kind: str) -> list[tuple[int, dict[str, Any]]]:
        entries = self._content.get(kind, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise AuthFileError(f"{self._line_of(kind, 0)}{kind} is a list: begin each with [[{kind}]]")
        for place, entry in enumerate(entries):
            name = entry.get("name")
            if not isinstance(name, str) or NAME.fullmatch(name) is None:
                raise self._error(kind, place, "name: use 1 to 100 letters, digits and . _ @ + -")
            unknown = sorted(set(entry) - _KEYS[kind])
            if unknown:
                raise self._error(kind, place, f"{unknown[0]!r} is not known: use {', '.join(sorted(_KEYS[kind]))}")
        return list(enumerate(entries))

    def _error(self, kind: str, place: int, text: str) -> AuthFileError:
        return AuthFileError(f"{self._line_of(kind, place)}{text}")

    def _line_of(self, kind: str, place: int) -> str:
        """Return "line 7: ", where the entry begins, or "" if that is unknown."""
        heads = re.finditer(rf"(?m)^[ \t]*\[?\[?[ \t]*{re.escape(kind)}\b", self._text)
        head = next(islice(heads, place, None), None)
        return f"line {self._text.count(chr(10), 0, head.start()) + 1}: " if head is not None else ""

    def _role(self, place: int, entry: Mapping[str, Any]) -> None:
        name, rules = entry["name"], entry.get("rules")
        if name in self._roles:
            raise self._error("role", place, f"the role {name} exists already")
        if not isinstance(rules, list) or not rules:
            raise self._error("role", place, f"{name}: rules is a list of tables with verbs, topics, channels")
        self._roles[name] = tuple(self._rule(place, name, number, rule) for number, rule in enumerate(rules, 1))

    def _rule(self, place: int, role: str, number: int, rule: object) -> Rule:
        where = f"rule {number} of role {role}"
        if not isinstance(rule, dict) or not set(rule) <= _RULE_KEYS:
            raise self._error("role", place, f"{where}: use verbs, topics, channels")
        verbs, known = rule.get("verbs"), ", ".join(Verb)
        if not isinstance(verbs, list) or not verbs:
            raise self._error("role", place, f"{where}: verbs is a list of {known}")
        for verb in verbs:
            if verb not in list(Verb):
                raise self._error("role", place, f"{where}: the verb {verb!r} is not known: use {known}")
        topics = self._patterns("role", place, rule.get("topics", ["*"]), f"{where}: topics")
        channels = self._patterns("role", place, rule.get("channels", ["*"]), f"{where}: channels")
        return Rule(frozenset(map(Verb, verbs)), topics, channels, where)

    def _patterns(self, kind: str, place: int, value: object, where: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
            raise self._error(kind, place, f'{where} is a list of patterns, for example ["orders.*"]')
        try:
            for pattern in value:
                expression(pattern)
        except PatternError as error:
            raise self._error(kind, place, f"{where}: {error}") from None
        return ANY if "*" in value else tuple(dict.fromkeys(value))

    def _identity(self, kind: str, place: int, entry: Mapping[str, Any]) -> None:
        name, roles = entry["name"], entry.get("roles")
        if not isinstance(roles, list) or not roles or not all(isinstance(role, str) for role in roles):
            raise self._error(kind, place, f"{name}: roles is a list of names")
        for role in roles:
            if role not in self._roles:
                known = ", ".join(sorted(self._roles))
                raise self._error(kind, place, f"{name}: the role {role!r} is not known: use {known}")
        expires = entry.get("expires")
        if expires is not None and (not isinstance(expires, datetime) or expires.tzinfo is None):
            raise self._error(kind, place, f"{name}: expires is a time such as 2027-01-01T00:00:00Z")
        scope = self._patterns(kind, place, entry.get("topics", ["*"]), f"{name}: topics")
        try:
            rights = self._rights_of(tuple(roles), scope)
            limits = read_limits(entry["limits"]) if "limits" in entry else NONE
        except (PatternError, LimitsError) as error:
            raise self._error(kind, place, f"{name}: {error}") from None
        until = expires.timestamp() if expires is not None else NEVER
        self._add(kind, place, entry, Identity(name, kind, tuple(roles), rights, until, limits))

    def _rights_of(self, roles: tuple[str, ...], scope: tuple[str, ...]) -> Rights:
        """Return rights that all with the same roles share: 10,000 of 1,000 rules took minutes. Raises PatternError."""
        found = self._rights.get((roles, scope))
        if found is None:
            found = Rights([rule for role in roles for rule in self._roles[role]], scope)
            found.compile()
            self._rights[roles, scope] = found
        return found

    def _add(self, kind: str, place: int, entry: Mapping[str, Any], identity: Identity) -> None:
        """Enter an identity by its credentials."""
        found, name = self._found, identity.name
        sha256, password = entry.get("sha256"), entry.get("password")
        if sha256 is not None:
            if not isinstance(sha256, str) or DIGEST.fullmatch(sha256) is None:
                raise self._error(kind, place, f"{name}: sha256 has 64 hex digits in lower case")
            if sha256 in found.tokens:
                raise self._error(kind, place, f"{name}: the same token is there twice")
            found.tokens[sha256] = identity
        if kind == "token" and sha256 is None:
            raise self._error(kind, place, f"{name}: sha256 is missing: make a token by penstock auth token create")
        if kind == "user":
            if name in found.users:
                raise self._error(kind, place, f"{name} is defined twice")
            if password is not None and not (isinstance(password, str) and password.startswith(MADE_BY)):
                raise self._error(kind, place, f"{name}: password is a hash of argon2: set it by penstock users")
            found.users[name] = identity, password or ""
            if password is None and sha256 is None:
                found.unproven.add(name)
        elif kind == "certificate":
            given = [(key, entry[key]) for key in ("subject", "san") if key in entry]
            if len(given) != 1:
                raise self._error(kind, place, f"{name}: give subject or san")
            (pattern,) = self._patterns(kind, place, [given[0][1]], f"{name}: {given[0][0]}")
            found.certificates.append((given[0][0], pattern, identity))
        elif kind == "socket":
            for number in self._users(place, entry):
                if number in found.sockets:
                    raise self._error(kind, place, f"{name}: the user {number} is there twice")
                found.sockets[number] = identity

    def _users(self, place: int, entry: Mapping[str, Any]) -> list[int]:
        """Return the numbers of the machine's users that an entry names."""
        name, uid, user = entry["name"], entry.get("uid"), entry.get("user")
        if (uid is None) == (user is None):
            raise self._error("socket", place, f"{name}: give uid or user")
        if user is not None:
            try:
                return [user_number(user if isinstance(user, str) else "")]
            except ValueError as error:
                raise self._error("socket", place, f"{name}: {error} of this machine") from None
        numbers: list[Any] = uid if isinstance(uid, list) else [uid]
        if not numbers or not all(type(one) is int and 0 <= one <= MOST_ID for one in numbers):
            raise self._error("socket", place, f"{name}: uid is a number, or a list of numbers, from 0 to {MOST_ID}")
        return numbers
