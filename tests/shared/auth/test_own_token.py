"""The token that a daemon shows to the others."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.auth.keyring import open_rights
from shared.auth.own_token import headers, headers_for, own_token, show_to, use_token_of
from shared.process.daemon import StartError
from tests.cases import each

TOKEN = "pst_" + "x" * 43


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    use_token_of("")


def token_file(directory: Path, content: bytes = TOKEN.encode() + b"\n", mode: int = 0o600) -> str:
    path = directory / "token"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_the_token_of_a_file_is_shown(tmp_path: Path) -> None:
    use_token_of("")
    assert (own_token(), headers()) == ("", {})
    assert open_rights("", token_file(tmp_path), lambda: 0.0) is None
    assert (own_token(), headers()) == (TOKEN, {"Authorization": f"Bearer {TOKEN}"})


@each("content", [b"", b"secret", b"pst_" + b"x" * 2000, b"\xff" * 47])
def test_what_is_not_a_token_is_refused_and_not_quoted(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(StartError, match=r"--auth-token-file .* it has no token") as raised:
        open_rights("", token_file(tmp_path, content), lambda: 0.0)
    assert "secret" not in str(raised.value)


def test_the_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=f"--auth-token-file {tmp_path}/no: No such file"):
        open_rights("", f"{tmp_path}/no", lambda: 0.0)
    (tmp_path / "auth").write_text("x = [")
    (tmp_path / "auth").chmod(0o600)
    with pytest.raises(StartError, match=f"--auth-file {tmp_path}/auth: "):
        open_rights(f"{tmp_path}/auth", "", lambda: 0.0)
    with pytest.raises(StartError, match="chmod"):  # all users can read it
        open_rights("", token_file(tmp_path, mode=0o604), lambda: 0.0)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(StartError, match="it has no token"):  # without waiting for a writer
        open_rights("", f"{tmp_path}/pipe", lambda: 0.0)


def test_the_token_is_shown_to_hosts_that_were_named_and_to_no_others(tmp_path: Path) -> None:
    use_token_of(token_file(tmp_path))
    show_to(["127.0.0.1:4161", "nsqd-*.inside:4151"])
    for url in ("http://127.0.0.1:4161/x", "http://nsqd-1.inside:4151/x?y", "http://u:p@127.0.0.1:4161/"):
        assert headers_for(url) == headers()
    for url in (
        "http://127.0.0.1:4162/x", "http://evil/?http://127.0.0.1:4161", "http://127.0.0.1:4161@evil/",
        "http://evil/nsqd-1.inside:4151",
    ):  # fmt: skip
        assert headers_for(url) == {}
    show_to(())
    assert headers_for("http://127.0.0.1:4161/") == {}


@each("pattern, place, is_shown", [
    ("10.0.0.*:4151", "10.0.0.17:4151", True), ("10.0.0.*:4151", "10.0.0.1.attacker.example:4151", False),
    ("10.0.0.*:4151", "10.0.0.evil:4151", False), ("10.0.0.*:*", "10.0.0.17:4252", True),
    ("10.0.0.*:*", "10.0.0.17:4252.attacker.example:80", False), ("*.inside:4151", "n1.inside:4151", True),
    ("*.inside:4151", "a.b.inside:4151", False), ("n.inside:4151", "nxinside:4151", False),
    ("*:4151", "attacker.example:4151", False), ("[fd00::*]:4151", "[fd00::1]:4151", True),
])  # fmt: skip
def test_a_pattern_matches_no_host_of_others(pattern: str, place: str, is_shown: bool, tmp_path: Path) -> None:
    use_token_of(token_file(tmp_path))
    show_to([pattern])
    assert bool(headers_for(f"http://{place}/x")) is is_shown
    show_to(())
