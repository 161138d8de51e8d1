"""`penstock archive`: archives topics until Ctrl-C or with --once, and starts again when a node, Spark or the store fails.

Without --master the tasks run in this process. Spark does nothing but run them on other machines, too: messages do not pass
through its JVM.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from deltalake.exceptions import DeltaError

from penstock.lake.location import Lake, LakeError, StoreError, lake_at, one_line
from penstock.lake.schema import MOST_TOPICS
from penstock.lake.table import MessageTable
from penstock.lake.task import Outcome, Work
from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.follower import Follower
from penstock.spark.nodes import NoAnswer
from penstock.spark.options import ReadOptions, read_options
from pipeline.archiver import Archiver, Runner, Tasks
from pipeline.saying import say
from pipeline.session import GATEWAY, cause, spark_errors, spark_runner
from shared.counted import counted

LONGEST_WAIT = 60.0  # s before an archive starts again
_FAILURES = (Unreachable, NoAnswer, Refused, DeltaError, OSError, StoreError)  # of nodes and stores, which may end


def run(given: argparse.Namespace) -> int:
    """Archive, and start again after a failure, with a pause that doubles.

    Returns 1 if a topic has lost messages or there were more than --restarts failures without a message between them, otherwise
    0. Raises LakeError, Missing, OptionError.
    """
    lake, options, failures = lake_at(given.lake), options_of(given), 0
    uses_spark = bool(given.master) or GATEWAY in os.environ
    while True:
        done = 0
        try:
            with runner_of(given.master, uses_spark=uses_spark) as run_tasks, Asker() as asker:
                archiver = archiver_of(lake, options, asker, run_tasks, given.max_records)
                try:
                    return _archive(archiver, given)
                finally:
                    done = archiver.done
        except Exception as error:
            if not isinstance(error, (*_FAILURES, *(spark_errors() if uses_spark else ()))):
                raise
            failures = 1 if done else failures + 1
            wait = min(LONGEST_WAIT, 2.0 ** (failures - 1))
            if failures > given.restarts:
                raise LakeError(f"{_line(error)} (after {failures - 1} restarts)") from None
            say(f"restart {failures} in {wait:g} s: {_line(error)}")
            time.sleep(wait)


def _line(error: Exception) -> str:
    return cause(str(error)) or one_line(error)


def archiver_of(lake: Lake, options: ReadOptions, asker: Asker, run_tasks: Runner, most: int) -> Archiver:
    """Return an archiver that has asked the nodes and opened the table. `most`: messages of a batch."""
    follower = Follower(options, asker)
    follower.ask_all(may_be_deleted=True, may_be_lost=True)
    topics = {place.topic for place in follower.ranges}
    table = MessageTable.open_or_create(lake, by_topic=len(topics) <= MOST_TOPICS)
    archiver = Archiver(table, follower, run_tasks, most)
    archiver.begin()
    return archiver


def _archive(archiver: Archiver, given: argparse.Namespace) -> int:
    """Archive what is there, and without --once what comes later."""
    archiver.archive_all()
    while not given.once:
        time.sleep(given.every)
        archiver.batch()
    say(f"archived {counted(archiver.done, 'message')}; {given.lake} has {archiver.table.count():,}")
    return 1 if archiver.stopped else 0


def in_process(work: Work, tasks: Tasks) -> Iterable[Outcome]:
    """Run the tasks here, one after the other."""
    return map(work, tasks)


def runner_of(master: str, *, uses_spark: bool) -> AbstractContextManager[Runner]:
    """Return the runner of the tasks: a session of Spark while the context lasts, or this process. Raises Missing."""
    return spark_runner("penstock archive", master) if uses_spark else nullcontext(in_process)


def server_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options with the addresses of the servers."""
    return {name: value for name in ("nsqd", "lookupd") if (value := getattr(given, name))}


def options_of(given: argparse.Namespace) -> ReadOptions:
    """Return the options of the follower that the command line names. Raises OptionError."""
    options = server_options(given) | {
        "startingOffsets": given.start,
        "failOnDataLoss": str(not given.skip_lost).lower(),
        "pollMs": "0",
    }
    for name, value in (
        ("topics", ",".join(given.topic)),
        ("topicPattern", given.topic_pattern),
        ("cursorName", given.cursor),
        ("cursorHold", given.hold),
    ):
        options |= {name: str(value)} if value else {}
    return read_options(options)
