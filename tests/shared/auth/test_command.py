"""penstock auth: tokens are made, listed and revoked, and rights are checked."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from shared.auth.auth_file import parse
from shared.auth.command import main
from shared.auth.tokens import digest
from shared.auth.verbs import Verb
from tests.cases import each

ROLE = '[[role]]\nname = "orders"   # ours\nrules = [{ verbs = ["publish"], topics = ["orders.*"] }]\n'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(tmp_path / "auth.toml", monkeypatch, capsys)


class Run:
    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self._monkeypatch, self._capsys = path, monkeypatch, capsys
        self.code, self.out, self.err = 0, "", ""

    def __call__(self, line: str) -> str:
        argv = ["penstock auth", *line.replace("FILE", str(self.path)).split()]
        self._monkeypatch.setattr(sys, "argv", argv)
        self.code = main()
        self.out, self.err = self._capsys.readouterr()
        return self.out.strip()


def test_a_token_is_made_listed_replaced_and_revoked(run: Run) -> None:
    run.path.write_text(ROLE)
    run.path.chmod(0o640)
    first = run("token create FILE api --role orders")
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o640
    assert first not in run.path.read_text()
    second = run("token create FILE api --role orders --role viewer --topics orders.eu --expires 90d")
    other = run("token create FILE other --role admin")
    found = parse(run.path.read_text())
    assert list(found.tokens) == [digest(token.encode()) for token in (first, second, other)]
    lines = [line.split("\t") for line in run("token list FILE").splitlines()]
    expected = ["api token orders", "api token orders,viewer", "other token admin"]
    assert [" ".join(line[:3]) for line in lines] == expected
    assert lines[1][3] == "orders.eu"
    assert run("token revoke FILE api --older") == "revoked 1 token of api"
    assert list(parse(run.path.read_text()).tokens) == [digest(token.encode()) for token in (second, other)]
    assert run("token revoke FILE api") == "revoked 1 token of api"
    assert [one.name for one in parse(run.path.read_text()).identities()] == ["other"]
    assert run.path.read_text().startswith(ROLE)
    run("token revoke FILE api")
    assert (run.code, "api has no token" in run.err) == (1, True)


def test_a_new_file_is_for_its_owner_only(run: Run) -> None:
    token = run("token create FILE api --role producer")
    assert run.code == 0
    assert "cannot be shown again" in run.err
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o600
    assert parse(run.path.read_text()).tokens[digest(token.encode())].rights.may(Verb.PUBLISH, "any")


@each("words, wanted", [
    ("a/b --role viewer", "names have"), ("a --role none", "the role 'none' is not known"),
    ("a --role viewer --expires soon", "number of days"), ("a --role viewer --topics re:(", "not an expression"),
    ('a --role viewer --topics a"b', "by hand"),
])  # fmt: skip
def test_what_is_wrong_changes_nothing(run: Run, words: str, wanted: str) -> None:
    run.path.write_text(ROLE)
    run(f"token create FILE {words}")
    assert run.code == 1
    assert wanted in run.err
    assert run.path.read_text() == ROLE
    run.path.write_text("x = [")
    run("token create FILE a --role viewer")
    assert (run.code, run.path.read_text()) == (1, "x = [")


def test_can_says_yes_or_no_and_why(run: Run) -> None:
    run.path.write_text(ROLE)
    run("token create FILE api --role orders")
    run("token create FILE eu --role viewer --topics orders.eu")
    assert run("can FILE api publish orders.eu") == "yes: by rule 1 of role orders"
    assert run.code == 0
    assert run("can FILE eu stats orders.eu") == "yes: by role viewer, on orders.eu"
    for words in ("api publish other", "api publish", "eu stats", "api consume orders.eu c"):
        assert run(f"can FILE {words}") == "no: no rule allows it"
        assert run.code == 1
    run("can FILE ann stats")
    assert (run.code, "no entry has the name ann" in run.err) == (1, True)


def test_tokens_that_are_written_in_another_way_are_not_left_valid(run: Run) -> None:
    token = run("token create FILE api --role viewer")
    text = run.path.read_text().replace("[[token]]", "[[ token ]]").replace(digest(token.encode()), digest(b"other"))
    run.path.write_text(run.path.read_text() + text)
    before = run.path.read_text()
    run("token revoke FILE api")
    assert (run.code, "edit the file" in run.err) == (1, True)
    assert run.path.read_text() == before
