"""Users who show a name and a password over HTTP: who they are, how often a password is hashed, and how often one may guess."""

import asyncio
from base64 import b64encode
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from starlette.requests import Request

from shared.auth.auth_file import Identity
from shared.auth.failures import FAILURES_WITHIN, MOST_FAILURES
from shared.auth.keyring import Keyring
from shared.http import authorize
from shared.http.authorize import MOST_PASSWORD, REMEMBERED_FOR, Authorizer
from shared.http.errors import HttpError
from shared.http.proof import Proof
from tests.cases import each

HASHED, UNKNOWN = (PasswordHasher(time_cost=1, memory_cost=64).hash(text) for text in ("right", "any"))
FILE = (
    f'[[user]]\nname = "ann"\npassword = "{HASHED}"\nroles = ["viewer"]\n[[user]]\nname = "bob"\nroles = ["viewer"]\n'
    '[[certificate]]\nname = "billing"\nsubject = "CN=billing*"\nroles = ["viewer"]\n'
    '[[certificate]]\nname = "web"\nsan = "spiffe://shop/web"\nroles = ["viewer"]\n'
    '[[socket]]\nname = "sidecar"\nuid = 990\nroles = ["viewer"]\n'
)


class Guarded:
    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path.write_text(FILE)
        path.chmod(0o600)
        self.now = 1000.0
        self.hashed: list[str] = []  # what passwords were compared with
        monkeypatch.setattr(authorize, "UNKNOWN_USER_HASH", UNKNOWN)  # the real one takes 50 ms
        self.authorizer = Authorizer(Keyring(str(path), lambda: 0.0), lambda: self.now)
        compare = authorize.is_password
        monkeypatch.setattr(authorize, "is_password", lambda *pair: self.hashed.append(pair[0]) or compare(*pair))

    def ask(
        self, login: str, address: str = "192.0.2.1", kind: str = "Basic", proof: Proof | None = None
    ) -> Identity | int | None:
        """Return the identity, or the status of the refusal. `login`: name:password. `proof`: of a connection."""
        value = f"{kind} {b64encode(login.encode()).decode()}".encode()
        scope: dict[str, object] = {"type": "http", "headers": [(b"authorization", value)] if kind else []}
        scope["client"] = (address, 1) if address else None
        if proof is not None:
            scope["proof"] = lambda: proof
        try:
            return asyncio.run(self.authorizer.identify(Request(scope)))
        except HttpError as error:
            return error.status


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guarded:
    return Guarded(tmp_path / "auth.toml", monkeypatch)


def name_of(found: Identity | int | None) -> str:
    assert isinstance(found, Identity)
    return found.name


def test_a_password_that_was_right_is_hashed_again_after_a_minute_and_is_no_failure(guarded: Guarded) -> None:
    for _ in range(3):
        assert name_of(guarded.ask("ann:right")) == "ann"
    assert guarded.hashed == [HASHED]
    guarded.now += REMEMBERED_FOR + 1
    assert name_of(guarded.ask("ann:right")) == "ann"
    assert guarded.hashed == [HASHED] * 2
    for _ in range(2 * MOST_FAILURES):
        guarded.now += REMEMBERED_FOR / 1000
        guarded.authorizer._remembered.clear()
        assert name_of(guarded.ask("ann:right")) == "ann"


def test_who_is_refused(guarded: Guarded) -> None:
    for login in ("ann:wrong", "ann:", "ann", "bob:right", "nobody:right", "ann:" + "x" * (MOST_PASSWORD + 1)):
        assert guarded.ask(login) == 401, login[:20]
    assert name_of(guarded.ask("ann:right")) == "ann"
    guarded.hashed.clear()
    assert guarded.ask("nobody:right") == guarded.ask("bob:right") == 401
    assert guarded.hashed == [authorize.UNKNOWN_USER_HASH] * 2, "an unknown user takes as long as a known one"
    assert guarded.ask("ann:right", kind="") is None
    assert guarded.ask("ann:right", kind="Digest") == guarded.ask("ann:right", kind="Bearer") == 401
    assert len(guarded.hashed) == 2


def test_an_address_or_a_user_that_guesses_has_to_wait(guarded: Guarded) -> None:
    assert [guarded.ask("ann:wrong") for _ in range(MOST_FAILURES + 2)] == [401] * MOST_FAILURES + [429] * 2
    assert guarded.ask("ann:right") == 429
    assert len(guarded.hashed) == MOST_FAILURES
    assert name_of(guarded.ask("ann:right", address="192.0.2.2")) == "ann"
    guarded.now += FAILURES_WITHIN + 1
    assert name_of(guarded.ask("ann:right")) == "ann"
    guarded.now += REMEMBERED_FOR + 1
    for _ in range(MOST_FAILURES):
        assert guarded.ask("ann:wrong", address="", proof=Proof(user=991)) == 401
    assert guarded.ask("ann:right", address="", proof=Proof(user=991)) == 429
    assert name_of(guarded.ask("ann:right", address="", proof=Proof(user=992))) == "ann"


@each("proof, who", [
    (Proof(), None), (Proof(user=990), "sidecar"), (Proof(user=991), None), (Proof("CN=billing,O=shop"), None),
    (Proof("CN=billing1"), "billing"), (Proof("CN=x", ("x", "spiffe://shop/web")), "web"),
    (Proof("", ("spiffe://shop/web",), 990), "web"), (Proof("CN=x", ("x",), 990), "sidecar"),
])  # fmt: skip
def test_who_shows_nothing_is_known_by_the_connection(guarded: Guarded, proof: Proof, who: str | None) -> None:
    found = guarded.ask("", kind="", proof=proof)
    assert (found.name if isinstance(found, Identity) else found) == who
    assert name_of(guarded.ask("ann:right", proof=proof)) == "ann", "the password counts"
