"""Settings for all tests: hypothesis never fails for slowness of a shared machine, and prints what to replay; long files first.

`make test` has two workers (pytest-xdist), which take file after file in the order of collection.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("penstock", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")

# The longest first, so that in the end no worker has a long one left while the other has nothing. `--durations=0` tells.
LONG = (
    "pipeline/test_pipeline_process.py",
    "simulation/test_simulation.py",
    "nsqd/storage/test_crashes.py",
    "nsqd/storage/test_tube_crashes.py",
    "pipeline/",
    "penstock/spark/",
    "processes/test_message_commands.py",
    "processes/test_crash.py",
    "processes/test_disk_full.py",
    "bench/",
    "admin/test_pages_process.py",
    "processes/test_nsqd_hostile.py",
    "processes/test_nsqd.py",
    "processes/test_nsqd_edge.py",
    "processes/test_beanstalkd.py",
    "processes/test_nsq_import.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files of LONG in its order, then all others in theirs."""
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(here).as_posix()
        return next((number for number, name in enumerate(LONG) if path.startswith(name)), len(LONG))

    items.sort(key=place)
