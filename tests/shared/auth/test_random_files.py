"""Whole random auth files: identities and their rights, against a reference that reads the same file as plain data.

3,000 files took a minute of CPU time: PENSTOCK_EFFORT=12000 is two hours of it.
"""

import json
import re
import tomllib
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.auth.auth_file import Identity
from shared.auth.keyring import Keyring
from shared.auth.tokens import digest
from shared.auth.verbs import BUILT_IN, Verb
from tests.effort import tries

FILES = tries(30, in_short=15)
REQUESTS = 12  # about each file
NOW = datetime(2027, 1, 1, tzinfo=UTC)
PARTS = ["a", "b", "orders", ".", "x"]
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join)
PATTERN = st.one_of(
    st.lists(st.sampled_from([*PARTS, "*", "?"]), min_size=1, max_size=4).map("".join),
    st.sampled_from(["re:a|b", "re:orders\\.[ax]+", "re:.*", "re:a.?b"]),
)
PATTERNS = st.lists(PATTERN, min_size=1, max_size=3)
VERBS = st.lists(st.sampled_from([str(verb) for verb in Verb]), min_size=1, max_size=3)
RULE = st.fixed_dictionaries({"verbs": VERBS}, optional={"topics": PATTERNS, "channels": PATTERNS})
ROLES = [f"role{number}" for number in range(3)]
ENDS = st.sampled_from([NOW - timedelta(seconds=1), NOW, NOW + timedelta(seconds=1)])
ENTRY = st.fixed_dictionaries(
    {"roles": st.lists(st.sampled_from([*ROLES, *BUILT_IN]), min_size=1, max_size=3)},
    optional={"topics": PATTERNS, "expires": ENDS},
)
SUBJECTS = ["CN=a", "CN=ab", "CN=a,O=x"]
CERTIFICATE = st.sampled_from(
    [("subject", "CN=a*"), ("subject", "CN=a"), ("subject", "*"), ("san", "a.*"), ("san", "*")]
)


def tokens_of(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one | {"name": f"t{at // 2}", "sha256": digest(token(at))} for at, one in enumerate(entries)]


def token(number: int) -> bytes:
    return b"pst_" + str(number).encode().ljust(43, b"x")


FILE = st.fixed_dictionaries(
    {
        "role": st.lists(st.lists(RULE, min_size=1, max_size=3), min_size=3, max_size=3).map(
            lambda found: [{"name": name, "rules": rules} for name, rules in zip(ROLES, found, strict=True)]
        ),
        "token": st.lists(ENTRY, max_size=4).map(tokens_of),
        "user": st.lists(ENTRY, max_size=2).map(
            lambda found: [one | {"name": f"u{at}", "password": "$argon2id$x"} for at, one in enumerate(found)]
        ),
        "certificate": st.lists(st.tuples(ENTRY, CERTIFICATE), max_size=3).map(
            lambda found: [one | {"name": f"c{at}", kind: text} for at, (one, (kind, text)) in enumerate(found)]
        ),
    }
)
PROOF = st.one_of(
    st.tuples(st.just("token"), st.integers(0, 4)),
    st.tuples(st.just("user"), st.sampled_from(["u0", "u1", "u2"])),
    st.tuples(st.just("certificate"), st.tuples(st.sampled_from(SUBJECTS), st.lists(NAMES, max_size=2))),
)
REQUEST = st.tuples(PROOF, st.sampled_from(Verb), NAMES | st.just(""), NAMES | st.just(""))


def written(file: dict[str, list[dict[str, Any]]]) -> str:
    def value(one: Any) -> str:
        if isinstance(one, datetime):
            return one.isoformat().replace("+00:00", "Z")
        if isinstance(one, dict):
            return "{ " + ", ".join(f"{key} = {value(two)}" for key, two in one.items()) + " }"
        return "[" + ", ".join(map(value, one)) + "]" if isinstance(one, list) else json.dumps(one)

    tables = [(kind, entry) for kind, entries in file.items() for entry in entries]
    return "\n".join(
        "\n".join([f"[[{kind}]]", *(f"{key} = {value(one)}" for key, one in entry.items())]) for kind, entry in tables
    )


# The reference


def fits(patterns: list[str], name: str) -> bool:
    return any(
        re.fullmatch(one[3:], name) is not None if one.startswith("re:") else fnmatchcase(name, one) for one in patterns
    )


def entry_of(file: dict[str, Any], proof: tuple[str, Any]) -> dict[str, Any] | None:
    """The entry whose proof this is, as the file says."""
    kind, shown = proof
    for entry in file.get(kind, []):
        is_his = (
            entry["sha256"] == digest(token(shown))
            if kind == "token"
            else entry["name"] == shown
            if kind == "user"
            else re.fullmatch(re.escape(entry["subject"]).replace(r"\*", r"[^,]*"), shown[0]) is not None
            if "subject" in entry
            else any(fits([entry["san"]], name) for name in shown[1])
        )
        if is_his:
            return entry if entry.get("expires", NOW + timedelta(1)) > NOW else None
    return None


def allows(file: dict[str, Any], entry: dict[str, Any], verb: Verb, topic: str, channel: str) -> bool:
    roles = {name: [{"verbs": verbs}] for name, verbs in BUILT_IN.items()} | {
        one["name"]: one["rules"] for one in file["role"]
    }
    rules = [rule for role in entry["roles"] for rule in roles[role] if verb in rule["verbs"]]
    scope, everywhere = entry.get("topics", ["*"]), ["*"]
    if not topic:
        both = [(rule.get("topics", everywhere), rule.get("channels", everywhere)) for rule in rules]
        return "*" in scope and any("*" in topics and "*" in channels for topics, channels in both)
    return fits(scope, topic) and any(
        fits(rule.get("topics", everywhere), topic)
        and ("*" in (channels := rule.get("channels", everywhere)) or (channel != "" and fits(channels, channel)))
        for rule in rules
    )


def found_by(keyring: Keyring, proof: tuple[str, Any]) -> Identity | None:
    kind, shown = proof
    if kind == "token":
        return keyring.with_token(token(shown))
    if kind == "certificate":
        return keyring.with_certificate(*shown)
    user = keyring.user(shown)
    return user[0] if user is not None else None


@settings(max_examples=FILES, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(FILE, st.lists(REQUEST, min_size=REQUESTS, max_size=REQUESTS))
def test_identities_and_rights_are_as_in_the_file(
    tmp_path: Path, file: dict[str, Any], requests: list[tuple[tuple[str, Any], Verb, str, str]]
) -> None:
    text = written(file)
    path = tmp_path / "auth.toml"
    path.write_text(text)
    path.chmod(0o600)
    keyring = Keyring(str(path), NOW.timestamp)
    plain = tomllib.loads(text)
    for proof, verb, topic, channel in requests:
        entry, identity = entry_of(plain, proof), found_by(keyring, proof)
        assert (identity and identity.name) == (entry and entry["name"]), proof
        if identity is not None and entry is not None:
            wanted = allows(plain, entry, verb, topic, channel)
            for _ in range(2):  # the second one is remembered
                assert identity.rights.may(verb, topic, channel) is wanted, (identity, verb, topic, channel)
            assert (identity.rights.reason(verb, topic, channel) is not None) is wanted
