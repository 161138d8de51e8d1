"""`penstock pipeline compact`: many small files to few. Readers see each message once at all times, and archives continue."""

from __future__ import annotations

import argparse
import os
from typing import Any

from deltalake import WriterProperties
from deltalake.exceptions import DeltaError

from penstock.lake.location import MESSAGES, LakeError, lake_at, one_line
from penstock.lake.table import open_table
from pipeline.saying import say
from shared.counted import counted

MEGABYTE = 1 << 20


def run(given: argparse.Namespace) -> int:
    """Run the job and return the exit code. Raises LakeError."""
    lake = lake_at(given.lake)
    table = open_table(lake, MESSAGES)
    how: dict[str, Any] = {
        "target_size": given.megabytes * MEGABYTE,
        "writer_properties": WriterProperties(compression="ZSTD", compression_level=1),
    }
    try:
        done = table.optimize.z_order(["timestamp"], **how) if given.by_time else table.optimize.compact(**how)
    except DeltaError as error:
        raise LakeError(f"cannot compact {lake.url}: {one_line(error)}; nothing was changed") from None
    if lake.is_directory:
        os.sync()  # Delta's library leaves that to the operating system, and the old files may be removed later
    say(
        f"compacted {counted(done['numFilesRemoved'], 'file')} into {done['numFilesAdded']:,}; vacuum removes the old ones"
    )
    return 0
