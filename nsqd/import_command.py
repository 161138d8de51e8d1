"""`penstock import DIR`: import the data directory of an NSQ nsqd, or of beanstalkd -b, as the first start of nsqd would.

Everything is published into a log in DIR and synced, then NSQ's files are moved to imported-from-nsq, in DIR. If it is
interrupted, the next import or the next start of nsqd starts again: NSQ's files are unchanged until all is imported.

Exit code 0: done, or nothing to import; 1: it failed, and nothing was changed; 3: done, but some bytes were not messages. It
fails if DIR has both a log and files of NSQ.
"""

import argparse
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from nsqd.opening import imports, make_broker, read_log
from nsqd.options import NsqdOptions
from nsqd.storage.binlog_import import ASIDE as ASIDE_JOBS
from nsqd.storage.binlog_import import BinlogImport
from nsqd.storage.directory import DataDirectory, DirectoryError, Metadata
from nsqd.storage.nsq_import import ASIDE, NsqImport
from shared.log import log
from shared.startup import start_log

PROGRAM = "penstock import"
DONE, FAILED, PARTLY = 0, 1, 3


def main() -> int:
    """Take over the directory. Return the exit code."""
    arguments = _parser().parse_args(sys.argv[1:])
    options = replace(
        NsqdOptions(),
        data_path=str(arguments.directory),
        node_id=arguments.node_id,
        durability="os",  # the log is synced at the end, before any file is moved
        log_prefix=f"[{PROGRAM}] ",
        log_level="error" if arguments.json else "info",
    )
    start_log(options)
    try:
        with contextlib.closing(DataDirectory(options.data_path)) as directory:
            taking, binlogs = _take_over(options, directory)
            if taking.leftovers or binlogs.leftovers:
                log.critical(
                    "start the daemon that wrote the files on a copy of DIR, and publish the missing messages from there"
                )
                return FAILED
    except DirectoryError as error:
        log.critical("%s", error)
        return FAILED
    print(json.dumps(_as_json(taking, binlogs)) if arguments.json else _text(taking, binlogs, arguments.directory))
    return PARTLY if _as_json(taking, binlogs)["unreadable"] else DONE


def _take_over(options: NsqdOptions, directory: DataDirectory) -> tuple[NsqImport, BinlogImport]:
    metadata = directory.load()
    taking, binlogs = imports(directory)
    if taking.queues or binlogs.wanted:
        _read(options, directory, metadata, taking, binlogs)
    return taking, binlogs


def _read(
    options: NsqdOptions, directory: DataDirectory, metadata: Metadata, taking: NsqImport, binlogs: BinlogImport
) -> None:
    """Publish everything into a log in the directory."""
    opened = read_log(options, directory, lambda: None)
    try:
        make_broker(options, metadata, opened, taking, binlogs)
    finally:
        opened.close()


def _as_json(taking: NsqImport, binlogs: BinlogImport) -> dict[str, Any]:
    unreadable = [one for queue, _ in taking.taken for one in queue.unreadable] + binlogs.binlog.unreadable
    return {
        "messages": sum(count for _, count in taking.taken),
        "queues": [
            {"topic": queue.topic, "channel": queue.channel, "messages": count} for queue, count in taking.taken
        ],
        "jobs": len(binlogs.binlog.jobs),
        "unreadable": [{"file": path.name, "from": start, "to": end} for path, start, end in unreadable],
    }


def _text(taking: NsqImport, binlogs: BinlogImport, directory: Path) -> str:
    if binlogs.wanted:
        jobs = len(binlogs.binlog.jobs)
        aside = directory / ASIDE_JOBS
        return f"Imported {jobs} jobs; beanstalkd's files were moved to {aside}. Start beanstalkd -b {directory}"
    if not taking.taken:
        return f"Nothing to import: {directory} has no files of NSQ or beanstalkd"
    messages = sum(count for _, count in taking.taken)
    return (
        f"Imported {messages} messages from {len(taking.taken)} queues; NSQ's files were moved to {directory / ASIDE}."
        f" Start nsqd -data-path {directory}"
    )


def node_number(text: str) -> int:
    """Return the number of a node that an argument names. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or len(text) > 4 or int(text) > 1023:
        raise argparse.ArgumentTypeError("expected 0 to 1023")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=(__doc__ or "").partition(": ")[2].partition("\n\n")[0])
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        help="-data-path of NSQ's nsqd, or -b of beanstalkd; no daemon may be using it",
    )
    parser.add_argument(
        "--node-id",
        type=node_number,
        default=-1,
        metavar="N",
        help="unique part of the new message ids, 0 to 1023, as nsqd's flag (default: derived from the hostname)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, and no progress")
    return parser
