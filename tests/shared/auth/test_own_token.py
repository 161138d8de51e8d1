"""The token that a daemon shows to the others."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.auth.keyring import RightsError, open_rights
from shared.auth.own_token import headers, headers_for, own_token, show_to, use_token_of
from tests.cases import each

TOKEN = "pst_" + "x" * 43


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    use_token_of("")


def test_without_a_file_nothing_is_shown() -> None:
    use_token_of("")
    assert (own_token(), headers()) == ("", {})


def test_the_token_of_a_file_is_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "token").chmod(0o600)
    assert open_rights("", str(tmp_path / "token"), lambda: 0.0) is None
    assert (own_token(), headers()) == (TOKEN, {"Authorization": f"Bearer {TOKEN}"})


@each("content", [b"", b"secret", b"pst_" + b"x" * 2000, b"\xff" * 47])
def test_what_is_not_a_token_is_refused_and_not_quoted(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    (tmp_path / "token").chmod(0o600)
    with pytest.raises(RightsError, match=r"--auth-token-file .* it has no token") as raised:
        open_rights("", str(tmp_path / "token"), lambda: 0.0)
    assert "secret" not in str(raised.value)


def test_the_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(RightsError, match=f"--auth-token-file {tmp_path}/no: No such file"):
        open_rights("", f"{tmp_path}/no", lambda: 0.0)
    (tmp_path / "auth").write_text("x = [")
    (tmp_path / "auth").chmod(0o600)
    with pytest.raises(RightsError, match=f"--auth-file {tmp_path}/auth: "):
        open_rights(f"{tmp_path}/auth", "", lambda: 0.0)


def test_a_file_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o604)
    with pytest.raises(RightsError, match="chmod"):
        open_rights("", str(tmp_path / "token"), lambda: 0.0)


def test_the_token_is_shown_to_hosts_that_were_named_and_to_no_others(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    use_token_of(str(tmp_path / "token"))
    show_to(["127.0.0.1:4161", "nsqd-*.inside:4151"])
    for url in ("http://127.0.0.1:4161/x", "http://nsqd-1.inside:4151/x?y", "http://u:p@127.0.0.1:4161/"):
        assert headers_for(url) == headers()
    for url in (
        "http://127.0.0.1:4162/x",
        "http://evil/?http://127.0.0.1:4161",
        "http://127.0.0.1:4161@evil/",
        "http://evil/nsqd-1.inside:4151",
    ):
        assert headers_for(url) == {}
    show_to(())
    assert headers_for("http://127.0.0.1:4161/") == {}


@each(
    "pattern, place, is_shown",
    [
        ("10.0.0.*:4151", "10.0.0.17:4151", True),
        ("10.0.0.*:4151", "10.0.0.1.attacker.example:4151", False),
        ("10.0.0.*:4151", "10.0.0.evil:4151", False),
        ("10.0.0.*:*", "10.0.0.17:4252", True),
        ("10.0.0.*:*", "10.0.0.17:4252.attacker.example:80", False),
        ("*.inside:4151", "n1.inside:4151", True),
        ("*.inside:4151", "a.b.inside:4151", False),
        ("n.inside:4151", "nxinside:4151", False),
        ("*:4151", "attacker.example:4151", False),
        ("[fd00::*]:4151", "[fd00::1]:4151", True),
    ],
)
def test_a_pattern_matches_no_host_of_somebody_else(pattern: str, place: str, is_shown: bool, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    use_token_of(str(tmp_path / "token"))
    show_to([pattern])
    assert bool(headers_for(f"http://{place}/x")) is is_shown
    show_to(())


def test_a_named_pipe_is_refused_and_waits_for_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token", 0o600)
    with pytest.raises(RightsError, match="it has no token"):
        open_rights("", str(tmp_path / "token"), lambda: 0.0)
