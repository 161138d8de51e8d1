"""Settings for all tests: the profiles of hypothesis, which files come first, and the unit run (`--unit`).

`make test` has several workers (pytest-xdist), which take file after file in the order of collection.

`make unit` runs what opens no socket and starts no process: all but the tests that are marked `process` or `long`. An audit
hook ends a test that does it nevertheless. An event loop's own pair of sockets is allowed, because it leads nowhere.
"""

import functools
import gc
import os
import re
import ssl
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import httpx._transports.default as transports
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from tests.effort import EXAMPLES, IS_CAMPAIGN, tries

# No test fails for the slowness of a shared machine, and a failure prints what replays it.
settings.register_profile(
    "penstock",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=tries(EXAMPLES),
)
# Now: conftest.py files of the directories that are named import tests before pytest_configure.
settings.load_profile("penstock")

# httpx.get makes a client, and a client an SSL context with all authorities of the world: 30 ms of CPU, ten times what a
# request to a daemon takes. Clients that want nothing special share one.
_new_context = httpx.create_ssl_context


@functools.cache
def _usual_context(authorities: str | None) -> ssl.SSLContext:
    return _new_context()


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """Return what httpx.create_ssl_context returns, which may be shared."""
    is_usual = verify is True and cert is None and trust_env
    return _usual_context(os.environ.get("SSL_CERT_FILE")) if is_usual else _new_context(verify, cert, trust_env)


vars(transports)["create_ssl_context"] = _context

# Its 5 s are shorter than pauses of a busy machine, and than what some tests wait for.
vars(httpx._config.DEFAULT_TIMEOUT_CONFIG).update(dict.fromkeys(("connect", "read", "write", "pool"), 60.0))

# The longest first, so that in the end no worker has a long one left while the other has nothing. `--durations=0` shows times.
LONG = (
    "pipeline/test_pipeline_process.py",
    "simulation/test_cluster.py",
    "clients/test_failover.py",
    "processes/test_cluster_chaos.py",
    "penstock/spark/",
    "processes/test_disque_cluster.py",
    "processes/test_celery.py",
    "processes/test_failover.py",
    "processes/test_promoted_logs.py",
    "processes/test_failover_rounds.py",
    "processes/test_cluster_disks.py",
    "admin/alarms/test_monitor_process.py",
    "admin/test_incident_browser.py",
    "admin/test_live_process.py",
    "admin/nodes/test_cluster_process.py",
    "penstock/aio/test_consumer_process.py",
    "processes/test_cluster.py",
    "processes/test_nsq_to_nsq.py",
    "processes/test_penstock_up_restart.py",
    "admin/pages/test_start_process.py",
    "admin/test_operating_process.py",
    "processes/test_nsq_to_file.py",
    "processes/test_penstock_up_secure.py",
    "processes/test_nsq_to_http.py",
    "project/test_start.py",
    "project/test_user_words.py",
    "nsqd/cluster/",
)
NO_UNITS = ("processes", "clients", "simulation")  # a unit run does not even import these directories,
_NO_UNITS = re.compile(r"^pytestmark = .*\bmark\.(process|long)\b", re.MULTILINE)  # nor files with such a line
HERE = Path(__file__).parent
_FORBIDDEN = {
    "socket.__new__", "socket.bind", "socket.connect", "socket.sendto",
    "subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system",
}  # fmt: skip
_guarded = False  # a unit test is running
_earlier: set[threading.Thread] = set()  # threads of earlier tests: the unit test is not to blame for their sockets


class NotAUnitTest(BaseException):
    """A unit test opens a socket or starts a process. No `except Exception` of the code under test hides this."""


# A warning that becomes an error in a destructor can fail no test: it would only be printed into what some other test captures.
sys.unraisablehook = lambda unraisable: None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="store_true", help="only tests that open no socket and start no process")
    parser.addoption(
        "--repeat", type=int, default=1, help="run each test this number of times; daemons of a file are shared"
    )


def pytest_configure() -> None:
    sys.addaudithook(_audit)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make as many tests of each as `--repeat` says."""
    count = metafunc.config.getoption("repeat")
    if count > 1:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(count))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("unit"):
        return None
    if collection_path.suffix == ".py":
        return True if _NO_UNITS.search(collection_path.read_text()) else None
    return True if collection_path.parent == HERE and collection_path.name in NO_UNITS else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is imported and collected out of garbage collections, and have fewer of these, as nsqd does."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the files of LONG to the front, in its order. Deselect what is marked as too much for this run."""
    is_unit = config.getoption("unit")
    chosen, left_out = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_late = not IS_CAMPAIGN and item.get_closest_marker("campaign") is not None
        (left_out if is_late or (is_unit and not _is_unit(item)) else chosen).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen

    def place(item: pytest.Item) -> int:
        path = os.path.relpath(item.path, HERE)
        return next((number for number, name in enumerate(LONG) if path.startswith(name)), len(LONG))

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Guard each unit test, with its fixtures. Report its set-up and teardown only if they fail, as reports cost CPU."""
    global _guarded, _earlier
    if not _is_unit(item):
        return None
    own = threading.current_thread()
    others = [thread for thread in threading.enumerate() if thread is not own]
    _earlier = {thread for thread in others if not thread.name.startswith("Trio")}  # Trio's pool will serve this test
    _guarded = True
    try:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    finally:
        _guarded = False
    for report in reports:
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def _is_unit(item: pytest.Item) -> bool:
    """Return whether a test is one of `make unit`."""
    directory = os.path.relpath(item.path, HERE).partition(os.sep)[0]
    return directory not in NO_UNITS and not any(mark.name in {"process", "long"} for mark in item.iter_markers())


def _audit(event: str, _: object) -> None:
    """Raise NotAUnitTest if a guarded test opens a socket or starts a process."""
    if not _guarded or event not in _FORBIDDEN or threading.current_thread() in _earlier:
        return
    if event != "socket.__new__" or not _is_of_an_event_loop():
        raise NotAUnitTest(f"{event} in a unit test: mark the test `process`")


def _is_of_an_event_loop() -> bool:
    """Return whether trio or asyncio makes the socket that is about to be made."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.endswith("/socket.py"):
        frame = frame.f_back
    return "/asyncio/" in frame.f_code.co_filename or "/trio/_core/" in frame.f_code.co_filename
