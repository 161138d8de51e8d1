"""`penstock pipeline JOB`: reads the command line and runs the job. Exit codes: 1 for a failure, 2 for wrong arguments."""

from __future__ import annotations

import argparse
import os
import re
import sys

from pipeline.command_line import parser
from pipeline.lake import Lake, LakeError
from pipeline.session import Missing, need_packages

TRACE = "PENSTOCK_TRACE"  # environment variable: if set, errors come with everything that Spark says
_REASON = re.compile(r"\s*(?:Caused by: )?((?:\w+\.)*\w*(?:Error|Exception|DataLoss|Nobody|Refused|Unreachable)): (.+)")


def main() -> int:
    """Run the job that the command line names, and return the exit code."""
    arguments = parser().parse_args(sys.argv[1:])
    try:
        need_packages()
        return _run(arguments)
    except (LakeError, Missing, OSError) as error:
        print(f"penstock pipeline {arguments.job}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        message = str(error) if type(error).__module__.startswith("penstock.spark") else cause(str(error))
        if not message or TRACE in os.environ:
            raise
        print(f"penstock pipeline {arguments.job}: {message}", file=sys.stderr)
        return 1


def cause(pages: str) -> str:
    """Return the line of Spark's error text that matters.

    It is the error of our source or sink if there is one, otherwise the innermost reason, and "" if there is none.
    """
    reasons = [match for line in pages.splitlines() if (match := _REASON.match(line))]
    for match in reversed(reasons):
        if match[1].startswith("penstock.spark."):
            return match[2]
    if not reasons and pages.strip().startswith("["):  # one of Spark's error classes, whose first line says it all
        return pages.strip().splitlines()[0]
    return f"{reasons[-1][2]} ({reasons[-1][1]}; set {TRACE}=1 to see the whole output of Spark)" if reasons else ""


def _run(given: argparse.Namespace) -> int:
    match given.job:
        case "archive":
            from pipeline.archive import Source, archive

            return archive(
                Lake(given.out), Source(given.nsqd, given.lookupd, ",".join(given.topic), given.topic_pattern),
                once=given.once, every=given.every, start=given.start, max_records=given.max_records, cursor=given.cursor,
                hold=given.hold, goes_on=given.skip_lost, master=given.master,
            )  # fmt: skip
        case "compact":
            from pipeline.compact import compact

            return compact(Lake(given.lake), rows=given.rows, master=given.master)
        case "rollup":
            from pipeline.rollup import rollup

            return rollup(Lake(given.lake), statistics=given.statistics_topic, master=given.master)
        case "replay":
            from pipeline.archive import Source
            from pipeline.replay import replay

            if given.to == given.topic and not (given.same or given.channel):
                raise LakeError(
                    f"--to {given.to} is the archived topic itself, and all of its channels would get the messages again:"
                    " give --same to do this, or --channel for one channel"
                )
            return replay(
                Lake(given.lake), Source(given.nsqd, given.lookupd), topic=given.topic, to=given.to, channel=given.channel,
                since=given.since or "", until=given.until or "", where=given.where, rate=given.rate, master=given.master,
            )  # fmt: skip
        case "history":
            from pipeline.history import history

            return history(Lake(given.lake), topic=given.topic, grain=given.grain, last=given.last)
        case _:
            from pipeline.report import report

            return report(Lake(given.lake), given.out, since=given.since or "", until=given.until or "")


if __name__ == "__main__":
    sys.exit(main())
