"""`penstock audit`: checks the chain of an audit file, and prints it as a table."""

from __future__ import annotations

import argparse
import gzip
import sys
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path

from shared.audit.chain import FIRST, MOST_LINE, BrokenChainError, Record, decode, follow
from shared.counted import counted
from shared.log import escape
from shared.terminal.commands import Parser, examples_of

PROGRESS = 1_000_000  # records between two lines about how far the check is
_COLUMNS = ("TIME", "WHO", "PORT", "ADDRESS", "ACTION", "TARGET", "COUNT", "OUTCOME")
_WIDTHS = (24, 20, 10, 15, 23, 30, 5, 0)  # a longer text moves the rest of its line
EXPLANATION = """
nsqd writes such a file with -audit-file. Each line has the SHA-256 of the line before it, so a line that was changed, removed,
added or moved shows. Missing lines at the end do not show: compare the number and the digest that `verify` prints.
"""


def main() -> int:
    """Run the command and return the exit code: 0, 1 if the chain is broken or a file cannot be read, 2 for wrong arguments."""
    arguments = parser().parse_args()
    try:
        found: int = arguments.run(arguments)
    except BrokenPipeError:  # of `| head`
        sys.stderr.close()
        return 0
    except (OSError, EOFError, zlib.error) as error:
        path = getattr(error, "filename", None)
        reason = getattr(error, "strerror", None) or error
        print(f"penstock audit: {f'{path}: ' if path else ''}{reason}", file=sys.stderr)
        return 1
    return found


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = Parser(prog="penstock audit", description="Check and show audit files." + EXPLANATION)
    commands = found.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("verify", _verify, "check that the lines of one or several files form one chain"),
        ("show", _show, "print the records as a table, without a check"),
    ):
        example = examples_of(f"audit {name} audit.log" + (" --since 2026-11-26T03:04" if name == "show" else ""))
        command = commands.add_parser(name, help=text, description=text, epilog=example)
        command.add_argument("file", nargs="+", type=Path, help="the oldest file first; .gz is unpacked")
        command.set_defaults(run=run)
    command.add_argument("--who", default="*", help="only of this identity or user; * and ? stand for any characters")
    command.add_argument("--action", default="*", help="only this action, such as 'topic/*' or CONFIG*")
    command.add_argument("--since", default="", help="only from this time on, in UTC, such as 2026-11-26T03:04")
    return found


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without their ends; of an endless one its beginning. Raises OSError, EOFError."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        while line := file.readline(MOST_LINE + 1):
            if not line.endswith(b"\n") and len(line) <= MOST_LINE:
                line += b" "  # half a line is no record, and a record without its end may not be whole
                yield line
                return
            yield line[:-1]


def _verify(arguments: argparse.Namespace) -> int:
    head, records, first = None, 0, 0
    for path in arguments.file:
        for number, line in zip(count(1), _lines(path), strict=False):
            try:
                if line.endswith(b" "):
                    raise BrokenChainError("it is half a line")
                following = follow(head, line)
            except BrokenChainError as error:
                print(f"{path}, line {number}: {error}")
                return 1
            if head is None:
                first = following.seq
                if decode(line)["prev"] != FIRST:
                    print(f"{path} begins with record {first}: earlier ones were not given")
            head, records = following, records + 1
            if records % PROGRESS == 0:
                print(f"{counted(records, 'record')} so far", file=sys.stderr)
    if head is None:
        print("0 records")
    else:
        print(f"{counted(records, 'record')}, chain unbroken")
        print(f"records {first} to {head.seq}; the last line has the digest {head.digest}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    _print_row(_COLUMNS)
    for path in arguments.file:
        for number, line in zip(count(1), _lines(path), strict=False):
            try:
                record = decode(line)
            except BrokenChainError as error:
                print(f"{path}, line {number}: {error}", file=sys.stderr)
                continue
            if _matches(record, arguments):
                _print_row(_row(record))
    return 0


def _print_row(row: tuple[str, ...]) -> None:
    print("  ".join(text.ljust(width) for text, width in zip(row, _WIDTHS, strict=True)))


def _matches(record: Record, arguments: argparse.Namespace) -> bool:
    names = record["who"], str(record.get("user", ""))
    return (
        any(fnmatchcase(name, arguments.who) for name in names)
        and fnmatchcase(record["action"], arguments.action)
        and record["time"] >= arguments.since
    )


def _row(record: Record) -> tuple[str, ...]:
    who = record["who"] or "-"
    if record.get("user"):
        who = f"{record['user']} by {who}"
    number = str(record.get("count", "-"))
    named = record["time"], who, record["port"], record["address"] or "-", record["action"], record["target"] or "-"
    return tuple(escape(text) for text in (*named, number, record["outcome"]))
