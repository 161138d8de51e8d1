"""`penstock pipeline vacuum`: removes the files that no version of the last days needs.

These are the files that were compacted, and those of tasks that died before their commit. A file that is younger than the limit
stays, because a task may still be writing it.
"""

from __future__ import annotations

import argparse

from deltalake.exceptions import DeltaError

from penstock.lake.location import DELIVERIES, MESSAGES, ROLLUP, LakeError, lake_at, one_line
from penstock.lake.table import exists, open_table
from pipeline.saying import say
from shared.counted import counted


def run(given: argparse.Namespace) -> int:
    """Run the job and return the exit code. Raises LakeError."""
    lake = lake_at(given.lake)
    for name in (MESSAGES, ROLLUP, DELIVERIES):
        if name != MESSAGES and not exists(lake, name):
            continue
        table = open_table(lake, name)
        try:
            files = table.vacuum(given.hours, dry_run=given.dry_run, enforce_retention_duration=False, full=True)
        except DeltaError as error:
            raise LakeError(f"cannot vacuum {table.table_uri}: {one_line(error)}") from None
        say(f"{name}: {'would remove' if given.dry_run else 'removed'} {counted(len(files), 'file')}")
    return 0
