"""`penstock import DIR`: import the data directory of NSQ's nsqd, beanstalkd -b or Disque, as the first start of nsqd would.

Everything is published into a log in DIR and synced, then the other daemon's files are moved to imported-from-nsq (-beanstalkd,
-disque) in DIR. If it is interrupted, the next import or the next start of nsqd starts again: the files are unchanged until all
is imported.

Exit code 0: done, or nothing to import; 1: it failed, and nothing was changed; 3: done, but some bytes were not messages, or
jobs were left out because Disque may have delivered them. It fails if DIR has both a log and such files.
"""

import argparse
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from nsqd.options import NsqdOptions
from nsqd.start.opening import ForeignData, imports, make_broker, read_log
from nsqd.storage.binlog_import import ASIDE as ASIDE_JOBS
from nsqd.storage.directory import DataDirectory, DirectoryError, Metadata
from nsqd.storage.disque_import import ASIDE as ASIDE_AOF
from nsqd.storage.disque_import import DisqueImport
from nsqd.storage.nsq_import import ASIDE
from shared.counted import counted
from shared.log import log
from shared.startup import start_log
from shared.terminal.commands import Parser, examples_of

PROGRAM = "penstock import"
DONE, FAILED, PARTLY = 0, 1, 3


def main() -> int:
    """Take over the directory. Return the exit code."""
    arguments = parser().parse_args(sys.argv[1:])
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
            found = _failover(options, directory)
            if found.leftovers:
                log.critical(
                    "start the daemon that wrote the files on a copy of DIR, and publish the missing messages from there"
                )
                return FAILED
    except DirectoryError as error:
        log.critical("%s", error)
        return FAILED
    report = _as_json(found)
    print(json.dumps(report) if arguments.json else _text(found, arguments.directory))
    return PARTLY if report["unreadable"] or found.disque.perhaps_delivered else DONE


def _failover(options: NsqdOptions, directory: DataDirectory) -> ForeignData:
    metadata = directory.load()
    found = imports(directory)
    if found.wanted:
        _read(options, directory, metadata, found)
    return found


def _read(options: NsqdOptions, directory: DataDirectory, metadata: Metadata, found: ForeignData) -> None:
    """Publish everything into a log in the directory."""
    opened = read_log(options, directory, lambda: None)
    try:
        make_broker(options, metadata, opened, found)
    finally:
        opened.close()


def _as_json(found: ForeignData) -> dict[str, Any]:
    taken, binlog, disque = found.nsq.taken, found.beanstalkd.binlog, found.disque
    unreadable = [one for queue, _ in taken for one in queue.unreadable] + binlog.unreadable + disque.unreadable
    report = {
        "messages": sum(count for _, count in taken),
        "queues": [{"topic": queue.topic, "channel": queue.channel, "messages": count} for queue, count in taken],
        "jobs": len(binlog.jobs) + disque.imported,
        "unreadable": [{"file": path.name, "from": start, "to": end} for path, start, end in unreadable],
    }
    if disque.aof is not None:
        report["disque"] = {
            "perhaps_delivered": disque.perhaps_delivered,
            "expired": disque.aof.expired,
            "renamed": {name.decode("latin-1"): here for name, here in disque.renamed.items()},
        }
    return report


def _text(found: ForeignData, directory: Path) -> str:
    if found.disque.wanted:
        return _text_of_disque(found.disque, directory)
    if found.beanstalkd.wanted:
        jobs = len(found.beanstalkd.binlog.jobs)
        aside = directory / ASIDE_JOBS
        return f"Imported {counted(jobs, 'job')}; beanstalkd's files were moved to {aside}. Start beanstalkd -b {directory}"
    taken = found.nsq.taken
    if not taken:
        return f"Nothing to import: {directory} has no files of NSQ, beanstalkd or Disque"
    messages = sum(count for _, count in taken)
    return (
        f"Imported {counted(messages, 'message')} from {counted(len(taken), 'queue')};"
        f" NSQ's files were moved to {directory / ASIDE}. Start nsqd -data-path {directory}"
    )


def _text_of_disque(disque: DisqueImport, directory: Path) -> str:
    assert disque.aof is not None
    return (
        f"Imported {counted(disque.imported, 'job')}, with new ids; {disque.aof.expired} had expired."
        f" Not imported: {disque.perhaps_delivered} jobs with retry 0, which may have been delivered."
        f" Disque's file was moved to {directory / ASIDE_AOF}. Start disque-server --dir {directory} --appendonly yes"
    )


def node_number(text: str) -> int:
    """Return the number of a node that an argument names. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or len(text) > 4 or int(text) > 1023:
        raise argparse.ArgumentTypeError("expected 0 to 1023")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = Parser(
        prog=PROGRAM,
        description=(__doc__ or "").partition(": ")[2].partition("\n\n")[0],
        epilog=examples_of("import data"),
    )
    found.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        help="-data-path of NSQ's nsqd, -b of beanstalkd, or dir of Disque; no daemon may be using it",
    )
    found.add_argument(
        "--node-id",
        type=node_number,
        default=-1,
        metavar="N",
        help="unique part of the new message ids, 0 to 1023, as nsqd's flag (default: derived from the hostname)",
    )
    found.add_argument("--json", action="store_true", help="print one JSON object, and no progress")
    return found
