"""`penstock pipeline JOB`: calls `run` of the module of that name. Exit codes: 1 for a failure, 2 for wrong arguments."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module

from pipeline import doctor
from pipeline.command_line import parser
from pipeline.lake import LakeError
from pipeline.session import Missing, need_packages

TRACE = "PENSTOCK_TRACE"  # environment variable: if set, errors come with everything that Spark says
_REASON = re.compile(r"\s*(?:Caused by: )?((?:\w+\.)*\w*(?:Error|Exception|DataLoss|Nobody|Refused|Unreachable)): (.+)")


def main() -> int:
    """Run the job that the command line names, and return the exit code."""
    arguments = parser().parse_args(sys.argv[1:])
    if arguments.job == "doctor":
        return doctor.main()
    try:
        need_packages()
        return int(import_module(f"pipeline.{arguments.job}").run(arguments))
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
    """Return the reason in Spark's error text: that of penstock.spark if there is one, else the innermost one, or ""."""
    reasons = [match for line in pages.splitlines() if (match := _REASON.match(line))]
    for match in reversed(reasons):
        if match[1].startswith("penstock.spark."):
            return match[2]
    if not reasons and pages.strip().startswith("["):  # one of Spark's error classes, whose first line says it all
        return pages.strip().splitlines()[0]
    return f"{reasons[-1][2]} ({reasons[-1][1]}; set {TRACE}=1 to see the whole output of Spark)" if reasons else ""


if __name__ == "__main__":
    sys.exit(main())
