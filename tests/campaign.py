"""`make campaign`: every kind of random test for hours, in runs that can be interrupted. A page shows the results.

A stage is a command that runs several times, each time with other seeds. build/campaign keeps the result and the output of each
run: the same command resumes where it was interrupted, as long as the commit is the same.
"""

import argparse
import html
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEEDS_OF_A_RUN = 100_000  # more than any test tries in a run
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


@dataclass(frozen=True)
class Stage:
    """A command that is run several times."""

    name: str
    what: str  # it tries
    command: tuple[str, ...]  # arguments of Python
    effort: float = 1  # of each run: see tests/effort.py
    runs: int = 1


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    stage: str
    run: int
    code: int
    seconds: float
    counts: dict[str, int]  # of tests: "passed", "failed", "skipped"; empty if the program counts none


def pytest(*arguments: str) -> tuple[str, ...]:
    """Return the arguments of Python that run these tests for as long as they take."""
    return ("-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-o", "timeout=0", *arguments)


STAGES = (
    Stage("properties", "every property of every part", pytest("--unit"), effort=5, runs=5),
    Stage(
        "parsers", "a million inputs to each parser",
        pytest("tests/nsqd/protocols", "tests/nsqd/cluster/wire"), effort=10, runs=5,
    ),
    Stage("crashes", "kills, power cuts and damage under the log", pytest("-m", "long", "tests/nsqd/storage"), 10, runs=10),
    Stage("lives", "whole nodes", pytest("tests/simulation/test_simulation.py"), effort=30, runs=10),
    Stage(
        "clusters", "copies, failover and sharing over many nodes",
        pytest(
            "tests/nsqd/cluster", "tests/simulation/test_cluster.py",
            "tests/simulation/test_cluster_histories.py",
        ), effort=8, runs=5,
    ),
    Stage(
        "planted", "whether the simulators find bugs that are put in",
        pytest("-m", "campaign", "tests/simulation", "tests/nsqd"), effort=2,
    ),
    Stage("pages", "every page of nsqadmin, at every width", pytest("-m", "campaign", "tests/admin"), effort=2),
    Stage(
        "programs", "what programs, tools and foreign clients do besides",
        (*pytest("-m", "campaign", "tests/processes", "tests/clients"), "--dist", "loadfile"), effort=2,
    ),
    Stage(
        "faults", "real nodes whose network, disks and power fail",
        (*pytest(
            "tests/processes/test_cluster_disks.py", "tests/processes/test_failover_rounds.py",
            "tests/processes/test_disque_cluster.py",
        ), "--dist", "loadfile"), effort=10,
    ),
    Stage("lake", "Spark's drivers and executors that die", pytest("tests/pipeline", "tests/bench"), effort=2),
    Stage("power", "kill -9 and power cuts of one node, in all modes", ("-m", "bench.crash")),
    Stage("chance", "whether any test fails by chance", (*pytest("tests"), "-n", "4", "--dist", "loadfile"), runs=3),
)  # fmt: skip


