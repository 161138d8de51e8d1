"""`penstock audit`: what it says about whole and broken files, and which records it shows."""

import gzip
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.audit import command
from shared.audit.chain import Head, digest, encode
from shared.audit.event import Event, Outcome
from tests.cases import each
from tests.shared.audit.test_chain import AT, chain

Audit = Callable[..., tuple[int, str, str]]


@pytest.fixture
def audit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Audit:
    """Runs `penstock audit` with these arguments. Returns its exit code, output and errors."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["penstock", *map(str, words)])
        code = command.main()
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "audit"
    path.write_bytes(b"\n".join([*chain(6), b""]))
    return path


def test_a_whole_chain_and_its_progress(file: Path, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PROGRESS", 2)
    last = digest(chain(6)[-1])
    assert audit("verify", file) == (
        0,
        f"6 records, chain unbroken\nrecords 1 to 6; the last line has the digest {last}\n",
        "2 records so far\n4 records so far\n6 records so far\n",
    )


def test_rotated_files_in_order(tmp_path: Path, audit: Audit) -> None:
    lines = chain(6)
    (tmp_path / "1.gz").write_bytes(gzip.compress(b"\n".join([*lines[:3], b""])))
    (tmp_path / "2").write_bytes(b"\n".join([*lines[3:], b""]))
    assert audit("verify", tmp_path / "1.gz", tmp_path / "2")[0] == 0
    code, out, _ = audit("verify", tmp_path / "2", tmp_path / "1.gz")
    assert (code, "1.gz, line 1: it does not follow" in out) == (1, True)
    code, out, _ = audit("verify", tmp_path / "2")
    assert (code, "begins with record 4: earlier ones were not given" in out) == (0, True)


LINES = [line + b"\n" for line in chain(6)]


@each("lines, at", [
    ([*LINES[:2], LINES[2].replace(b"t2", b"t9"), *LINES[3:]], 4), (LINES[:2] + LINES[3:], 3),
    ([*LINES[:2], LINES[3], LINES[2], *LINES[4:]], 3), ([*LINES[:3], LINES[2], *LINES[3:]], 4),
    ([*LINES[:5], LINES[5][:-1]], 6), ([*LINES[:2], b"\n", *LINES[3:]], 3),
])  # fmt: skip
def test_where_a_chain_breaks(file: Path, audit: Audit, lines: list[bytes], at: int) -> None:
    file.write_bytes(b"".join(lines))
    code, out, _ = audit("verify", file)
    assert (code, out.startswith(f"{file}, line {at}: it ")) == (1, True), out


def test_files_that_cannot_be_read(tmp_path: Path, audit: Audit) -> None:
    (tmp_path / "endless").write_bytes(b"x" * 5_000_000)
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"x" * 1000)[:-10])
    (tmp_path / "empty").touch()
    assert audit("verify", tmp_path / "endless")[:2] == (
        1, f"{tmp_path / 'endless'}, line 1: it is not a record: it is not JSON\n",
    )  # fmt: skip
    assert audit("verify", tmp_path / "none") == (
        1, "", f"penstock audit: {tmp_path / 'none'}: No such file or directory\n",
    )  # fmt: skip
    assert audit("verify", tmp_path / "x.gz")[0] == 1
    assert audit("verify", tmp_path / "empty")[:2] == (0, "0 records\n")


EVENTS = [
    Event("http", "topic/delete", "orders", who="nsqadmin", by="token", user="ann", address="192.0.2.1"),
    Event("beanstalkd", "kick", "mail", who="ops", by="certificate", address="192.0.2.2", count=12),
    Event("nsq", "PUB", "\x1b[31m\u202e", Outcome.REFUSED, address="192.0.2.3"),
]


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    head, lines = Head(), []
    for number, event in enumerate(EVENTS):
        line, head = encode(head, 7, AT + number * 10**9, event)
        lines.append(line)
    (tmp_path / "shown").write_bytes(b"\n".join([*lines, b"junk", b""]))
    return tmp_path / "shown"


def test_records_as_a_table(shown: Path, audit: Audit) -> None:
    code, out, err = audit("show", shown)
    assert code == 0
    assert [re.split("  +", line) for line in out.splitlines()] == [
        ["TIME", "WHO", "PORT", "ADDRESS", "ACTION", "TARGET", "COUNT", "OUTCOME"],
        ["2026-09-21T14:13:20.123Z", "ann by nsqadmin", "http", "192.0.2.1", "topic/delete", "orders", "-", "done"],
        ["2026-09-21T14:13:21.123Z", "ops", "beanstalkd", "192.0.2.2", "kick", "mail", "12", "done"],
        ["2026-09-21T14:13:22.123Z", "-", "nsq", "192.0.2.3", "PUB", r"\x1b[31m\u202e", "-", "refused"],
    ]
    assert err == f"{shown}, line 4: it is not a record: it is not JSON\n"


@each("words, wanted", [
    ("--who ann", ["topic/delete"]), ("--who nsq*", ["topic/delete"]), ("--action KICK", []), ("--action k*", ["kick"]),
    ("--since 2026-09-21T14:13:21", ["kick", "PUB"]), ("--since 2026-09-21 --who o?s", ["kick"]),
])  # fmt: skip
def test_some_records(shown: Path, audit: Audit, words: str, wanted: list[str]) -> None:
    _, out, _ = audit("show", shown, *words.split())
    assert [re.split("  +", line)[4] for line in out.splitlines()[1:]] == wanted
