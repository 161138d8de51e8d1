"""The directories of a log that another node has promoted, and of the log that succeeds it.

The new log is written to `log.partial`, next to the old one. When it is durable, two renames put it in place: the old log
becomes `diverged/LOG-ID`, and `log.partial` becomes `log`. A start that finds the first one done does the second. Without the
first one, `log.partial` is removed, and written again if another node still leads the log.

The old log is removed when the log is closed (closing.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nsqd.cluster.membership.cluster_json import read_facts, write_facts
from nsqd.cluster.membership.deletions import with_deletions
from nsqd.cluster.promotion.diverged.note import OWN_NOTE, CopyExtent, Note, write_note
from nsqd.cluster.replication.directory import DIVERGED
from nsqd.cluster.replication.rejoin import Failover
from nsqd.storage.log.disk import RealDisk
from nsqd.storage.log.opening import Simulated
from nsqd.storage.log.succession import Succession, succeed
from shared.files import sync_directory
from shared.log import log

IN_DOUBT = ". Where the other node's copy ends, the log was rewritten: some messages may be delivered by both nodes"
LOG, PARTIAL = "log", "log.partial"


def resume_succession(path: Path) -> None:
    """Finish the succession that a crash has interrupted in the data directory `path`, or undo it. Raises OSError."""
    partial = path / PARTIAL
    if not partial.exists():
        return
    if (path / LOG).exists():
        shutil.rmtree(partial)
    else:
        partial.rename(path / LOG)
        log.info("CLUSTER: the log that succeeds the one in %s is in place", path / DIVERGED)
    sync_directory(path)


def succeed_failover(
    path: Path, failover: Failover, least_id: int, known_lease: int, simulated: Simulated | None = None
) -> Succession:
    """Replace the log of the data directory `path` by one that succeeds it, and keep the old one as a diverged copy.

    Deletions that the other node must get are kept in cluster.json before that. `least_id`, `known_lease`: as in
    `succeed`. No other part of the program may use the log. Raises LogError, OSError, DirectoryError.
    """
    old = RealDisk(path / LOG)
    with suppress(FileNotFoundError):
        shutil.rmtree(path / PARTIAL)
    lease = max(known_lease, failover.lease)
    made = succeed(old, RealDisk(path / PARTIAL), failover.common, least_id, lease, simulated)
    if old.reserved():
        old.release()  # a copy needs no space in reserve
    _keep_deletions(path, made)
    held = CopyExtent(made.parent.position, made.epochs)
    write_note(path / LOG / OWN_NOTE, Note(made.log_id, made.common, held))  # for diverged/salvage.py
    for _ in replace_log(path, made.parent.log_id):
        pass
    _report(failover, made)
    return made


def _keep_deletions(path: Path, made: Succession) -> None:
    """Keep the deletions for the leader of the old log durably. Raises OSError, DirectoryError."""
    facts = read_facts(path)
    deletions = with_deletions(facts.deletions, made.parent.log_id, made.deletions)
    if deletions != facts.deletions:
        write_facts(path, replace(facts, deletions=deletions))


def replace_log(path: Path, log_id: bytes) -> Iterator[None]:
    """Make the log with the id `log_id` a diverged copy, and `log.partial` the log of `path`. Yields after each step.

    Raises OSError.
    """
    sync_directory(path / PARTIAL)
    sync_directory(path)
    yield
    keep_diverged(path, path / LOG, log_id)
    yield
    (path / PARTIAL).rename(path / LOG)
    sync_directory(path)
    yield


def keep_diverged(path: Path, log: Path, log_id: bytes) -> Path:
    """Make a log a diverged copy, because another node leads it now. Returns where it is. Raises OSError.

    `path`: the data directory; `log`: the directory of that log, in the same file system.
    """
    diverged = path / DIVERGED
    diverged.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path)
    copy = free_path(diverged / log_id.hex())
    log.rename(copy)
    sync_directory(diverged)
    sync_directory(log.parent)
    return copy


def free_path(path: Path) -> Path:
    """Return the path, or, if it exists, one with a number appended."""
    if not os.path.lexists(path):
        return path
    return next(
        one for number in range(1, 1 << 20) if not os.path.lexists(one := path.with_name(f"{path.name}.{number}"))
    )


def _report(failover: Failover, made: Succession) -> None:
    if not failover.address:
        log.warning(
            "CLUSTER: node %d leads this node's log %s, and no node has reported how much of it that node has. This node"
            " continues with the log %s, and with all %d unfinished messages of the old one: those that the other node has,"
            " too, are delivered twice. The old log is kept in %s",
            failover.epoch.node, made.parent.log_id.hex(), made.log_id.hex(), made.messages,
            f"{DIVERGED}/{made.parent.log_id.hex()}",
        )  # fmt: skip
        return
    left_out = ", ".join(f"{name} of {count} messages" for name, count in sorted(made.dropped.items())) or "nothing"
    log.warning(
        "CLUSTER: node %d has promoted this node's log %s, and has it up to position %d. This node continues with the log %s,"
        " and with the %d unfinished messages after that position. Left out, because the other node delivers these messages:"
        " %s. The old log is kept in %s%s",
        failover.epoch.node, made.parent.log_id.hex(), made.common, made.log_id.hex(), made.messages, left_out,
        f"{DIVERGED}/{made.parent.log_id.hex()}", "" if made.is_exact else IN_DOUBT,
    )  # fmt: skip
