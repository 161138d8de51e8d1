"""`python -m bench`: reads the options, measures the rows in turn, prints the tables. bench/__init__.py explains them."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeVar

from bench import gonsq
from bench.admin_open import Open
from bench.admin_pages import Listing, OpenPages
from bench.clients import clients
from bench.copies import copies
from bench.failover import failovers
from bench.figures import Figures, figures, medians
from bench.jobs import jobs
from bench.load import raise_file_limit
from bench.log_line import Line
from bench.log_sizes import HEADER as LOG_HEADER
from bench.log_sizes import LEFT as LOG_LEFT
from bench.log_sizes import LogSize, log_sizes
from bench.nodes import nodes
from bench.pipeline import pipeline
from bench.queues import queues
from bench.rows import Effort, Row, rows
from bench.server import BenchError, Program, penstock
from bench.sizes import HEADER as SIZES_HEADER
from bench.sizes import Size, SizeLine, sizes
from bench.table import HEADER, cells, number, share, table
from bench.turns import turns

_NOTES = """
Medians of {runs} run(s) of {seconds:g} s, each with a server process of its own; p50, p99: request to reply (MPUB: all 200).
"server" and "load", right: shares of a core; where the load is the busier it is "client-bound", and CPU ns/msg decides.
In memory at the end: all that was published in that time, 200 B each (nobody reads it); reader: what it did not get to.
tls-, snappy-, deflate-: the same through that upgrade, with bodies that differ and compress to about half."""

_Named = TypeVar("_Named", Row, Size, LogSize)
_Result = TypeVar("_Result")


class Bench:
    """Measures rows and sizes, and goes on after one that fails."""

    def __init__(self, programs: Sequence[Program], effort: Effort) -> None:
        self._programs = programs
        self._effort = effort
        self.failures: list[str] = []  # one text for each run without a result
        self.runs: dict[tuple[str, str], list[Figures]] = {}  # (row, server) -> the figures of each run

    def measure_rows(self, chosen: Sequence[Row], runs: int) -> None:
        """Measure every row with every server, `runs` times."""
        for run in range(runs):
            for row in chosen:
                for program in self._programs:
                    what = f"run {run + 1}/{runs} {row.name} {program.name}"
                    sample = self._try(what, partial(row.measure, program, self._effort))
                    if sample is not None:
                        got = figures(sample)
                        self.runs.setdefault((row.name, program.name), []).append(got)
                        _say(f"{number(got.rate)}/s, CPU {got.cpu:.0f} ns, server {share(got.server_share)}")

    def measure_sizes(self, chosen: Sequence[Size]) -> list[SizeLine]:
        """Measure every size with every server, once."""
        lines: list[SizeLine] = []
        for size in chosen:
            for program in self._programs:
                found = self._try(f"{size.name} {program.name}", partial(size.measure, program, self._effort))
                lines += found or []
                _say("done")
        return lines

    def measure_log(self, chosen: Sequence[LogSize]) -> list[Line]:
        """Measure the log's rows with our nsqd, and with the original where a row compares them."""
        ours = next(program for program in self._programs if not program.original)
        go = next((program for program in self._programs if program.original), None)
        lines: list[Line] = []
        for size in chosen:
            lines += self._try(size.name, partial(size.measure, ours, go, self._effort)) or []
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
    """Select by a comma-separated list of names, or of prefixes that end before a `-`.

    An empty list selects all.
    """
    words = [word for word in only.split(",") if word]
    return [each for each in named if not words or any(_asked(each.name, word) for word in words)]


def _asked(name: str, word: str) -> bool:
    return name == word or name.startswith(f"{word}-")


def admin() -> list[LogSize]:
    """Return the rows of nsqadmin, in order."""
    return [Listing("admin-listing"), OpenPages("admin-watched"), Open("admin-open")]


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; --help lists the rows."""
    names = ", ".join([*(r.name for r in rows()), *(s.name for s in sizes()), *(s.name for s in log_sizes())])
    names += ", " + ", ".join(
        row.name
        for row in (
            *jobs(""),
            *queues(""),
            *clients(),
            *nodes(None),
            *copies(),
            *failovers(),
            *turns(),
            *pipeline(),
            *admin(),
        )
    )
    parser = argparse.ArgumentParser("bench", description="The figures of the daemons.", epilog=f"Rows: {names}.")
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
    parser.add_argument(
        "--load", metavar="DIRECTORY", help="holds NSQ's bench_writer and bench_reader, or cload: the load"
    )
    parser.add_argument("--json", metavar="FILE", help="write every run's figures there")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the bench; return the exit code: 1 if a row could not be measured, 2 if no row was selected."""
    given = options(arguments)
    effort = Effort(given.seconds, given.window, 1.0)
    runs: int = given.runs
    if given.quick:
        effort, runs = Effort(min(given.seconds, 0.2), min(given.window, 3.0), 0.01), 1
    raise_file_limit()
    programs = [penstock(), *([gonsq.nsqd(given.nsqd)] if given.nsqd else [])]
    available = gonsq.with_tools(rows(), given.load) if given.load else rows()
    chosen_rows, chosen_sizes = choose(available, given.only), choose(sizes(), given.only)
    chosen_log: list[LogSize] = [*choose(log_sizes(), given.only), *choose(jobs(given.beanstalkd), given.only),
                                 *choose(queues(given.disque), given.only),
                                 *choose(clients(), given.only), *choose(nodes(given.load), given.only),
                                 *choose(copies(), given.only), *choose(failovers(), given.only), *choose(turns(), given.only),
                                 *choose(pipeline(), given.only),
                                 *choose(admin(), given.only)]  # fmt: skip
    if not chosen_rows and not chosen_sizes and not chosen_log:
        _say(f"bench: --only {given.only}: no such row; see --help")
        return 2
    bench = Bench(programs, effort)
    bench.measure_rows(chosen_rows, runs)
    size_lines = bench.measure_sizes(chosen_sizes)
    log_lines = bench.measure_log(chosen_log)
    _print_tables(bench.lines(chosen_rows), size_lines, log_lines, bench, effort, runs)
    if given.json:
        record = {"rows": {f"{row} {name}": [asdict(run) for run in of] for (row, name), of in bench.runs.items()},
                  "sizes": [asdict(line) for line in size_lines],
                  "log": [asdict(line) for line in log_lines], "failures": bench.failures}  # fmt: skip
        Path(given.json).write_text(json.dumps(record, indent=1))
    return 1 if bench.failures else 0


def _print_tables(
    lines: list[list[str]], size_lines: list[SizeLine], log_lines: list[Line], bench: Bench, effort: Effort, runs: int
) -> None:
    if lines:
        print(table(HEADER, lines))
        print(_NOTES.format(runs=runs, seconds=effort.seconds))
    if size_lines:
        print()
        print(table(SIZES_HEADER, [line.cells() for line in size_lines]))
    if log_lines:
        print()
        print(table(LOG_HEADER, [line.cells() for line in log_lines], LOG_LEFT))
    for failure in bench.failures:
        print(f"FAILED {failure}")


def _terminated(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)  # so that the servers and their files are removed with us
    sys.exit(main(sys.argv[1:]))
