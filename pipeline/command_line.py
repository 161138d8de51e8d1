"""The command line of `penstock pipeline`, with one function for each job."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """
  penstock pipeline archive --lookupd 127.0.0.1:4161 --topic orders --out lake --once
  penstock pipeline rollup --lake lake
  penstock pipeline report --lake lake --out report.html
  penstock pipeline replay --lake lake --lookupd 127.0.0.1:4161 --topic orders --to orders.replay --from 2026-11-21T10:00:00Z

Topics must retain what they are given: curl -X POST '127.0.0.1:4151/topic/config?topic=orders&retention=24h'
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; its result has the job's name as `job`."""
    made = argparse.ArgumentParser(
        prog="penstock pipeline",
        description="Topics to Parquet, and from there to rollups, a report, and back. Runs on Spark, here or on a cluster.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs = made.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, help, add_options in (
        ("archive", "topics to Parquet, each message once, until Ctrl-C or --once", _archive),
        ("compact", "many small files of a lake into few", _compact),
        ("rollup", "counts by minute, hour and day of what was archived", _rollup),
        ("replay", "archived messages published again", _replay),
        ("report", "a page with plots of a period, from the rollups", _report),
        ("history", "what the rollups know of a topic, or of all, as JSON: nsqadmin asks so", _history),
    ):
        add_options(jobs.add_parser(name, help=help))
    return made


def _archive(job: argparse.ArgumentParser) -> None:
    _add_servers(job)
    job.add_argument("--topic", action="append", default=[], metavar="NAME", help="may be given again")
    job.add_argument("--topic-pattern", default="", metavar="REGEX", help="all topics that it matches wholly")
    job.add_argument("--out", type=Path, required=True, metavar="DIR", help="the lake; made if it is not there")
    job.add_argument("--once", action="store_true", help="all that is there now, then exit")
    job.add_argument("--every", type=_seconds, default=60.0, metavar="SECONDS", help="between micro-batches (60)")
    job.add_argument("--start", default="earliest", choices=("earliest", "latest"), help="of the first run (earliest)")
    job.add_argument("--max-records", type=_count, default=0, metavar="N", help="of a micro-batch (all there is)")
    job.add_argument(
        "--cursor", default="archive", metavar="NAME", help="on nsqd, which tells its lag; '' for none (archive)"
    )
    job.add_argument(
        "--hold", default="", metavar="DURATION", help="nsqd retains what the cursor has not read so long, e.g. 48h"
    )
    job.add_argument("--skip-lost", action="store_true", help="go on where messages are lost, instead of stopping")
    _add_master(job)


def _compact(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    job.add_argument("--rows", type=_count, default=2_000_000, metavar="N", help="of a file, at most (2,000,000)")
    _add_master(job)


def _rollup(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    help = "what nsqd -statistics-topic was given, archived with the others (_statistics)"
    job.add_argument("--statistics-topic", default="_statistics", metavar="NAME", help=help)
    _add_master(job)


def _replay(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    _add_servers(job)
    job.add_argument("--topic", required=True, metavar="NAME", help="of the archive")
    job.add_argument("--to", required=True, metavar="NAME", help="the topic to publish to")
    job.add_argument("--channel", default="", metavar="NAME", help="the one channel of --to that gets them (all)")
    job.add_argument("--same", action="store_true", help="--to may be the topic itself")
    _add_period(job)
    job.add_argument(
        "--where", default="", metavar="SQL", help="over topic, node, offset, id, timestamp, producer, body"
    )
    job.add_argument("--rate", type=_count, default=0, metavar="N", help="messages a second (as fast as it goes)")
    _add_master(job)


def _report(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    job.add_argument("--out", type=Path, required=True, metavar="FILE", help="HTML, one file")
    _add_period(job)


def _history(job: argparse.ArgumentParser) -> None:
    _add_lake(job)
    job.add_argument("--topic", default="", metavar="NAME", help="one topic (all)")
    job.add_argument("--grain", default="hour", choices=("minute", "hour", "day"), help="of the steps (hour)")
    job.add_argument("--last", type=_count, default=168, metavar="N", help="so many steps, the newest (168)")


def _add_servers(job: argparse.ArgumentParser) -> None:
    job.add_argument("--lookupd", default="", metavar="HOST:PORT", help="HTTP of nsqlookupd; several with commas")
    job.add_argument("--nsqd", default="", metavar="HOST:PORT", help="HTTP of nsqd, in place of --lookupd")


def _add_lake(job: argparse.ArgumentParser) -> None:
    job.add_argument("--lake", type=Path, required=True, metavar="DIR", help="that archive has made")


def _add_master(job: argparse.ArgumentParser) -> None:
    job.add_argument(
        "--master", default="", metavar="URL", help="of a Spark cluster (this machine, or what spark-submit says)"
    )


def _add_period(job: argparse.ArgumentParser) -> None:
    for flag, name, text in (("--from", "since", "not before"), ("--until", "until", "before")):
        job.add_argument(
            flag, dest=name, default=None, type=_time, metavar="TIME", help=f"{text}, as 2026-11-21T10:00:00Z"
        )


def _time(text: str) -> str:
    from datetime import datetime

    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} names no time zone: write {text}Z")
    return moment.isoformat()


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:18]) == 0:
        raise argparse.ArgumentTypeError("want a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError("want more than 0, and no more than a day")
    return seconds
