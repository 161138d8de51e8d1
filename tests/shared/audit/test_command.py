"""`penstock audit`: what it says about whole and broken files, and which records it shows."""

import gzip
import re
import sys
from pathlib import Path

import pytest

from shared.audit import command
from shared.audit.chain import Head, digest, encode
from shared.audit.event import Event, Outcome
from tests.shared.audit.test_chain import AT, chain


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["penstock", *map(str, words)])
    code = command.main()
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "audit"
    path.write_bytes(b"\n".join([*chain(6), b""]))
    return path


def test_a_whole_chain(file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "verify", file)
    last = digest(chain(6)[-1])
    assert code == 0
    assert out == f"6 records, chain unbroken\nrecords 1 to 6; the last line has the digest {last}\n"


def test_rotated_files_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = chain(6)
    (tmp_path / "1.gz").write_bytes(gzip.compress(b"\n".join([*lines[:3], b""])))
    (tmp_path / "2").write_bytes(b"\n".join([*lines[3:], b""]))
    assert run(capsys, monkeypatch, "verify", tmp_path / "1.gz", tmp_path / "2")[0] == 0
    code, out, _ = run(capsys, monkeypatch, "verify", tmp_path / "2", tmp_path / "1.gz")
    assert (code, "1.gz, line 1: it does not follow" in out) == (1, True)
    code, out, _ = run(capsys, monkeypatch, "verify", tmp_path / "2")
    assert (code, "begins with record 4: what came before was not given" in out) == (0, True)


@pytest.mark.parametrize(
    ("what", "at"), [("edited", 4), ("removed", 3), ("swapped", 3), ("added", 4), ("torn", 6), ("emptied", 3)]
)
def test_where_a_chain_breaks(
    file: Path, what: str, at: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    if what == "edited":
        lines[2] = lines[2].replace(b"t2", b"t9")
    elif what == "removed":
        del lines[2]
    elif what == "swapped":
        lines[2:4] = reversed(lines[2:4])
    elif what == "added":
        lines.insert(3, lines[2])
    elif what == "torn":
        lines[5] = lines[5][:-1]
    else:
        lines[2] = b"\n"
    file.write_bytes(b"".join(lines))
    code, out, _ = run(capsys, monkeypatch, "verify", file)
    assert (code, out.startswith(f"{file}, line {at}: it ")) == (1, True), out


def test_progress_is_told(file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PROGRESS", 2)
    code, out, err = run(capsys, monkeypatch, "verify", file)
    assert (code, out.splitlines()[0]) == (0, "6 records, chain unbroken")
    assert err == "2 records so far\n4 records so far\n6 records so far\n"


def test_a_line_without_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "audit").write_bytes(b"x" * 5_000_000)
    assert run(capsys, monkeypatch, "verify", tmp_path / "audit")[:2] == (
        1, f"{tmp_path / 'audit'}, line 1: it is not a record: it is not JSON\n",
    )  # fmt: skip


def test_files_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"x" * 1000)[:-10])
    (tmp_path / "empty").touch()
    assert run(capsys, monkeypatch, "verify", tmp_path / "none") == (
        1, "", f"penstock audit: {tmp_path / 'none'}: No such file or directory\n",
    )  # fmt: skip
    assert run(capsys, monkeypatch, "verify", tmp_path / "x.gz")[0] == 1
    assert run(capsys, monkeypatch, "verify", tmp_path / "empty")[:2] == (0, "0 records\n")


def test_records_as_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [
        Event("http", "topic/delete", "orders", who="nsqadmin", by="token", user="ann", address="192.0.2.1"),
        Event("beanstalkd", "kick", "mail", who="ops", by="certificate", address="192.0.2.2", count=12),
        Event("nsq", "PUB", "\x1b[31m\u202e", Outcome.REFUSED, address="192.0.2.3"),
    ]
    head, lines = Head(), []
    for number, event in enumerate(events):
        line, head = encode(head, 7, AT + number * 10**9, event)
        lines.append(line)
    (tmp_path / "audit").write_bytes(b"\n".join([*lines, b"junk", b""]))
    code, out, err = run(capsys, monkeypatch, "show", tmp_path / "audit")
    assert code == 0
    rows = [re.split("  +", line) for line in out.splitlines()]
    assert rows == [
        ["TIME", "WHO", "PORT", "ADDRESS", "ACTION", "TARGET", "COUNT", "OUTCOME"],
        ["2026-09-21T14:13:20.123Z", "ann by nsqadmin", "http", "192.0.2.1", "topic/delete", "orders", "-", "done"],
        ["2026-09-21T14:13:21.123Z", "ops", "beanstalkd", "192.0.2.2", "kick", "mail", "12", "done"],
        ["2026-09-21T14:13:22.123Z", "-", "nsq", "192.0.2.3", "PUB", r"\x1b[31m\u202e", "-", "refused"],
    ]
    assert err == f"{tmp_path / 'audit'}, line 4: it is not a record: it is not JSON\n"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--who", "ann"), ["topic/delete"]),
        (("--who", "nsq*"), ["topic/delete"]),
        (("--action", "KICK"), []),
        (("--action", "k*"), ["kick"]),
        (("--since", "2026-09-21T14:13:21"), ["kick"]),
        (("--since", "2026-09-21", "--who", "o?s"), ["kick"]),
    ],
)
def test_some_records(
    tmp_path: Path,
    words: tuple[str, ...],
    wanted: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, head = encode(Head(), 7, AT, Event("http", "topic/delete", who="nsqadmin", user="ann"))
    second, _ = encode(head, 7, AT + 10**9, Event("beanstalkd", "kick", who="ops"))
    (tmp_path / "audit").write_bytes(first + b"\n" + second + b"\n")
    _, out, _ = run(capsys, monkeypatch, "show", tmp_path / "audit", *words)
    assert [re.split("  +", line)[4] for line in out.splitlines()[1:]] == wanted
