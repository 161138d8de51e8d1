"""Jobs of the pipeline in one process, some of which die at a stage.

    python -m tests.pipeline.dying STAGE[,STAGE] 'archive --nsqd ...' ['rollup ...' ...]

An archive's stages are named for what is done by then, of the second batch of this life; there the process dies, as by kill -9,
and its JVM with it. `node NUMBER` kills another process instead, where a batch has begun. A rollup and a compaction die by an
exception, and the next job follows: they remove nothing, so the disk is as after a kill.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from pipeline import archive, main, rollup
from pipeline.lake import Batch, Lake


class Died(BaseException):
    """The job is made to fail here."""


def die() -> None:
    """And the JVM with us: it is of our group."""
    os.killpg(0, signal.SIGKILL)


def die_alone() -> None:
    """Let the job fail while its process lives on."""
    raise Died


def change(
    owner: Any,
    name: str,
    what: Callable[[], None],
    time: int = 1,
    when: Callable[..., bool] = lambda *arguments: True,
    *,
    after: bool = False,
) -> None:
    """Call `what` before or after call number `time` of that function for which `when` is true."""
    function, count = getattr(owner, name), 0

    def changed(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        is_one = when(*arguments)
        count += is_one
        if is_one and count == time and not after:
            what()
        result = function(*arguments, **named)
        if is_one and count == time and after:
            what()
        return result

    setattr(owner, name, changed)


def is_of_several(lake: Lake, batch: Batch) -> bool:
    return batch.is_compacted


def has_compacted(lake: Lake) -> bool:
    return bool(list(lake.manifests.glob("*-*.json")))


STAGES: dict[str, Callable[[], None]] = {
    "batch begun": partial(change, archive.Archiver, "__call__", die, 2),
    "files written": partial(change, Lake, "finish", die, 2),
    "manifest written": partial(change, Lake, "finish", die, 2, after=True),
    "cursor moved": partial(change, archive.Archiver, "_move_cursors", die, 2, after=True),
    "rolled up": partial(change, rollup, "write", die_alone),  # except for the manifest
    "files compacted": partial(change, Lake, "finish", die_alone, 1, is_of_several),
    "compacted": partial(
        change, Lake, "remove_compacted", die_alone, 1, has_compacted
    ),  # and what was compacted is there, too
}


def arm(stage: str) -> None:
    """Arrange that the process dies, or the job fails, when it reaches the stage."""
    kind, _, number = stage.partition(" ")
    if kind == "node":
        change(archive.Archiver, "__call__", partial(os.kill, int(number), signal.SIGKILL), 2)
    else:
        STAGES[stage]()


def run_jobs(jobs: list[str]) -> None:
    """Run jobs one after the other, each split at its spaces (~ is a space of an argument). Exits with 1 if one fails."""
    codes = []
    for arguments in map(str.split, jobs):
        sys.argv[1:] = [argument.replace("~", " ") for argument in arguments]
        try:
            codes.append(main.main())
        except Died:
            print("died", file=sys.stderr)
        print("--", file=sys.stderr)
    sys.exit(max(codes, default=0))


if __name__ == "__main__":
    for stage in filter(None, sys.argv[1].split(",")):
        arm(stage)
    run_jobs(sys.argv[2:])