class Campaign:
    """The runs, and what is known of them."""

    def __init__(self, directory: Path, stages: Sequence[Stage], commit: str) -> None:
        """Resume the campaign in `directory` if it is of this commit; else begin another one there."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._stages, self._commit = directory, stages, commit
        self._state = directory / "results.json"
        self.results: list[Result] = []
        if self._state.exists():
            known = json.loads(self._state.read_text())
            if known["commit"] == commit:
                self.results = [Result(**one) for one in known["results"]]

    def missing(self) -> Iterator[tuple[Stage, int]]:
        """Yield the runs that have not ended: the first of each stage, then the second, and so on."""
        done = {(result.stage, result.run) for result in self.results}
        for number in range(max(stage.runs for stage in self._stages)):
            for stage in self._stages:
                if number < stage.runs and (stage.name, number) not in done:
                    yield stage, number

    def run(self, stage: Stage, number: int) -> Result:
        """Run a stage once, and keep what came of it."""
        effort = {"PENSTOCK_EFFORT": str(stage.effort), "PENSTOCK_FIRST": str(number * SEEDS_OF_A_RUN)}
        began = time.monotonic()
        with self.output(stage.name, number).open("wb") as output:
            code = subprocess.call(
                [sys.executable, *stage.command], cwd=ROOT, env={**os.environ, **effort},
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        said = self.output(stage.name, number).read_text(errors="replace").rstrip().rpartition("\n")[2]
        counts = {kind.rstrip("s"): int(count) for count, kind in _COUNT.findall(said)}
        result = Result(stage.name, number, code, round(time.monotonic() - began, 1), counts)
        self.results.append(result)
        self._keep()
        return result

    def output(self, stage: str, number: int) -> Path:
        """Return the file with what a run printed."""
        return self._directory / f"{stage}-{number}.txt"

    @property
    def page(self) -> Path:
        """Return the page with the results."""
        return self._directory / "index.html"

    def _keep(self) -> None:
        """Write the results, and the page."""
        state = {"commit": self._commit, "results": [asdict(result) for result in self.results]}
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps(state, indent=1))
        fresh.replace(self._state)
        self.page.write_text(self._html())

    def _html(self) -> str:
        rows = [row for stage in self._stages for row in self._rows(stage)]
        failed = sum(result.code != 0 for result in self.results)
        missing = sum(1 for _ in self.missing())
        outcome = f"{len(self.results)} runs ended, {failed} of them failed; {missing} are still to come."
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Campaign</title>'
            "<style>body{font:16px sans-serif;margin:2rem}td,th{padding:.3rem .8rem;text-align:left}"
            "tr.failed{background:#fdd}</style>"
            f"<h1>Campaign of {html.escape(self._commit[:12])}</h1><p>{outcome}</p><table>"
            "<tr><th>Stage<th>Tries<th>Run<th>Result<th>Minutes<th>Tests<th>Output</tr>"
            f"{''.join(rows)}</table></html>\n"
        )

    def _rows(self, stage: Stage) -> Iterator[str]:
        for result in self.results:
            if result.stage == stage.name:
                counts = ", ".join(f"{count:,} {kind}" for kind, count in result.counts.items())
                name = self.output(stage.name, result.run).name
                yield (
                    f'<tr class="{"failed" if result.code else "passed"}"><td>{stage.name}<td>{html.escape(stage.what)}'
                    f"<td>{result.run + 1} of {stage.runs}<td>{f'failed ({result.code})' if result.code else 'passed'}"
                    f'<td>{result.seconds / 60:.1f}<td>{counts}<td><a href="{name}">{name}</a></tr>\n'
                )


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        "make campaign", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    stages = "\n".join(f"{stage.name:11} {stage.what}, {stage.runs} run{'s' * (stage.runs > 1)}" for stage in STAGES)
    parser.add_argument(
        "--only", action="append", choices=[stage.name for stage in STAGES], help=f"stage(s) to run:\n{stages}"
    )
    parser.add_argument("--directory", type=Path, default=ROOT / "build/campaign", help="where results are kept")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str], stages: Sequence[Stage] = STAGES) -> int:
    """Run what is missing. Return 1 if a run failed, now or before."""
    given = options(arguments)
    chosen = [stage for stage in stages if not given.only or stage.name in given.only]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    campaign = Campaign(given.directory, chosen, commit)
    missing = list(campaign.missing())
    began = time.monotonic()
    for place, (stage, number) in enumerate(missing, 1):
        print(f"[{place}/{len(missing)}] {stage.name}, run {number + 1} of {stage.runs}: {stage.what}", flush=True)
        try:
            result = campaign.run(stage, number)
        except KeyboardInterrupt:
            print("\ninterrupted: the same command resumes this run")
            return 130
        outcome = f"failed: see {campaign.output(stage.name, number)}" if result.code else "passed"
        passed = time.monotonic() - began
        print(f"    {outcome} ({result.seconds / 60:.1f} min; {passed / 3600:.1f} h so far)", flush=True)
    print(f"summary: {campaign.page}")
    return int(any(result.code for result in campaign.results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
