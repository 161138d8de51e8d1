"""`penstock restore BACKUP DIR`: make a data directory from a backup of a node that is lost.

BACKUP is a directory that `penstock backup` has made, a plain copy of the data directory of a stopped nsqd, or a replica. It is
only read. DIR must not exist; it is written to DIR.partial, synced, and renamed in the end. Start nsqd with it as -data-path.

The new directory has all messages, channels, cursors and schedules of the backup, and a log with an id of its own, which names
the old one as its parent: offsets of the lost log up to the end of the backup stay valid. Logs that the node had promoted are
left out, and named: each is restored by itself, for another node. Message ids continue above every id that the lost node may
have issued. The members of a cluster that the directory lists are left out: start nsqd with -cluster-peer.

With --node, the new directory is that of another node. The messages keep their ids. So in a cluster the node is refused while
the node with the number under which they were issued has messages with those ids, too.

Exit code 0: done; 1: it failed, and DIR does not exist; 3: done, but some bytes could not be read and are left out.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nsqd.cluster.membership.cluster_json import read_facts, write_facts
from nsqd.cluster.membership.facts import ClusterFacts
from nsqd.cluster.replication.directory import PROMOTED, PromotedDirectory
from nsqd.cluster.replication.manifest import ManifestError
from nsqd.commands.import_command import node_number
from nsqd.commands.verify import log_of
from nsqd.core.message.ids import ClockError, first_of_new_log
from nsqd.core.retention.backup import METADATA
from nsqd.storage.directory import DataDirectory, DirectoryError, Metadata
from nsqd.storage.log.disk import Disk, RealDisk
from nsqd.storage.log.restore import Restored, restore
from nsqd.storage.log.segments import LogError
from nsqd.storage.log.verify import Findings, verify
from shared.counted import counted
from shared.files import replace_file, sync_directory
from shared.terminal.commands import Parser, examples_of

PROGRAM = "penstock restore"
DONE, FAILED, PARTLY = 0, 1, 3


class RestoreError(Exception):
    """The directory cannot be made. The text says why and what to do."""


def main() -> int:
    """Restore the backup. Return the exit code."""
    arguments = parser().parse_args(sys.argv[1:])
    target: Path = arguments.directory
    partial = target.with_name(f"{target.name}.partial")
    try:
        _check_paths(arguments.backup, target, partial)
        backup = DataDirectory(str(arguments.backup))
        try:
            findings, restored = _restore(backup, partial, arguments.node, arguments.force)
        finally:
            backup.close()
        partial.rename(target)
        sync_directory(target.parent)
        promoted = PromotedDirectory(arguments.backup).found()
    except (RestoreError, ClockError, DirectoryError, LogError, ManifestError, OSError) as error:
        left = f"; remove {partial}, which is incomplete" if partial.exists() else ""
        print(f"{PROGRAM}: {error}{left}", file=sys.stderr)
        return FAILED
    for log_id in promoted:
        print(
            f"{PROGRAM}: left out the log {log_id.hex()}, which the node had promoted. If no other node has a replica of it:"
            f" {PROGRAM} {arguments.backup / PROMOTED / log_id.hex()} ANOTHER-DIR",
            file=sys.stderr,
        )
    result = _as_json(target, findings, restored) | {"left_out": [log_id.hex() for log_id in promoted]}
    print(json.dumps(result) if arguments.json else _text(target, result))
    return DONE if findings.whole else PARTLY


def _check_paths(backup: Path, target: Path, partial: Path) -> None:
    """Raise RestoreError unless the directories can be as they are named."""
    for path in (target, partial):
        if path.exists():
            raise RestoreError(f"{path} exists: choose a new directory, or remove it")
    if target.resolve().is_relative_to(backup.resolve()):
        raise RestoreError(f"{target} would be in the backup, which is only read: choose another directory")
    if not target.parent.is_dir():
        raise RestoreError(f"{target.parent} is not a directory")


def _restore(backup: DataDirectory, partial: Path, node: int | None, force: bool) -> tuple[Findings, Restored]:
    """Write the directory `partial`. Raises RestoreError, ClockError, DirectoryError, LogError, ManifestError, OSError."""
    wall = time.time_ns()
    first_of_new_log(wall, 0)  # refuse a wrong clock before any work
    source = log_of(backup.path)
    if source is None:
        raise RestoreError(f"{backup.path} has no log: no nsqd of Penstock has used this directory")
    metadata, facts = backup.load(), read_facts(backup.path)
    findings = _verified(source, backup.path, force)
    partial.mkdir(mode=0o700)
    restored = _write_log(source, partial, node, wall, metadata, facts)
    _write_facts(partial, facts)
    if (backup.path / METADATA).exists():
        replace_file(partial / METADATA, (backup.path / METADATA).read_bytes())
    sync_directory(partial)
    return findings, restored


def _verified(source: Disk, path: Path, force: bool) -> Findings:
    """Return the problems of the backup, as a text. Raises RestoreError if there are any, unless that is accepted."""
    findings = verify(source, _progress("checked"))
    if not findings.segments:
        raise RestoreError(f"{path} has no log: nothing was ever published")
    if findings.damaged and not force:
        raise RestoreError(
            f"{path} is corrupt: see penstock verify {path}. Take another backup, or give --force to restore what can be read"
        )
    return findings


def _write_log(
    source: Disk, partial: Path, node: int | None, wall: int, metadata: Metadata, facts: ClusterFacts
) -> Restored:
    """Write the log of the directory `partial`. Raises LogError, OSError."""
    lease = max([metadata.ids, *(lease for number, lease in facts.leases if number == node)])
    target = RealDisk(partial / "log")
    return restore(source, target, node, first_of_new_log(wall, 0), lease, _progress("copied"))


def _write_facts(partial: Path, facts: ClusterFacts) -> None:
    """Keep of what was known of the cluster what guards against numbers that were used before. Raises OSError.

    The members are left out: some are perhaps gone, and a directory that is restored elsewhere must not dial them. So are the
    owners of logs: the new directory has none of the logs that its node had taken over.
    """
    if facts != ClusterFacts():
        write_facts(partial, ClusterFacts(facts.incarnation, (), facts.leases, votes=facts.votes))


def _progress(word: str) -> Callable[[int, int], None]:
    """Return a function that shows the number of copied segments on a terminal."""

    def show(done: int, total: int) -> None:
        print(f"\r{word} {done}/{total} segments", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show if sys.stderr.isatty() else lambda done, total: None


def _as_json(target: Path, findings: Findings, restored: Restored) -> dict[str, Any]:
    return {
        "directory": str(target),
        "node": restored.node,
        "log": restored.log_id.hex(),
        "parent": restored.parent.log_id.hex(),
        "position": restored.parent.position,
        "first_id": f"{restored.node:04x}{restored.first_id:012x}",
        "segments": restored.segments,
        "bytes": restored.size,
        "damage": [{"segment": name, "from": start, "to": end} for name, start, end in findings.damage],
        "headers": findings.headers,
        "torn_bytes": findings.torn,
    }


def _text(target: Path, result: dict[str, Any]) -> str:
    lines = [f"DAMAGE in {each['segment']}: left out bytes {each['from']} to {each['to']}" for each in result["damage"]]
    lines += [f"DAMAGE in {name}: the header was corrupt and is rebuilt" for name in result["headers"]]
    if result["torn_bytes"]:
        lines.append(f"TORN: left out {result['torn_bytes']} bytes at the end, which may have been acknowledged")
    lines.append(
        f"restored {counted(result['segments'], 'segment')}, {result['bytes']} bytes, as log {result['log']} with the parent"
        f" {result['parent']}; the next message id is {result['first_id']}"
    )
    lines.append(f"Start it, and never again what it replaces: nsqd -node-id {result['node']} -data-path {target}")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = Parser(
        prog=PROGRAM,
        description=(__doc__ or "").partition(": ")[2],
        epilog=examples_of("restore copy data\nrestore copy data --node 4"),
    )
    found.add_argument("backup", type=Path, metavar="BACKUP", help="the backup; no nsqd may be using it")
    found.add_argument("directory", type=Path, metavar="DIR", help="directory to create")
    found.add_argument(
        "--node",
        type=node_number,
        metavar="N",
        help="number of the node that will have the directory, 0 to 1023 (-node-id; default: that of the backup)",
    )
    found.add_argument("--force", action="store_true", help="restore a corrupt backup: what cannot be read is left out")
    found.add_argument("--json", action="store_true", help="print one JSON object about what was restored")
    return found
