"""`penstock verify DIR`: check a data directory or a replica, and print what it holds. Changes nothing.

Promoted logs, in DIR/promoted, are checked first, and the worst log decides.

Exit code 0: the log is intact; 1: it is corrupt; 2: it cannot be read, for example because an nsqd uses it; 3: it is not
corrupt, but bytes at its end may have been acknowledged, and the next start cuts them off.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from nsqd.cluster.replication.manifest import NAME as MANIFEST
from nsqd.cluster.replication.manifest import ManifestError, ReplicaDisk, read_manifest
from nsqd.core.reader import ReaderKind
from nsqd.storage.directory import DataDirectory, DirectoryError
from nsqd.storage.log.disk import Disk, RealDisk
from nsqd.storage.log.segments import LogError
from nsqd.storage.log.verify import Findings, TopicFindings, verify
from shared.counted import counted
from shared.terminal.commands import Parser, examples_of

PROGRAM = "penstock verify"
WHOLE, DAMAGED, NO_LOOK, TORN = 0, 1, 2, 3


def main() -> int:
    """Verify the directory, and print the findings. Return the exit code."""
    arguments = parser().parse_args(sys.argv[1:])
    path = Path(arguments.directory)
    try:
        directory = DataDirectory(str(path))
    except DirectoryError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return NO_LOOK
    try:
        disk = log_of(path)
        if disk is None:
            print(f"{PROGRAM}: {path} has no log: no nsqd of Penstock has used this directory", file=sys.stderr)
            return NO_LOOK
        progress = _progress if sys.stderr.isatty() else lambda done, total: None
        promoted = [verify(one, progress) for one in _promoted_logs(path)]
        findings = verify(disk, progress)
    except (LogError, ManifestError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return NO_LOOK if isinstance(error, OSError) else DAMAGED
    finally:
        directory.close()
    if arguments.json:
        print(json.dumps(_as_json(findings) | {"promoted": [_as_json(one) for one in promoted]}))
    else:
        print("\n".join([*(f"promoted {_text(one)}" for one in promoted), _text(findings)]))
    codes = {_code(one) for one in (*promoted, findings)}
    return next(code for code in (DAMAGED, TORN, WHOLE) if code in codes)


def _code(findings: Findings) -> int:
    return DAMAGED if findings.damaged else WHOLE if findings.whole else TORN


def _promoted_logs(path: Path) -> list[Disk]:
    """Return the promoted logs of a data directory. Raises OSError."""
    return [RealDisk(one, is_read_only=True) for one in sorted((path / "promoted").glob("*/log"))]


def log_of(path: Path) -> Disk | None:
    """Return the log of a data directory, replica or diverged copy. None if there is none. Raises ManifestError, OSError."""
    if (path / "log").is_dir():
        return RealDisk(path / "log", is_read_only=True)
    if (path / "log.id").is_file():
        return RealDisk(path, is_read_only=True)
    if not (path / MANIFEST).exists():
        return None
    disk = RealDisk(path, is_read_only=True)
    manifest = read_manifest(disk)
    return ReplicaDisk(disk, manifest) if manifest is not None else None


def _progress(done: int, total: int) -> None:
    print(f"\r{done}/{total} segments", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _as_json(findings: Findings) -> dict[str, Any]:
    return {
        "log": findings.log_id,
        "segments": findings.segments,
        "bytes": findings.size,
        "torn_bytes": findings.torn,
        "torn": [{"segment": name, "from": start, "to": end} for name, start, end in findings.cuts],
        "damage": [{"segment": name, "from": start, "to": end} for name, start, end in findings.damage],
        "headers": findings.headers,
        "unreadable": findings.unreadable,
        "copies": [{"name": name, "bytes": size} for name, size in findings.copies],
        "topics": [
            {
                "topic": topic.name,
                "published": topic.published,
                "live": topic.live,
                "retained": topic.retained,
                "not_distributed": topic.not_distributed,
                "channels": [
                    {"channel": name, **figures} for kind, name, figures in topic.readers if kind is ReaderKind.CHANNEL
                ],
                **_tube(topic),
            }
            for topic in findings.topics
        ],
    }


def _tube(topic: TopicFindings) -> dict[str, Any]:
    """Return the statistics of the topic's tube under "tube", and its pause under "queue_paused"; nothing if it has none."""
    tubes = [figures for kind, _, figures in topic.readers if kind is ReaderKind.WORK_QUEUE]
    paused = {"queue_paused": topic.queue_pause} if topic.queue_pause else {}
    return {"tube": tubes[0], **paused} if tubes else {}


def _text(findings: Findings) -> str:
    summary = _as_json(findings)
    lines = [
        f"log {summary['log'] or '(none yet)'}: {counted(summary['segments'], 'segment')}, {summary['bytes']} bytes"
    ]
    for topic in summary["topics"]:
        lines.append(
            f"topic {topic['topic']}: {topic['published']} published, {topic['live']} live,"
            f" {topic['published'] - topic['live']} finished, of which {topic['retained']} are retained"
        )
        lines += [
            f"  channel {channel['channel']}: {channel['ready']} ready, {channel['deferred']} deferred,"
            f" {channel['buried']} buried"
            for channel in topic["channels"]
        ]
        if "tube" in topic:
            paused = f"; the queue is paused: {topic['queue_paused']}" if "queue_paused" in topic else ""
            lines.append("  tube: " + ", ".join(f"{count} {state}" for state, count in topic["tube"].items()) + paused)
    lines += [f"{name} is not a complete log segment" for name in findings.unreadable]
    lines += [f"copy of earlier damage: {name}, {size} bytes" for name, size in findings.copies]
    lines += [f"DAMAGE in {name}: the header is corrupt; the next start rebuilds it" for name in findings.headers]
    lines += [f"DAMAGE in {name}: bytes {start} to {end} cannot be read" for name, start, end in findings.damage]
    lines += [
        f"TORN: {name}: the log ends at byte {start}; {end - start} incomplete bytes follow"
        for name, start, end in findings.cuts
    ]
    return "\n".join([*lines, _verdict(findings)])


def _verdict(findings: Findings) -> str:
    if findings.damaged:
        return "CORRUPT: restore a backup, or start nsqd: it serves all intact messages and keeps copies of the corrupt parts"
    if findings.torn:
        return f"TORN: {findings.torn} bytes may have been acknowledged; the next start copies them and cuts them off"
    return "whole"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = Parser(
        prog=PROGRAM,
        description=(__doc__ or "").partition(": ")[2],
        epilog=examples_of("verify data\nverify copy --json"),
    )
    found.add_argument(
        "directory",
        metavar="DIR",
        help="-data-path of nsqd, or a directory in its replicas, promoted or diverged; no nsqd may be using it",
    )
    found.add_argument("--json", action="store_true", help="print one JSON object")
    return found
