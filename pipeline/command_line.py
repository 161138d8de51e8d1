"""The command line of `penstock pipeline`, with one function for each job."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """
  penstock pipeline archive --lookupd 127.0.0.1:4161 --topic orders --out lake --once
  penstock pipeline rollup --lake lake
  penstock pipeline report --lake lake --out report.html
  penstock pipeline replay --lake lake --lookupd 127.0.0.1:4161 --topic orders --to orders.replay --from 2026-11-21T10:00:00Z

A topic must retain its messages to be archived: curl -X POST '127.0.0.1:4151/topic/config?topic=orders&retention=24h'
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; its result has the job's name as `job`."""
    made = argparse.ArgumentParser(
        prog="penstock pipeline",
        description="Archive topics as Parquet, roll the archive up, report on it, and replay it."
        " Runs on Spark, locally or on a cluster.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs = made.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, help, add_options in (
        ("archive", "archive topics as Parquet, each message once, until Ctrl-C or with --once", _archive),
        ("compact", "merge the small files of a lake into larger ones", _compact),
        ("rollup", "count the archived messages by minute, hour and day", _rollup),
        ("replay", "publish archived messages again", _replay),
        ("report", "write an HTML page with plots of a period, from the rollups", _report),
        ("history", "print the rollups of one topic or of all as JSON, for nsqadmin", _history),
    ):
        add_options(jobs.add_parser(name, help=help))
    what = "check whether Java, Spark and what else the jobs need are installed"
    jobs.add_parser("doctor", help=what, description=what)
    return made


def _archive(job: argparse.ArgumentParser) -> None:
    _add_servers(job)
    job.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="topic to archive (may be given multiple times)"
    )
    job.add_argument("--topic-pattern", default="", metavar="REGEX", help="archive all topics whose whole name matches")
    job.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="directory of the lake; created if it does not exist"
    )
    job.add_argument("--once", action="store_true", help="archive the messages that exist now, then exit")
    job.add_argument(
        "--every", type=_seconds, default=60.0, metavar="SECONDS", help="seconds between micro-batches (default: 60)"
    )
    job.add_argument(
        "--start",
        default="earliest",
        choices=("earliest", "latest"),
        help="where the first run starts (default: earliest)",
    )
    job.add_argument(
        "--max-records",
        type=_count,
        default=0,
        metavar="N",
        help="maximum number of messages per micro-batch (default: no limit)",
    )
    job.add_argument(
        "--cursor",
        default="archive",
        metavar="NAME",
        help="cursor on nsqd that shows the lag; '': none (default: archive)",
    )
    job.add_argument(
        "--hold",
        default="",
        metavar="DURATION",
        help="how long nsqd retains messages that the cursor has not read, for example 48h",
    )
    job.add_argument("--skip-lost", action="store_true", help="continue after lost messages instead of stopping")
    _add_master(job)


def _compact(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    job.add_argument(
        "--rows",
        type=_count,
        default=2_000_000,
        metavar="N",
        help="maximum number of messages per file (default: 2,000,000)",
    )
    _add_master(job)


def _rollup(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    help = "archived topic of nsqd's -statistics-topic (default: _statistics)"
    job.add_argument("--statistics-topic", default="_statistics", metavar="NAME", help=help)
    _add_master(job)


def _replay(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    _add_servers(job)
    job.add_argument("--topic", required=True, metavar="NAME", help="archived topic to replay")
    job.add_argument("--to", required=True, metavar="NAME", help="topic to publish to")
    job.add_argument(
        "--channel", default="", metavar="NAME", help="publish to this channel of --to only (default: all channels)"
    )
    job.add_argument("--same", action="store_true", help="allow --to to be the archived topic itself")
    _add_period(job)
    job.add_argument(
        "--where", default="", metavar="SQL", help="condition over topic, node, offset, id, timestamp, producer, body"
    )
    job.add_argument(
        "--rate", type=_count, default=0, metavar="N", help="maximum messages per second (default: no limit)"
    )
    _add_master(job)


def _report(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    job.add_argument("--out", type=Path, required=True, metavar="FILE", help="HTML file to write")
    _add_period(job)


def _history(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    job.add_argument("--topic", default="", metavar="NAME", help="topic (default: all)")
    job.add_argument(
        "--grain", default="hour", choices=("minute", "hour", "day"), help="length of a step (default: hour)"
    )
    job.add_argument(
        "--last", type=_count, default=168, metavar="N", help="number of steps, the newest ones (default: 168)"
    )


def _add_servers(job: argparse.ArgumentParser) -> None:
    job.add_argument(
        "--lookupd", default="", metavar="HOST:PORT", help="HTTP addresses of nsqlookupd, separated by commas"
    )
    job.add_argument(
        "--nsqd",
        default="",
        metavar="HOST:PORT",
        help="HTTP addresses of nsqd, separated by commas, instead of --lookupd",
    )


def _add_lake(job: argparse.ArgumentParser) -> None:
    job.add_argument(
        "--lake", type=Path, required=True, metavar="DIR", help="directory of the lake, as given to archive --out"
    )


def _add_master(job: argparse.ArgumentParser) -> None:
    job.add_argument(
        "--master",
        default="",
        metavar="URL",
        help="URL of a Spark cluster (default: this machine, or the cluster of spark-submit)",
    )


def _add_period(job: argparse.ArgumentParser) -> None:
    for flag, name, text in (
        ("--from", "since", "start of the period, inclusive"),
        ("--until", "until", "end of the period, exclusive"),
    ):
        job.add_argument(
            flag, dest=name, default=None, type=_time, metavar="TIME", help=f"{text}, for example 2026-11-21T10:00:00Z"
        )


def _time(text: str) -> str:
    from datetime import datetime

    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone: write {text}Z for UTC")
    return moment.isoformat()


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:18]) == 0:
        raise argparse.ArgumentTypeError("expected a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError("expected more than 0 and at most 86400 seconds")
    return seconds
