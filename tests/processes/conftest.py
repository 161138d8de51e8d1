"""The nsqd that the tests of a file share, and a summary of what clusters went through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.daemons import Daemon, nsqd

ROUNDS = ("test_cluster_disks.py", "test_failover_rounds.py")


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Start one nsqd for all tests of a file, with the file's SHARED_FLAGS. Each test takes a topic of its own."""
    with nsqd(tmp_path_factory.mktemp("shared"), *getattr(request.module, "SHARED_FLAGS", ())) as daemon:
        yield daemon


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the rounds of clusters have counted, for each test and in all, or why there were none."""
    total = Counter[str]()
    for report in (report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)):
        for name, value in report.user_properties if report.when == "call" else ():
            if name == "cluster rounds" and isinstance(value, dict):
                total.update(value)
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {_counted(value)}")
    if total:
        terminalreporter.write_line(f"rounds of a cluster in all: {_counted(total)}")
    for reason, count in _skipped_rounds(terminalreporter).items():
        terminalreporter.write_line(f"{count} tests with rounds of a cluster were skipped: {reason}")


def _counted(counts: dict[str, int]) -> str:
    items = ((number, name) for name, number in sorted(counts.items()) if number or "(" not in name)
    return ", ".join(f"{number} {name}" for number, name in items)


def _skipped_rounds(terminalreporter: pytest.TerminalReporter) -> Counter[str]:
    """Return why tests with rounds of a cluster were skipped, and how many."""
    reasons = Counter[str]()
    for report in terminalreporter.getreports("skipped"):
        if report.nodeid.partition("::")[0].endswith(ROUNDS) and isinstance(report.longrepr, tuple):
            reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
    return reasons
