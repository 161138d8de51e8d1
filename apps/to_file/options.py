"""The options of nsq_to_file, and their checks."""

import errno
import os
import socket
import tempfile
from dataclasses import dataclass

import re2

from apps.passthrough import ConsumerOptions
from apps.to_file import names
from apps.to_file.disk import Disk
from apps.to_file.output import Place
from apps.to_file.rotation import Limits
from apps.tool import check_tcp_source
from shared.log import LEVELS
from shared.options import option
from shared.values import SECOND, Duration

PROGRAM = "nsq_to_file"


@dataclass(frozen=True, slots=True)
class Options(ConsumerOptions):
    """The options of nsq_to_file, by their flags."""

    log_level: str = option("info", "set log verbosity: debug, info, warn, error, or fatal")
    log_prefix: str = option("[nsq_to_file] ", "log message prefix")
    channel: str = option("nsq_to_file", "nsq channel")
    output_dir: str = option("/tmp", "directory to write output files to")
    work_dir: str = option("", "directory for in-progress files before moving to output-dir (default: output-dir)")
    datetime_format: str = option("%Y-%m-%d_%H", "strftime compatible format for <DATETIME> in filename format")
    filename_format: str = option(
        "<TOPIC>.<HOST><REV>.<DATETIME>.log",
        "output filename format (<TOPIC>, <HOST>, <PID>, <DATETIME>, <REV> are replaced. "
        "<REV> is increased when file already exists)",
    )
    host_identifier: str = option(
        "",
        "value to output in log filename in place of hostname. "
        "<SHORT_HOST> and <HOSTNAME> are valid replacement tokens",
    )
    gzip_level: int = option(6, "gzip compression level (1-9, 1=BestSpeed, 9=BestCompression)")
    gzip: bool = option(False, "gzip output files")
    skip_empty_files: bool = option(False, "skip writing empty files")
    topic_refresh: Duration = option(Duration(60 * SECOND), "how frequently the topic list should be refreshed")
    topic_pattern: str = option("", "only log topics matching the following pattern")
    rotate_size: int = option(0, "rotate the file when it grows bigger than this number of bytes")
    rotate_interval: Duration = option(Duration(0), "rotate the file every duration")
    sync_interval: Duration = option(Duration(30 * SECOND), "sync file to disk every duration")
    http_client_connect_timeout: Duration = option(Duration(2 * SECOND), "timeout for HTTP connect")
    http_client_request_timeout: Duration = option(Duration(5 * SECOND), "timeout for HTTP request")
    topic: tuple[str, ...] = option((), "nsq topic (may be given multiple times)")

    @property
    def work_directory(self) -> str:
        """Return the directory of the open files, in the form in which it is compared with the output directory."""
        return os.path.normpath(self.work_dir or self.output_dir)

    @property
    def has_revisions(self) -> bool:
        """Return whether a file name may need <REV>."""
        moves = self.work_directory != os.path.normpath(self.output_dir)
        return self.gzip or self.rotate_size > 0 or self.rotate_interval > 0 or moves


def check(options: Options) -> None:
    """Raise ValueError for options that are missing or do not fit together."""
    if options.log_level.lower() not in LEVELS:
        raise ValueError(f"--log-level is invalid: {options.log_level!r}, expected one of {', '.join(LEVELS)}")
    if not options.channel:
        raise ValueError("--channel is required")
    for flag in ("http_client_connect_timeout", "http_client_request_timeout", "sync_interval"):
        if getattr(options, flag) <= 0:
            raise ValueError(f"--{flag.replace('_', '-')} should be positive")
    check_tcp_source(PROGRAM, options.nsqd_tcp_address, options.lookupd_http_address)
    if not 1 <= options.gzip_level <= 9:
        raise ValueError(f"invalid --gzip-level value ({options.gzip_level}), should be 1-9")
    if not options.topic and not options.topic_pattern:
        raise ValueError("--topic or --topic-pattern required")
    if not options.topic and not options.lookupd_http_address:
        raise ValueError("--lookupd-http-address must be specified when no --topic specified")
    if options.max_in_flight < 1:
        raise ValueError("--max-in-flight should be positive")
    _check_pattern(options.topic_pattern)
    topic_format(options, "topic")
    _check_directories(options)


def _check_pattern(pattern: str) -> None:
    try:
        matcher(pattern)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")  # re2 gives bytes
        raise ValueError(f"--topic-pattern is invalid: {reason}") from None


def _check_directories(options: Options) -> None:
    """Raise ValueError if a finished file cannot be moved by a link, because the file systems differ."""
    work, output = _nearest(options.work_directory), _nearest(options.output_dir)
    if os.stat(work).st_dev != os.stat(output).st_dev:
        raise ValueError(f"--work-dir and --output-dir are not on one file system: {work}, {output}")


def prepare_directories(options: Options) -> None:
    """Make the directories of the files, and check that a file can be made in each. Raises ValueError if not.

    A disk that is full or read-only is no error here: writing is tried again until it has room or was mounted for writing.
    """
    for flag, path in (("output-dir", options.output_dir), ("work-dir", options.work_directory)):
        try:
            Disk().make_directory(path)
            with tempfile.TemporaryFile(dir=path):  # os.access allows root to write anywhere
                pass
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise ValueError(f"--{flag} {path} cannot be made or written: {error.strerror}") from None


def _nearest(path: str) -> str:
    """Return the directory, or the next above it that exists."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def matcher(pattern: str) -> "re2._Regexp":
    """Return the compiled -topic-pattern, in Go's syntax, which takes linear time. Raises re2.error."""
    quiet = re2.Options()
    quiet.log_errors = False
    return re2.compile(pattern, quiet)


def topic_format(options: Options, topic: str) -> str:
    """Return the file name of a topic, in which <REV> and <DATETIME> are open. Raises ValueError."""
    host = names.host(options.host_identifier, socket.gethostname())
    return names.topic_format(options.filename_format, topic, host, os.getpid(), options.gzip, options.has_revisions)


def place(options: Options, topic: str) -> Place:
    """Return the place of the files of a topic."""
    return Place(
        title=f"{topic}/{options.channel}",
        output=os.path.normpath(options.output_dir),
        work=options.work_directory,
        gzip_level=options.gzip_level if options.gzip else 0,
        limits=Limits(options.rotate_size, options.rotate_interval / SECOND),
    )
