"""The nsqd that the tests of a file share, and a summary of what clusters went through."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.daemons import Daemon, nsqd


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Start one nsqd for all tests of a file. Each test takes a topic of its own."""
    with nsqd(tmp_path_factory.mktemp("shared")) as daemon:
        yield daemon


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the rounds of clusters have counted, for each test and in all."""
    total = Counter[str]()
    for report in (report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)):
        for name, value in report.user_properties if report.when == "call" else ():
            if name == "cluster rounds" and isinstance(value, dict):
                total.update(value)
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {_counted(value)}")
    if total:
        terminalreporter.write_line(f"rounds of a cluster in all: {_counted(total)}")


def _counted(counts: dict[str, int]) -> str:
    items = ((number, name) for name, number in sorted(counts.items()) if number or "(" not in name)
    return ", ".join(f"{number} {name}" for number, name in items)
