"""The command line of `penstock archive` and `penstock pipeline`, with one function for each job."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from shared.terminal.commands import Parser, examples_of

RETAIN = "\nA topic must retain its messages to be archived: penstock config orders retention=24h\n"
REPLAY = "pipeline replay --lake data/lake --nsqd HOST:4151 --topic a --to b"
JOBS = {  # each with an example
    "archive": (
        "archive topics, each message once, until Ctrl-C or with --once",
        "archive --nsqd 127.0.0.1:4151 --topic orders --lake data/lake --once",
    ),
    "compact": ("merge the small files of a lake into larger ones", "pipeline compact --lake data/lake"),
    "vacuum": ("remove files that no version of the last days needs", "pipeline vacuum --lake data/lake"),
    "rollup": ("count the archived messages by minute, hour and day", "pipeline rollup --lake data/lake"),
    "replay": ("publish archived messages again", REPLAY),
    "report": (
        "write an HTML page with plots of a period, from the rollups",
        "pipeline report --lake data/lake --out report.html",
    ),
    "history": (
        "print the rollups of one topic or of all as JSON, for nsqadmin",
        "pipeline history --lake data/lake --topic orders",
    ),
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; its result has the job's name as `job`, and the program's as `program`."""
    made = Parser(
        prog="penstock pipeline",
        description="Archive topics as a table of Delta Lake, roll the archive up, report on it, and replay it.",
        epilog=examples_of("\n".join(example for _, example in JOBS.values())) + RETAIN,
    )
    jobs = made.add_subparsers(dest="job", required=True, metavar="JOB")
    options = (_archive, _compact, _vacuum, _rollup, _replay, _report, _history)
    for (name, (help, example)), add_options in zip(JOBS.items(), options, strict=True):
        program = "penstock archive" if name == "archive" else f"penstock pipeline {name}"
        job = jobs.add_parser(
            name, help=help, description=f"{help[0].upper()}{help[1:]}.", prog=program, epilog=examples_of(example)
        )
        job.set_defaults(program=program)
        add_options(job)
    what = "check what the daemons, archives and Spark need, and with --lake whether a lake can be written"
    epilog = examples_of("pipeline doctor\npipeline doctor --lake data/lake")
    doctor = jobs.add_parser("doctor", help=what, description=f"{what[0].upper()}{what[1:]}.", epilog=epilog)
    doctor.add_argument("--lake", metavar="URL", help="also try to write a lake there")
    return made


def _archive(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    _add_servers(job)
    add = job.add_argument
    add("--topic", action="append", default=[], metavar="NAME", help="topic to archive (may be given multiple times)")
    add("--topic-pattern", default="", metavar="REGEX", help="archive all topics whose whole name matches")
    add("--once", action="store_true", help="archive the messages that exist now, then exit")
    add("--every", type=_seconds, default=60.0, metavar="SECONDS", help="seconds between batches (default: 60)")
    help = "where the first run starts (default: earliest)"
    add("--start", default="earliest", choices=("earliest", "latest"), help=help)
    help = "maximum number of messages per batch (default: 5,000,000)"
    add("--max-records", type=_count, default=5_000_000, metavar="N", help=help)
    help = "cursor on nsqd that shows the lag; '': none (default: archive)"
    add("--cursor", default="archive", metavar="NAME", help=help)
    help = "how long nsqd retains messages that the cursor has not read, for example 48h"
    add("--hold", default="", metavar="DURATION", help=help)
    help = "continue after lost messages instead of archiving the topic no longer"
    add("--skip-lost", action="store_true", help=help)
    help = "failures one after the other, without an archived message between them, that end the program (default: 20)"
    add("--restarts", type=_count, default=20, metavar="N", help=help)
    help = "read and write on Spark: URL of a cluster, or local[*] (default: in this process, or the cluster of spark-submit)"
    add("--master", default="", metavar="URL", help=help)


def _compact(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    help = "size of a file after compaction (default: 256)"
    job.add_argument("--megabytes", type=_count, default=256, metavar="N", help=help)
    help = "sort the messages of each partition by time, too: slower, and queries of short periods read less"
    job.add_argument("--by-time", action="store_true", help=help)


def _vacuum(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    help = "remove files that no version of the last HOURS needs; --at cannot go further back (default: 168)"
    job.add_argument("--hours", type=_count, default=168, metavar="HOURS", help=help)
    job.add_argument("--dry-run", action="store_true", help="only count the files")


def _rollup(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    help = "archived topic of nsqd's -statistics-topic (default: _statistics)"
    job.add_argument("--statistics-topic", default="_statistics", metavar="NAME", help=help)


def _replay(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    _add_servers(job)
    add = job.add_argument
    add("--topic", required=True, metavar="NAME", help="archived topic to replay")
    add("--to", required=True, metavar="NAME", help="topic to publish to")
    add("--channel", default="", metavar="NAME", help="publish to this channel of --to only (default: all channels)")
    add("--same", action="store_true", help="allow --to to be the archived topic itself")
    _add_period(job)
    add("--where", default="", metavar="SQL", help="condition over the columns of the table")
    add("--rate", type=_count, default=0, metavar="N", help="maximum messages per second (default: no limit)")
    help = "version or time of the table to read (default: the newest)"
    add("--at", type=_version, default=None, metavar="VERSION|TIME", help=help)


def _report(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    job.add_argument("--out", type=Path, required=True, metavar="FILE", help="HTML file to write")
    _add_period(job)


def _history(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    add = job.add_argument
    add("--topic", default="", metavar="NAME", help="topic (default: all)")
    add("--grain", default="hour", choices=("minute", "hour", "day"), help="length of a step (default: hour)")
    add("--last", type=_count, default=168, metavar="N", help="number of steps, the newest ones (default: 168)")


def _add_servers(job: argparse.ArgumentParser) -> None:
    help = "HTTP addresses of nsqlookupd, separated by commas"
    job.add_argument("--lookupd", default="", metavar="HOST:PORT", help=help)
    help = "HTTP addresses of nsqd, separated by commas, instead of --lookupd"
    job.add_argument("--nsqd", default="", metavar="HOST:PORT", help=help)


def _add_lake(job: argparse.ArgumentParser) -> None:
    job.add_argument("--lake", required=True, metavar="URL", help="the lake: a directory, s3://, gs:// or az://")


def _add_period(job: argparse.ArgumentParser) -> None:
    for flag, name, text in (
        ("--from", "since", "start of the period, inclusive"),
        ("--until", "until", "end of the period, exclusive"),
    ):
        help = f"{text}, for example 2026-11-21T10:00:00Z"
        job.add_argument(flag, dest=name, default=None, type=_time, metavar="TIME", help=help)


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone: write {text}Z for UTC")
    return moment


def _version(text: str) -> int | datetime:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else _time(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:18]) == 0:
        raise argparse.ArgumentTypeError("expected a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError("expected more than 0 and at most 86400 seconds")
    return seconds
