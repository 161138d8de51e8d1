"""Where commands get addresses and credentials from: flags, variables, contexts, the set of `penstock up`."""

import argparse
import os
from pathlib import Path

import pytest

from shared.terminal.commands import CommandError
from shared.terminal.context import (
    Context,
    Contexts,
    add_context,
    contexts_file,
    local_set,
    noted_set,
    read_contexts,
    resolve,
    sets_directory,
    write_contexts,
)
from tests.cases import each

PRODUCTION = Context(("10.0.0.1:4161", "10.0.0.2:4161"), auth_token_file="/t", tls_root_ca_file="/ca")
STAGING = Context(nsqd_http_address=("https://[::1]:4152",), job_address="s:11300")


def arguments(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_context(parser)
    return parser.parse_args(flags)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a user whose current context is production."""
    found = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    write_contexts(contexts_file(found), Contexts("production", {"production": PRODUCTION, "staging": STAGING}))
    return found


def test_contexts_are_read_as_they_were_written_and_only_by_their_owner(environ: dict[str, str]) -> None:
    path = contexts_file(environ)
    assert read_contexts(path) == Contexts("production", {"production": PRODUCTION, "staging": STAGING})
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(CommandError, match="all users of this machine can read it: run chmod o= on it"):
        read_contexts(path)


def test_the_current_context_and_a_named_one(environ: dict[str, str]) -> None:
    assert resolve(arguments(), environ) == PRODUCTION
    assert resolve(arguments("--context", "staging"), environ) == STAGING
    assert resolve(arguments(), environ | {"PENSTOCK_CONTEXT": "staging"}) == STAGING
    with pytest.raises(CommandError, match=r"context 'lost' was not found \(known: production, staging\)"):
        resolve(arguments("--context", "lost"), environ)


def test_addresses_that_are_given_do_not_get_the_credentials_of_the_current_context(environ: dict[str, str]) -> None:
    elsewhere = arguments("--nsqd-http-address", "other:4151")
    assert resolve(elsewhere, environ) == Context(nsqd_http_address=("other:4151",))
    variables = environ | {"PENSTOCK_LOOKUPD_HTTP_ADDRESS": "a:1,b:2", "PENSTOCK_AUTH_TOKEN_FILE": "/mine"}
    assert resolve(arguments(), variables) == Context(("a:1", "b:2"), auth_token_file="/mine")
    assert resolve(elsewhere, variables) == Context(nsqd_http_address=("other:4151",), auth_token_file="/mine")
    named = arguments("--nsqd-http-address", "other:4151", "--context", "production")
    assert resolve(named, environ) == Context((), ("other:4151",), auth_token_file="/t", tls_root_ca_file="/ca")


def test_a_flag_goes_before_a_variable_and_that_before_a_context(environ: dict[str, str]) -> None:
    variables = environ | {"PENSTOCK_TLS_ROOT_CA_FILE": "/variable", "PENSTOCK_AUTH_TOKEN_FILE": "/variable"}
    found = resolve(arguments("--auth-token-file", "/flag"), variables)
    assert (found.auth_token_file, found.tls_root_ca_file) == ("/flag", "/variable")
    assert found.lookupd_http_address == PRODUCTION.lookupd_http_address
    found = resolve(arguments("--auth-token-command", "pass show x"), variables)
    assert (found.auth_token_file, found.auth_token_command) == ("", "pass show x")


def test_the_set_of_penstock_up_is_found_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    assert local_set(environ) is None
    assert resolve(arguments(), environ) == Context(("127.0.0.1:4161",))
    directory = sets_directory(environ)
    write_contexts(directory / "999999999.toml", Contexts(by_name={"local": STAGING}))  # it was killed
    own = Context(("127.0.0.1:5161",), alarm=("disk-low=off",))
    with noted_set(environ, own):
        assert [path.stem for path in directory.iterdir()] == [str(os.getpid())]
        assert local_set(environ) is None  # this process is another program
        monkeypatch.setattr("shared.terminal.context._runs_penstock_up", lambda process: process == str(os.getpid()))
        assert local_set(environ) == resolve(arguments(), environ) == own
        monkeypatch.setattr("shared.terminal.context._runs_penstock_up", lambda process: True)
        write_contexts(directory / "7.toml", Contexts(by_name={"local": STAGING}))
        with pytest.raises(CommandError, match="2 sets of penstock up run here: give --lookupd-http-address, one of"):
            resolve(arguments(), environ)
        (directory / "7.toml").unlink()
    assert list(directory.iterdir()) == []
    (tmp_path / "file").touch()
    with noted_set(
        {"XDG_STATE_HOME": str(tmp_path / "file")}, own
    ):  # no directory can be made: commands do not find it
        pass


@each("content, why", [
    ("contexts = 1", "expected current = NAME and tables"), ("[contexts.a]\nadress = 1", "unknown key 'adress'"),
    ("[contexts.a]\nlookupd_http_address = 'a:1'", "must be a list of texts"), ("other = 1", "unknown key 'other'"),
    ("[contexts.a]\nlookupd_http_address = ['nowhere']", "expected host:port, not 'nowhere'"),
    ("[contexts.'a/b']", "a context's name must be"), ("[contexts.a", "Expected"), ("\0", "Invalid"),
    ("[contexts.a]\njob_address = 'http://a:1'", "expected host:port"),
])  # fmt: skip
def test_a_file_with_an_error_is_named(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "contexts.toml"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(CommandError) as error:
        read_contexts(path)
    assert str(error.value).startswith(f"{path}: ")
    assert why in str(error.value)
