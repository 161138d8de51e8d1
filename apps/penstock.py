"""The program `penstock`. `penstock up` starts nsqlookupd, nsqd and nsqadmin in the foreground; messages.py has others.

The daemons are ordinary processes with ordinary flags (-v prints their command lines), each in its own session. Ctrl-C
therefore reaches this program alone, which stops the daemons in the reverse order of their start. If one daemon dies,
the program stops all of them.
"""

import argparse
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from apps import backup, messages
from penstock import launch
from shared.listen import ListenError, listen
from shared.version import version_line

HOST = "127.0.0.1"
LOOKUPD_TCP, LOOKUPD_HTTP = 4160, 4161
NSQD_TCP, NSQD_HTTP, BEANSTALK = 4150, 4151, 11300
ADMIN_HTTP = 4171
NODE_STEP = 100  # difference between the ports of two nsqd: 4150, 4250, ...
START_TIMEOUT = 15.0  # s for all daemons together to accept connections
STOP_TIMEOUT = 10.0  # s for a daemon to stop before it is killed
POLL = 0.05  # s
ADVICE = (
    "penstock up: choose other ports with --port-offset, for example --port-offset 1000;"
    " to run a second set, also choose another --data directory"
)


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon to start: its program, flags and ports."""

    name: str
    program: str
    flags: tuple[str, ...]
    tcp_port: int  # 0: none
    http_port: int
    beanstalk_port: int = 0  # 0: none

    @property
    def command(self) -> list[str]:
        """The command line to execute. -P keeps Python from importing modules beside launch.py or in the working directory."""
        return [sys.executable, "-P", launch.__file__, self.program, *self.flags]


class Stopped(Exception):
    """SIGINT or SIGTERM arrived, so the daemons have to stop."""


def main() -> int:
    """Run the program and return its exit code.

    The code is 0 after Ctrl-C, 1 if a daemon could not start or died, and 2 for wrong arguments.
    """
    arguments = _parser().parse_args()
    if "run" in arguments:
        return messages.run(arguments)
    if "backup" in arguments:
        return backup.run(arguments)
    daemons = plan(arguments.data, arguments.nodes, arguments.port_offset)
    taken = [problem for daemon in daemons for problem in _taken_ports(daemon)]
    if taken:
        print("\n".join(taken), file=sys.stderr)
        print(ADVICE, file=sys.stderr)
        return 1
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, _stop)
    return _run(daemons, arguments.verbose)


def plan(data: Path, nodes: int, port_offset: int) -> list[Daemon]:
    """Return the daemons to run, in the order in which they start."""
    lookupd_tcp, lookupd_http = LOOKUPD_TCP + port_offset, LOOKUPD_HTTP + port_offset
    addresses = (f"-tcp-address={HOST}:{lookupd_tcp}", f"-http-address={HOST}:{lookupd_http}")
    daemons = [Daemon("nsqlookupd", "nsqlookupd", addresses, lookupd_tcp, lookupd_http)]
    for number in range(nodes):
        # The first one keeps its directory when the number of nodes changes.
        name = f"nsqd-{number + 1}" if number else "nsqd"
        tcp = NSQD_TCP + number * NODE_STEP + port_offset
        http = NSQD_HTTP + number * NODE_STEP + port_offset
        flags = (
            f"-tcp-address={HOST}:{tcp}",
            f"-http-address={HOST}:{http}",
            f"-beanstalk-address={HOST}:{BEANSTALK + number * NODE_STEP + port_offset}",
            f"-lookupd-tcp-address={HOST}:{lookupd_tcp}",
            f"-data-path={data / name}",
            f"-node-id={number}",
            f"-log-prefix=[{name}] ",
        )
        daemons.append(Daemon(name, "nsqd", flags, tcp, http, BEANSTALK + number * NODE_STEP + port_offset))
    admin = (
        f"-http-address={HOST}:{ADMIN_HTTP + port_offset}",
        f"-lookupd-http-address={HOST}:{lookupd_http}",
        f"-audit-file={data / 'audit.jsonl'}",
    )
    return [*daemons, Daemon("nsqadmin", "nsqadmin", admin, 0, ADMIN_HTTP + port_offset)]


def _run(daemons: Sequence[Daemon], verbose: bool) -> int:
    running: list[tuple[Daemon, subprocess.Popen[bytes]]] = []
    code = 1
    try:
        for daemon in daemons:
            if verbose:
                print(shlex.join(daemon.command))
            running.append((daemon, _start(daemon)))
            if daemon is daemons[0]:  # the others connect to nsqlookupd as soon as they run
                _wait_until_listening(running)
        _wait_until_listening(running)
        print(_welcome(daemons), flush=True)
        _wait_for_death(running)
    except Stopped:
        code = 0
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave daemons running
        for daemon, process in reversed(running):
            code = _end(daemon, process) or code
    return code


def _start(daemon: Daemon) -> "subprocess.Popen[bytes]":
    for flag in daemon.flags:
        if flag.startswith("-data-path="):
            Path(flag.partition("=")[2]).mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(daemon.command, stdin=subprocess.DEVNULL, start_new_session=True)


def _wait_until_listening(running: Sequence[tuple[Daemon, "subprocess.Popen[bytes]"]]) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    for daemon, process in running:
        while not _accepts(daemon.http_port):
            if process.poll() is not None or time.monotonic() > deadline:
                print(f"penstock up: {daemon.name} did not start; see its last log lines above", file=sys.stderr)
                raise SystemExit(1)
            time.sleep(POLL)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _wait_for_death(running: Sequence[tuple[Daemon, "subprocess.Popen[bytes]"]]) -> None:
    """Return when a daemon has ended by itself. Usually Stopped is raised first."""
    while True:
        for daemon, process in running:
            if process.poll() is not None:
                print(
                    f"penstock up: {daemon.name} exited with code {process.returncode}: stopping all daemons",
                    file=sys.stderr,
                )
                return
        time.sleep(POLL)


def _end(daemon: Daemon, process: "subprocess.Popen[bytes]") -> int:
    """Stop a daemon. Returns 1 if it had to be killed or its exit code is not 0."""
    if process.poll() is None:
        process.terminate()
    try:
        return 1 if process.wait(STOP_TIMEOUT) else 0
    except subprocess.TimeoutExpired:
        print(f"penstock up: {daemon.name} did not stop within {STOP_TIMEOUT:g} s: killing it", file=sys.stderr)
        process.kill()
        process.wait()
        return 1


def _taken_ports(daemon: Daemon) -> list[str]:
    problems = []
    for port in filter(None, (daemon.tcp_port, daemon.http_port, daemon.beanstalk_port)):
        try:
            listen(f"{HOST}:{port}").close()
        except ListenError as error:
            problems.append(f"penstock up: {daemon.name}: {error}")
    return problems


def _welcome(daemons: Sequence[Daemon]) -> str:
    width = max(len(daemon.name) for daemon in daemons)
    lines = [
        f"{d.name:<{width}}  "
        + (f"TCP {HOST}:{d.tcp_port}  " if d.tcp_port else "")
        + f"HTTP http://{HOST}:{d.http_port}"
        + (f"  beanstalkd {HOST}:{d.beanstalk_port}" if d.beanstalk_port else "")
        for d in daemons
    ]
    http = daemons[1].http_port
    lines += [
        "",
        f"Try:  curl -d 'hello' 'http://{HOST}:{http}/pub?topic=greetings'",
        f"      {_beside('nsq_tail')} -topic greetings -channel tail -n 1 -lookupd-http-address {HOST}:{daemons[0].http_port}",
        f"Web UI:  http://{HOST}:{daemons[-1].http_port}",
        "Press Ctrl-C to stop all daemons.",
    ]
    return "\n".join(lines)


def _beside(program: str) -> str:
    """Return the path of a console script of this installation, relative to the working directory if possible."""
    path = Path(sys.executable).parent / program
    if not path.exists():
        return program
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped


def _nodes(text: str) -> int:
    return _number(text, 1, 64)


def _offset(text: str) -> int:
    return _number(text, -4000, 54000)


def _number(text: str, least: int, most: int) -> int:
    if not text.lstrip("-").isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"expected a number from {least} to {most}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock", description="The Penstock messaging daemon set.")
    parser.add_argument("--version", action="version", version=version_line("penstock"))
    commands = parser.add_subparsers(required=True, metavar="command")
    up = commands.add_parser("up", help="start nsqlookupd, nsqd and nsqadmin in the foreground")
    up.add_argument(
        "--nodes",
        type=_nodes,
        default=1,
        metavar="N",
        help="number of nsqd, on ports 4150, 4250, ... (1 to 64, default: 1)",
    )
    up.add_argument(
        "--data",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="directory for the data of all daemons (default: ./data)",
    )
    up.add_argument(
        "--port-offset",
        type=_offset,
        default=0,
        metavar="N",
        help="number to add to every port (-4000 to 54000, default: 0)",
    )
    up.add_argument("-v", "--verbose", action="store_true", help="also print the command line of each daemon")
    messages.add_commands(commands)
    backup.add_command(commands)
    commands.add_parser("import", help="import the data directory of an NSQ nsqd, or of beanstalkd -b", add_help=False)
    commands.add_parser("users", help="manage the users of nsqadmin: set, remove, list", add_help=False)
    commands.add_parser(
        "pipeline", help="archive topics as Parquet on Spark; roll up, report and replay them", add_help=False
    )
    commands.add_parser("doctor", help="check whether everything that the pipeline needs is installed", add_help=False)
    commands.add_parser(
        "verify", help="check a data directory, and print what is live, finished and damaged", add_help=False
    )
    return parser
