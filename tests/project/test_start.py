"""Imports of a program before it answers: counted, never timed. And where it finds its own modules."""

import os
import re
import resource
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.daemons import ROOT, nsqd

pytestmark = pytest.mark.process

HEAVY = {"trio", "asyncio", "ssl", "httpx", "starlette", "uvicorn", "jinja2", "prometheus_client", "msgpack", "anyio"}
PROGRAMS = ["nsqd", "nsqlookupd", "nsqadmin", "nsq_tail"]
# Runs a program as its console script does, then lists what it has imported.
SCRIPT = (
    "import sys, atexit; atexit.register(lambda: print('imported', *sys.modules))\n"
    "from penstock import launch; launch.{}()"
)


def imported(program: str, *flags: str) -> tuple[str, set[str]]:
    """Return the program's output, and the modules it had imported when it ended."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(program), *flags],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    text, _, modules = done.stdout.partition("imported ")
    return text + done.stderr, set(modules.split())


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_version_is_printed_as_the_original_s_without_the_options(program: str) -> None:
    text, modules = imported(program, "-version")
    assert re.match(rf"{program} v1\.3\.0 \(built w/[a-z0-9.-]+\)", text)
    assert "penstock 0.1.0" in text
    assert not modules & {*HEAVY, "dataclasses", "logging", "socket"}
    if program == "nsqd":
        for flags in ("--version", "-version -log-level=debug", "-version=true", "-version -config=/nix"):
            assert imported("nsqd", *flags.split())[0] == text


@pytest.mark.parametrize("program", ["nsqd", "nsqlookupd", "nsqadmin"])
def test_the_list_of_flags_needs_only_the_options(program: str) -> None:
    text, modules = imported(program, "-help")
    assert text.startswith(f"Usage of {program}:")
    assert not modules & HEAVY
    assert not {name for name in modules if name.startswith(("nsqd.core", "nsqd.net", "nsqd.storage", "lookupd.re"))}


# Runs a daemon, and prints what it has imported when a function is called, and when it has returned.
WATCHED = """
import importlib, sys
owner = importlib.import_module({0!r})
*path, name = {1!r}.split(".")
for one in path: owner = getattr(owner, one)
real = getattr(owner, name)
def told(): print("imported", *sys.modules, flush=True)
def call(*a): told(); found = real(*a); told(); return found
async def async_call(*a): told(); found = await real(*a); told(); return found
setattr(owner, name, async_call if real.__code__.co_flags & 128 else call)
from {2}.main import main; sys.exit(main())
"""


def imported_at(main: str, place: str, *flags: str, lines: int = 1) -> list[set[str]]:
    """Return what a daemon has imported when it calls the function at a place, and, of two lines, when that has returned."""
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED.format(*place.split(":"), main), *flags],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        found = [process.stdout.readline() for _ in range(lines)]
        process.kill()
    assert all(line.startswith("imported ") for line in found)
    return [set(line.split()[1:]) for line in found]


TCP, HTTP, ADMIN = "-tcp-address=127.0.0.1:0", "-http-address=127.0.0.1:0", "-nsqd-http-address=127.0.0.1:1"
BEFORE_HTTP = HEAVY - {"trio", "ssl", "msgpack"}
# Modules that no daemon needs to serve HTTP: /metrics, the options of some, the command line of uvicorn.
NOT_FOR_HTTP = {
    "prometheus_client", "httpx", "cryptography", "OpenSSL", "jinja2", "http.server", "click", "multiprocessing",
    "uvicorn.main", "uvicorn.supervisors",
}  # fmt: skip
NOT_FOR_NSQD = {
    "nsqd.protocols.disque.context", "shared.http.debug", "tracemalloc", "nsqd.http.trace", "nsqd.http.cuts",
    "nsqd.http.identities", "nsqd.protocols.beanstalk.stats", "tarfile", "cronsim",
}  # fmt: skip
# Modules that only some options, pages or answers of nsqadmin need. Half a second of CPU.
LATER = {
    "trio", "jinja2", "prometheus_client", "authlib", "joserfc", "argon2", "cryptography", "OpenSSL", "rich", "pygments",
    "statistics", "admin.pages.oidc",
}  # fmt: skip
LISTEN, SERVER, MANY = "shared.process.listen:listen", "shared.http.server:HttpServer.start", 10_000


@pytest.mark.parametrize(("main", "place", "flags", "never"), [  # not imported yet, and the most modules
    ("nsqd", LISTEN, [TCP, HTTP, "-data-path={}"], [(HEAVY, MANY)]), ("lookupd", LISTEN, [TCP, HTTP], [(HEAVY, MANY)]),
    ("admin", LISTEN, [HTTP, ADMIN], [(HEAVY, MANY)]),
    ("nsqd", "nsqd.start.http_server:HttpFrontEnd.accept", [TCP, HTTP, "-lookupd-tcp-address=127.0.0.1:1", "-data-path={}"],
     [(BEFORE_HTTP | {"shared.auth.auth_file"}, MANY)]),
    # before the server is there, the first request is answered
    ("nsqd", "nsqd.start.http_server:HttpFrontEnd.start", [TCP, HTTP, "-data-path={}"],
     [(BEFORE_HTTP | {"nsqd.http.routes"}, 550), (NOT_FOR_HTTP | NOT_FOR_NSQD, 710)]),  # 543, 698
    ("lookupd", SERVER, [TCP, HTTP], [(set(), MANY), (NOT_FOR_HTTP, 440)]),  # 423
    ("admin", SERVER, [HTTP, ADMIN], [(LATER, 560)]),  # 515; the rest is used by each answer
])  # fmt: skip
def test_a_daemon_listens_and_serves_before_it_imports_what_it_does_not_need_for_that(
    main: str, place: str, flags: list[str], never: list[tuple[set[str], int]], tmp_path: Path
) -> None:
    found = imported_at(main, place, *(flag.format(tmp_path) for flag in flags), lines=len(never))
    for modules, (later, most) in zip(found, never, strict=True):
        assert not modules & later
        assert len(modules) < most


# The server is not there until the file named by the environment is.
LATE_SERVER = (
    "import os, sys, time\n"
    "from nsqd.start import http_server as h; real = h.HttpFrontEnd.build\n"
    "def started(*a):\n"
    "    while not os.path.exists(os.environ['LATE']): time.sleep(0.01)\n"
    "    return real(*a)\n"
    "h.HttpFrontEnd.build = started; from nsqd.main import main; sys.exit(main())"
)


def test_what_only_the_server_can_answer_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = tmp_path / "late"
    monkeypatch.setenv("LATE", str(late))
    command = [sys.executable, "-c", LATE_SERVER]
    with nsqd(tmp_path / "data", command=command) as node, node.connect("HTTP") as gone, node.connect("HTTP") as client:
        gone.sendall(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")
        gone.close()
        client.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(4096).endswith(b"OK")
        client.sendall(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(4096)
        late.touch()
        client.settimeout(60)
        assert b"broadcast_address" in client.recv(4096)


def test_the_server_is_imported_although_clients_have_taken_all_descriptors_they_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = tmp_path / "late"
    monkeypatch.setenv("LATE", str(late))
    command, few = [sys.executable, "-c", LATE_SERVER], lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with ExitStack() as stack:
        node = stack.enter_context(nsqd(tmp_path / "data", command=command, preexec_fn=few))
        client = stack.enter_context(node.connect("HTTP"))
        for _ in range(100):
            with suppress(ConnectionError):
                stack.enter_context(node.connect())
        node.wait_for_line("cannot accept")
        client.sendall(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")
        late.touch()
        assert b"broadcast_address" in client.recv(4096)
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.fixture
def strangers(tmp_path: Path) -> Path:
    """A directory with modules that have our names and end a process that imports them."""
    there = tmp_path / "strangers"
    for name in ("nsqd", "lookupd", "admin", "shared", "apps", "pipeline"):
        (there / name).mkdir(parents=True)
        (there / name / "__init__.py").write_text(f"raise SystemExit('a foreign {name}')")
    return there


@pytest.mark.parametrize("program", ["nsqd", "nsq_tail", "penstock"])
def test_foreign_modules_of_our_names_are_not_imported(program: str, strangers: Path) -> None:
    script = Path(sys.executable).parent / program
    environ = {**os.environ, "PYTHONPATH": str(strangers)}
    done = subprocess.run([script, "--help"], cwd=strangers, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"sage of {program}" in done.stderr or f"usage: {program}" in done.stdout


def test_the_children_of_up_do_not_import_them_either(strangers: Path) -> None:
    (strangers / "penstock").mkdir()
    (strangers / "penstock" / "__init__.py").write_text("raise SystemExit('a foreign penstock')")
    code = "from apps.daemon_set import Plan; import pathlib; print(*Plan(pathlib.Path('d')).daemons()[1].command, sep='\\n')"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    command = [*shown.stdout.splitlines(), "-version"]
    environ = {**os.environ, "PYTHONPATH": str(strangers)}
    done = subprocess.run(command, cwd=strangers, env=environ, capture_output=True, text=True)
    assert done.stdout.startswith("nsqd v1.3.0 "), done.stderr


@pytest.mark.parametrize("program", ["nsqd", "nsqlookupd", "nsqadmin", "disque_server"])
def test_a_signal_that_comes_before_the_imports_ends_a_daemon_without_a_traceback(program: str) -> None:
    signalled = "from os import getpid, kill; launch.import_module = lambda name: kill(getpid(), 15); launch."
    script = SCRIPT.replace("launch.{}", signalled + program)
    done = subprocess.run([sys.executable, "-c", script, "-x"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
