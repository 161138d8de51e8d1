"""Runs `penstock archive` or a job of the lake, which ends as by SIGKILL at a point that chance would seldom find.

python -m bench.crash.dying commit 3 archive ...       after the third commit to the table, whose answer it does not see
python -m bench.crash.dying cursor 3 archive ...       after the third batch, before it moves the cursor on nsqd
python -m bench.crash.dying compaction 200 compact ... 200 ms after it begins to compact
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from deltalake import DeltaTable
from deltalake.table import TableOptimizer

from penstock.spark.follower import Follower
from pipeline.main import main

_POINTS: dict[str, tuple[type, str]] = {
    "commit": (DeltaTable, "create_write_transaction"),
    "cursor": (Follower, "move_cursors"),
    "compaction": (TableOptimizer, "compact"),
}


def arrange(point: str, count: int) -> None:
    """Let this process die at a point."""
    owner, method = _POINTS[point]
    call: Callable[..., object] = getattr(owner, method)
    calls = 0

    def watched(*arguments: Any, **named: Any) -> object:
        nonlocal calls
        calls += 1
        if point == "compaction":  # the default action of SIGALRM does not wait for Python
            signal.setitimer(signal.ITIMER_REAL, count / 1000)
        elif point == "cursor" and calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*arguments, **named)
        if point == "commit" and calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, method, watched)


if __name__ == "__main__":
    arrange(sys.argv[1], int(sys.argv[2]))
    sys.argv[1:] = sys.argv[3:]
    sys.exit(main())
