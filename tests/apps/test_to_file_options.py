"""The options of nsq_to_file: refused values, in the original's words, and the file names that they make of a topic."""

import errno
import os
import re
import resource
import socket
import tempfile
from pathlib import Path

import pytest

from apps.to_file.feeds import FILES_OF_A_TOPIC, MOST_TOPICS, topic_limit
from apps.to_file.options import Options, check, matcher, place, prepare_directories, topic_format
from apps.to_file.rotation import Limits
from shared.flags import read_flags
from tests.cases import each

GOOD = ("-topic=t", "-nsqd-tcp-address=a:1")


def options(*flags: str) -> Options:
    read = read_flags(Options, "nsq_to_file", flags)
    assert read.errors == []
    return Options(**read.values)


@each("flags, error", [
    (("-topic=t",), "--nsqd-tcp-address or --lookupd-http-address required (nsq_to_file -help lists the flags)"),
    ((*GOOD, "-lookupd-http-address=b:1"), "use --nsqd-tcp-address or --lookupd-http-address not both"),
    (("-nsqd-tcp-address=a:1",), "--topic or --topic-pattern required"),
    (("-nsqd-tcp-address=a:1", "-topic-pattern=t"), "--lookupd-http-address must be specified when no --topic specified"),
    ((*GOOD, "-channel="), "--channel is required"),
    ((*GOOD, "-gzip-level=0"), "invalid --gzip-level value (0), should be 1-9"),
    ((*GOOD, "-gzip-level=10"), "invalid --gzip-level value (10), should be 1-9"),
    ((*GOOD, "-log-level=loud"), "--log-level is invalid: 'loud', expected one of debug, info, warn, error, fatal"),
    ((*GOOD, "-nsqd-tcp-address=tcp://a:1"), "--nsqd-tcp-address error - address should not contain scheme"),
    ((*GOOD, "-sync-interval=0"), "--sync-interval should be positive"),
    ((*GOOD, "-max-in-flight=0"), "--max-in-flight should be positive"),
    ((*GOOD, "-http-client-connect-timeout=0"), "--http-client-connect-timeout should be positive"),
    ((*GOOD, "-http-client-request-timeout=0"), "--http-client-request-timeout should be positive"),
])  # fmt: skip
def test_wrong_options_are_refused_in_the_originals_words(flags: tuple[str, ...], error: str) -> None:
    with pytest.raises(ValueError) as raised:
        check(options(*flags))
    assert str(raised.value) == error


@each("flag", ["-gzip", "-rotate-size=1", "-rotate-interval=1s", "-work-dir=/var/none"])
def test_what_makes_revisions_needs_their_token(flag: str) -> None:
    check(options(*GOOD, flag))
    with pytest.raises(ValueError, match="missing <REV>"):
        check(options(*GOOD, flag, "-filename-format=<TOPIC>"))
    check(options(*GOOD, "-filename-format=<TOPIC>", "-work-dir=/tmp/"))  # the output directory itself


def test_a_pattern_is_of_gos_syntax() -> None:
    check(options("-topic-pattern=^(?i)orders", "-lookupd-http-address=a:1"))
    with pytest.raises(ValueError, match=re.escape("--topic-pattern is invalid: missing ): (f")):
        check(options("-topic-pattern=(f", "-lookupd-http-address=a:1"))
    assert matcher("ers").search("orders")
    assert not matcher("^ers").search("orders")
    assert matcher("").search("orders")


def test_a_work_directory_on_another_file_system_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = options(*GOOD, f"-output-dir={tmp_path}/not/yet", f"-work-dir={tmp_path}/work")
    check(chosen)
    real = os.stat
    (tmp_path / "work").mkdir()

    def stat(path: str, **more: bool) -> object:
        return type("Stat", (), {"st_dev": -1, "st_mode": 0})() if path == f"{tmp_path}/work" else real(path, **more)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(ValueError, match="not on one file system"):
        check(chosen)


@each("flag", ["output-dir", "work-dir"])
@each("below", ["", "/sub"])
def test_a_directory_that_cannot_be_made_is_refused(flag: str, below: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    chosen = options(*GOOD, f"-output-dir={tmp_path}", f"-{flag}={tmp_path}/file{below}")
    check(chosen)
    with pytest.raises(ValueError) as raised:
        prepare_directories(chosen)
    assert str(raised.value) == f"--{flag} {tmp_path}/file{below} cannot be made or written: Not a directory"


@each("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_at_the_start_is_not_refused(number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(**arguments: str) -> None:
        attempts.append(arguments["dir"])
        raise OSError(number, "full")

    attempts: list[str] = []
    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    prepare_directories(options(*GOOD, f"-output-dir={tmp_path}"))
    assert set(attempts) == {str(tmp_path)}


def test_where_a_topic_goes_and_its_name_follow_the_options() -> None:
    chosen = options(*GOOD, "-channel=c", "-output-dir=/out/", "-gzip-level=3", "-rotate-size=7", "-rotate-interval=2s")
    where = place(chosen, "orders")
    assert (where.title, where.output, where.work) == ("orders/c", "/out", "/out")
    assert (where.gzip_level, where.limits) == (0, Limits(7, 2.0))
    assert not where.moves
    assert where.exclusive
    where = place(options(*GOOD, "-gzip", "-gzip-level=3", "-work-dir=/open", "-output-dir=/out"), "orders")
    assert (where.gzip_level, where.work, where.moves, where.exclusive) == (3, "/open", True, True)
    chosen = options(*GOOD, "-filename-format=<TOPIC>-<HOST>-<PID><REV>", "-host-identifier=<HOSTNAME>!")
    assert topic_format(chosen, "orders") == f"orders-{socket.gethostname()}!-{os.getpid()}"


def test_the_number_of_topics_follows_the_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = ((resource.RLIM_INFINITY, MOST_TOPICS), (10**9, MOST_TOPICS))
    for limit, topics in (*enough, (100 * FILES_OF_A_TOPIC, 100), (1, 1)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, limit=limit: (limit, limit))
        assert topic_limit() == topics
