"""`python -m bench`: reads the options, measures the rows in turn, prints the tables. bench/__init__.py explains them."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeVar

from bench.admin_open import Open
from bench.admin_pages import Listing, OpenPages
from bench.clients import clients
from bench.copies import copies
from bench.failover import failovers
from bench.job_turns import job_turns
from bench.jobs import jobs
from bench.lake import lake
from bench.load import raise_file_limit
from bench.log_sizes import log_sizes
from bench.nodes import nodes
from bench.pipeline import pipeline
from bench.queues import queues
from bench.rows import Effort, LineRow, Row, rows
from bench.server import BenchError, Program, go_nsqd, penstock
from bench.sizes import sizes
from bench.stats import RowStats, medians, stats_of
from bench.table import HEADER, LINE_HEADER, Line, cells, number, share, table
from bench.turns import turns

_NOTES = """
Medians of {runs} run(s) of {seconds:g} s, each with a server process of its own; p50, p99: request to reply (MPUB: all 200).
"server" and "load", right: shares of a core; where the load is the busier it is "client-bound", and CPU ns/msg decides.
In memory at the end: all messages published in that time, 200 B each (without consumers); reader: those that are left.
tls-, snappy-, deflate-: the same through that upgrade, with bodies that differ and compress to about half."""

_Named = TypeVar("_Named", Row, LineRow)
_Result = TypeVar("_Result")


class Bench:
    """Measures rows and sizes, and continues after one that fails."""

    def __init__(self, programs: Sequence[Program], effort: Effort) -> None:
        self._programs = programs
        self._effort = effort
        self.failures: list[str] = []  # one text for each run without a result
        self.runs: dict[tuple[str, str], list[RowStats]] = {}  # (row, server) -> the results of each run

    def measure_rows(self, chosen: Sequence[Row], runs: int) -> None:
        """Measure every row with every server, `runs` times."""
        for run in range(runs):
            for row in chosen:
                for program in self._programs:
                    what = f"run {run + 1}/{runs} {row.name} {program.name}"
                    sample = self._try(what, partial(row.measure, program, self._effort))
                    if sample is not None:
                        got = stats_of(sample)
                        self.runs.setdefault((row.name, program.name), []).append(got)
                        _say(f"{number(got.rate)}/s, CPU {got.cpu:.0f} ns, server {share(got.server_share)}")

    def measure_lines(self, chosen: Sequence[LineRow]) -> list[Line]:
        """Measure rows with Penstock's nsqd, the first program, and with the Go nsqd where a row compares them."""
        penstock, *originals = self._programs
        go = originals[0] if originals else None
        lines: list[Line] = []
        for row in chosen:
            lines += self._try(row.name, partial(row.measure, penstock, go, self._effort)) or []
            _say("done")
        return lines

    def lines(self, chosen: Sequence[Row]) -> list[list[str]]:
        """Return the lines of the main table."""
        original = next((program.name for program in self._programs if program.original), None)
        lines = []
        for row in chosen:
            known = {
                p.name: medians(self.runs[row.name, p.name]) for p in self._programs if (row.name, p.name) in self.runs
            }
            for name, got in known.items():
                other = known.get(original) if original and name != original else None
                lines.append(cells(row.name, name, got, other, row.aim if name != original else ""))
        return lines

    def _try(self, what: str, measure: Callable[[], _Result]) -> _Result | None:
        print(f"{what} ... ", end="", file=sys.stderr, flush=True)
        try:
            return measure()
        except BenchError as error:
            self.failures.append(f"{what}: {error}")
            _say(f"FAILED: {error}")
            return None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def choose(named: Sequence[_Named], only: str) -> list[_Named]:
    """Select by a comma-separated list of names, or of prefixes that end before a `-`. An empty list selects all."""
    prefixes = [f"{name}-" for name in only.split(",") if name]
    return [row for row in named if not prefixes or f"{row.name}-".startswith(tuple(prefixes))]


def line_rows(beanstalkd: str = "", disque: str = "") -> list[LineRow]:
    """Return all rows with lines of text, in order. `beanstalkd`, `disque`: paths of the originals, or ""."""
    admin: list[LineRow] = [Listing("admin-listing"), OpenPages("admin-watched"), Open("admin-open")]
    servers: list[LineRow] = [
        *jobs(beanstalkd),
        *queues(disque),
        *job_turns(),
        *clients(),
        *nodes(),
        *copies(),
        *failovers(),
    ]
    return [*sizes(), *log_sizes(), *servers, *turns(), *pipeline(), *lake(), *admin]


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; --help lists the rows."""
    names = ", ".join([*(row.name for row in rows()), *(row.name for row in line_rows())])
    parser = argparse.ArgumentParser("bench", description="Benchmarks of the daemons.", epilog=f"Rows: {names}.")
    parser.add_argument(
        "--only", default="", metavar="NAMES", help="rows, separated by commas; `fanout` means all fanout-*"
    )
    parser.add_argument("--runs", type=int, default=5, help="of each row (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of a run (2)")
    parser.add_argument(
        "--window", type=float, default=65.0, help="measured time of a size, in s (65: two heartbeats, a whole minute)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one run of 0.2 s, sizes of a hundredth: does it work at all?"
    )
    parser.add_argument("--nsqd", metavar="PATH", help="a Go nsqd to measure in turn with ours")
    parser.add_argument("--beanstalkd", metavar="PATH", default="", help="a beanstalkd to measure in turn with ours")
    parser.add_argument("--disque", metavar="PATH", default="", help="a disque-server to measure in turn with ours")
    parser.add_argument("--json", metavar="FILE", help="write the results of every run there")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the bench; return the exit code: 1 if a row could not be measured, 2 if no row was selected."""
    given = options(arguments)
    effort = Effort(given.seconds, given.window, 1.0)
    runs: int = given.runs
    if given.quick:
        effort, runs = Effort(min(given.seconds, 0.2), min(given.window, 3.0), 0.01), 1
    raise_file_limit()
    programs = [penstock(), *([go_nsqd(given.nsqd)] if given.nsqd else [])]
    chosen, chosen_lines = choose(rows(), given.only), choose(line_rows(given.beanstalkd, given.disque), given.only)
    if not chosen and not chosen_lines:
        _say(f"bench: --only {given.only}: no such row; see --help")
        return 2
    bench = Bench(programs, effort)
    bench.measure_rows(chosen, runs)
    lines = bench.measure_lines(chosen_lines)
    if chosen:
        print(table(HEADER, bench.lines(chosen)) + "\n" + _NOTES.format(runs=runs, seconds=effort.seconds))
    if lines:
        print("\n" + table(LINE_HEADER, list(map(astuple, lines))))
    print("".join(f"FAILED {failure}\n" for failure in bench.failures), end="")
    if given.json:
        results = {f"{row} {name}": [asdict(run) for run in of] for (row, name), of in bench.runs.items()}
        record = {"rows": results, "lines": list(map(asdict, lines)), "failures": bench.failures}
        Path(given.json).write_text(json.dumps(record, indent=1))
    return 1 if bench.failures else 0


def _terminated(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)  # so that the servers and their files are removed with us
    sys.exit(main(sys.argv[1:]))
