"""`penstock pipeline JOB` and `penstock archive`: calls `run` of the module of that name.

Exit codes: 1 for a failure, 2 for wrong arguments.
"""

from __future__ import annotations

import sys
from importlib import import_module

from penstock.lake.location import LakeError
from penstock.spark.ask import Refused, Unreachable
from penstock.spark.nodes import NoAnswer
from penstock.spark.options import OptionError
from pipeline import doctor
from pipeline.command_line import parser
from pipeline.saying import say
from pipeline.session import Missing, need_packages


def main() -> int:
    """Run the job that the command line names, and return the exit code."""
    given = parser().parse_args(sys.argv[1:])
    if given.job == "doctor":
        return doctor.check(given.lake)
    try:
        need_packages("deltalake", "pyarrow")
        return int(import_module(f"pipeline.{given.job}").run(given))
    except (LakeError, Missing, OptionError, NoAnswer, Refused, Unreachable, OSError) as error:
        say(f"{given.program}: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
