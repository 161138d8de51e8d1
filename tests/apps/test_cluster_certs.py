"""`penstock cluster certs`: which files it makes, which it keeps, and what it refuses."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.x509 import load_pem_x509_certificate

from apps import cluster_certs
from apps.certificate_authority import AUTHORITY_DAYS, Authority, AuthorityError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NODE_0 = ["node-0-key.pem", "node-0.pem"]


def penstock(*words: str) -> int:
    parser = argparse.ArgumentParser()
    cluster_certs.add_command(parser.add_subparsers())
    return cluster_certs.run(parser.parse_args(["certs", *words]))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_files_are_made_and_keys_are_private(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "new" / "certs"
    assert penstock(str(directory), "--nodes", "2") == 0
    assert names(directory) == ["ca-key.pem", "ca.pem", *NODE_0, "node-1-key.pem", "node-1.pem"]
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    assert {mode for name, mode in modes.items() if name.endswith("-key.pem")} == {0o600}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"created the certificate authority {directory / 'ca.pem'}"
    assert lines[2].startswith(f"created {directory / 'node-1.pem'}, which expires on 20")


def test_a_second_run_adds_nodes_and_keeps_what_exists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert penstock(str(tmp_path), "--nodes", "1") == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    capsys.readouterr()
    assert penstock(str(tmp_path), "--nodes", "2", "--days", "5") == 0
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert names(tmp_path) == ["ca-key.pem", "ca.pem", *NODE_0, "node-1-key.pem", "node-1.pem"]
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["kept", "kept", "created"]


def test_a_certificate_ends_after_so_many_days_and_not_after_its_authority(tmp_path: Path) -> None:
    assert Authority(tmp_path, 5, NOW).issue(0) == (True, NOW + timedelta(days=5))
    late = Authority(tmp_path, 30, NOW + timedelta(days=AUTHORITY_DAYS - 1))
    assert late.issue(1) == (True, NOW + timedelta(days=AUTHORITY_DAYS))
    assert late.issue(0) == (False, NOW + timedelta(days=5))
    with pytest.raises(AuthorityError, match="expired on 2039-12-30"):
        Authority(tmp_path, 30, NOW + timedelta(days=AUTHORITY_DAYS))


def test_an_authority_that_is_to_last_longer_than_usual(tmp_path: Path) -> None:
    assert Authority(tmp_path, AUTHORITY_DAYS + 9, NOW).issue(0)[1] == NOW + timedelta(days=AUTHORITY_DAYS + 9)


def test_a_slow_clock_accepts_a_new_certificate(tmp_path: Path) -> None:
    Authority(tmp_path, 5, NOW).issue(0)
    for name in ("ca.pem", "node-0.pem"):
        found = load_pem_x509_certificate((tmp_path / name).read_bytes())
        assert found.not_valid_before_utc == NOW - timedelta(hours=1)


@pytest.mark.parametrize("missing", ["ca.pem", "ca-key.pem", "node-0.pem", "node-0-key.pem"])
def test_half_a_pair_is_refused_and_nothing_is_overwritten(
    tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert penstock(str(tmp_path), "--nodes", "1") == 0
    (tmp_path / missing).unlink()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert penstock(str(tmp_path), "--nodes", "2") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    error = capsys.readouterr().err
    assert error.startswith("penstock cluster certs: ")
    assert f"without {tmp_path / missing}; restore the missing file, or remove " in error


def test_files_of_another_authority_or_number_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        assert penstock(str(directory), "--nodes", "2") == 0
    for suffix in (".pem", "-key.pem"):
        (one / f"node-0{suffix}").write_bytes((other / f"node-0{suffix}").read_bytes())
        (one / f"node-2{suffix}").write_bytes((one / f"node-1{suffix}").read_bytes())
    authority = Authority(one, 5)
    for number in (0, 2):
        with pytest.raises(AuthorityError, match=f"not a certificate of this authority for node {number}; remove it"):
            authority.issue(number)


@pytest.mark.parametrize("name", ["ca.pem", "ca-key.pem"])
def test_an_authority_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    Authority(own, 5)
    Authority(other, 5)
    (own / name).write_bytes((other / name).read_bytes())
    with pytest.raises(AuthorityError, match="is not the EC key of"):
        Authority(own, 5)
    (own / name).write_text("nothing")
    with pytest.raises(AuthorityError, match="cannot be read"):
        Authority(own, 5)


def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert penstock(str(tmp_path / "file"), "--nodes", "1") == 1
    assert "penstock cluster certs: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--nodes", "0"], ["--nodes", "1025"], ["--nodes", "x"], ["--nodes", "1", "--days", "0"], []]
)
def test_wrong_arguments_end_with_code_2(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        penstock(str(tmp_path / "new"), *words)
    assert ended.value.code == 2
    assert not (tmp_path / "new").exists()
