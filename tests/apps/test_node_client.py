"""How commands reach nsqd: the addresses, the token and TLS."""

import argparse
from pathlib import Path

import httpx
import pytest

from apps.node_client import add_address, open_client, use_context, why_refused
from shared.terminal.commands import CommandError

TOKEN = "pst_" + "a" * 43


def arguments(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_address(parser)
    parsed = parser.parse_args(flags)
    use_context(parsed)
    return parsed


def test_a_token_is_shown_as_a_bearer_token_if_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_client(arguments()) as client:
        assert "Authorization" not in client.headers
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    with open_client(arguments("--auth-token-file", str(path))) as client:
        assert client.headers["Authorization"] == f"Bearer {TOKEN}"
    monkeypatch.setenv("PENSTOCK_AUTH_TOKEN_FILE", str(path))
    with open_client(arguments()) as client:
        assert client.headers["Authorization"] == f"Bearer {TOKEN}"


def test_a_file_that_cannot_be_used_is_named_and_not_quoted(tmp_path: Path) -> None:
    for flag in ("--auth-token-file", "--tls-root-ca-file"):
        with pytest.raises(CommandError, match="missing: No such file"):
            open_client(arguments(flag, str(tmp_path / "missing")))
    path = tmp_path / "ca.pem"
    path.write_text("secret")
    with pytest.raises(CommandError, match=r"ca\.pem: it is not a certificate in PEM$"):
        open_client(arguments("--tls-root-ca-file", str(path)))


def test_a_refusal_says_what_to_do() -> None:
    for code, text in (
        ("UNAUTHORIZED", "--auth-token-file"), ("FORBIDDEN", "Access denied"), ("TLS_REQUIRED", "--tls-root-ca-file"),
        ("DISK_FULL no space left for the log", "disk-full.md"), ("NOREPL", "penstock cluster status"),
    ):  # fmt: skip
        assert text in why_refused(httpx.Response(403, json={"message": code}), {}, "node:4151")
    advice = {"NO_CLUSTER": "{address} is alone, node {node}"}
    assert why_refused(httpx.Response(400, json={"message": "NO_CLUSTER"}), advice, "a", node=3) == "a is alone, node 3"
    assert "answered 400 WORD" in why_refused(httpx.Response(400, json={"message": "WORD"}), advice, "a")
    assert "may not be an nsqd" in why_refused(httpx.Response(502, text="<html>"), advice, "a")
