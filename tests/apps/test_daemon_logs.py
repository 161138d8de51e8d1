"""Where the daemons of `penstock up` write their logs."""

import os
from pathlib import Path

import pytest

from apps import daemon_logs
from apps.daemon_logs import DaemonLogs


def write(logs: DaemonLogs, text: str) -> None:
    with logs.open("nsqd") as file:
        assert file is not None
        os.write(file, text.encode())


def test_a_file_is_continued_and_its_end_is_shown_after_a_failure(tmp_path: Path) -> None:
    logs = DaemonLogs(tmp_path / "logs")
    write(logs, "".join(f"line {number}\n" for number in range(6)))
    write(logs, "the last one\n")
    path = tmp_path / "logs" / "nsqd.log"
    assert path.stat().st_mode & 0o777 == 0o600
    first, *lines = logs.describe_end("nsqd")
    assert first == f"penstock up: {path} ends with:\n"
    assert lines == ["  line 2\n", "  line 3\n", "  line 4\n", "  line 5\n", "  the last one\n"]
    assert logs.describe_end("never-started") == []


def test_a_large_file_is_kept_next_to_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_logs, "LARGEST", 3)
    logs = DaemonLogs(tmp_path)
    write(logs, "abcd")
    write(logs, "new")
    assert ((tmp_path / "nsqd.log.1").read_text(), (tmp_path / "nsqd.log").read_text()) == ("abcd", "new")


def test_with_logs_the_daemons_share_the_terminal() -> None:
    logs = DaemonLogs(None)
    with logs.open("nsqd") as file:
        assert file is None
    assert logs.describe_end("nsqd") == []
