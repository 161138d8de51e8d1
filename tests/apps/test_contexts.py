"""`penstock context`: saving, choosing and removing contexts, as a user types them."""

from pathlib import Path

import pytest

from apps.penstock import main
from tests.cases import each


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))


def context(*words: str) -> int:
    return main(["context", *words])


def test_the_first_context_becomes_the_current_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert context("list") == 0
    assert capsys.readouterr() == ("", "no contexts: penstock context add NAME saves one\n")
    assert context("add", "east", "--lookupd-http-address", "10.0.0.1:4161", "--auth-token-file", "admin.token") == 0
    assert context("add", "west", "--nsqd-http-address", "10.1.0.1:4151", "--nsqd-http-address", "10.1.0.2:4151") == 0
    assert context("list") == 0
    assert capsys.readouterr().out == (
        "CURRENT  NAME  ADDRESSES                     CREDENTIALS\n"
        "*        east  10.0.0.1:4161                 auth_token_file\n"
        "-        west  10.1.0.1:4151, 10.1.0.2:4151  -\n"
    )
    assert context("use", "west") == context("remove", "east") == context("show", "--json") == 0
    assert capsys.readouterr().out == (
        '{"name": "west", "nsqd_http_address": ["10.1.0.1:4151", "10.1.0.2:4151"]}\n'
    )  # fmt: skip


def test_files_are_found_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert context("add", "a", "--lookupd-http-address", "a:1", "--tls-root-ca-file", "ca.pem") == 0
    assert context("show", "a") == 0
    assert f"tls_root_ca_file: {tmp_path}/ca.pem\n" in capsys.readouterr().out


@each("words, code, why", [
    (("add", "a b", "--lookupd-http-address", "a:1"), 2, "letters, digits, - and _"), (("add", "a"), 2, "give --lookupd"),
    (("add", "a", "--lookupd-http-address", "a"), 2, "expected host:port"), (("use", "lost"), 1, "'lost' was not found"),
    (("remove", "lost"), 1, "context 'lost' was not found"), (("show",), 1, "`penstock up` does not run"),
])  # fmt: skip
def test_wrong_arguments(words: tuple[str, ...], code: int, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert context(*words) == code
    assert why in capsys.readouterr().err
