"""`penstock doctor`: find problems before they hurt: addresses, clocks, disks, certificates, versions, limits.

The findings about nodes are those of nsqadmin's alarms. In addition each node's registered address is tried from here, the
limits of this machine are compared with those that daemons want, and the daemons check the config files that are named.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path

from admin.alarms.rules import Severity
from admin.nodes.cluster import Producer
from admin.terminal.arguments import add_command
from admin.terminal.health import CODES, action_of, snapshot
from admin.terminal.session import Session
from shared.log import escape
from shared.process.listen import BACKLOG
from shared.terminal.commands import Commands, ExitCode
from shared.terminal.output import has_colors, paint, print_rows, width

FILES = 4096  # open files that a daemon wants: one for each connection
DAEMONS = ("nsqd", "nsqlookupd", "nsqadmin")
SOMAXCONN = Path("/proc/sys/net/core/somaxconn")
DIAL_TIMEOUT = 3.0  # s
MOST_WIDTH = 10_000  # characters of a line in a pipe
STYLES = {"critical": "red", "warning": "yellow"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong or soon will be, and what to do."""

    severity: str
    subject: str
    problem: str
    action: str


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    what = "find problems before they hurt: addresses, clocks, disks, certificates, versions, limits"
    doctor = add_command(
        commands,
        "doctor",
        _doctor,
        what,
        "doctor\ndoctor --config nsqd=/etc/penstock/nsqd.toml\ndoctor --json",
        ("alarm",),
    )
    doctor.add_argument(
        "--config",
        action="append",
        default=[],
        type=_config,
        metavar="DAEMON=FILE",
        help="also check a config file of nsqd, nsqlookupd or nsqadmin, and the files that it names (may be repeated)",
    )
    doctor.epilog = f"{doctor.epilog}{CODES}\nWhat the Spark pipeline needs: penstock pipeline doctor."


def _config(text: str) -> tuple[str, str]:
    """Return the daemon and the path in DAEMON=FILE. Raises ArgumentTypeError."""
    daemon, _, path = text.partition("=")
    if daemon not in DAEMONS or not path:
        raise argparse.ArgumentTypeError(f"expected DAEMON=FILE, with DAEMON one of {', '.join(DAEMONS)}")
    return daemon, path


async def _doctor(session: Session, arguments: argparse.Namespace) -> int:
    look, alarms = await snapshot(session)
    found = [Finding(one.severity.word, one.name, one.words, action_of(one)) for one in alarms if one.node]
    producers = [one.record.producer for one in look.nodes.values() if not one.state.is_gone]
    found += await _unreachable(producers)
    found += machine(sys.version_info[:2], resource.getrlimit(resource.RLIMIT_NOFILE)[1], SOMAXCONN)
    for daemon, path in arguments.config:
        found += await _checked(daemon, path)
    found.sort(key=lambda one: (Severity[one.severity.upper()], one.subject))
    if arguments.json or not found:
        print_rows([asdict(one) for one in found], (), as_json=arguments.json, nothing="nothing was found")
    else:
        print("\n".join(_lines(found)))
    worst = min((Severity[one.severity.upper()] for one in found), default=Severity.INFO)
    return {Severity.CRITICAL: 2, Severity.WARNING: 1}.get(worst, int(ExitCode.DONE))


def _lines(found: list[Finding]) -> Iterator[str]:
    """Yield the lines about the findings: a table has no room for what to do."""
    room, colors = width() or MOST_WIDTH, has_colors(sys.stdout)
    for one in found:
        text = f"{one.severity}: {escape(f'{one.subject}: {one.problem}')}"
        first, *rest = textwrap.wrap(text, room, subsequent_indent="  ", break_on_hyphens=False)
        yield first.replace(one.severity, paint(one.severity, STYLES.get(one.severity, ""), colors), 1)
        yield from rest
        yield textwrap.fill(one.action, room, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


# Addresses


async def _unreachable(producers: list[Producer]) -> list[Finding]:
    """Return the nodes whose registered addresses consumers cannot use."""
    tried = await asyncio.gather(*map(_dial, producers))
    failed = [_refused(one, why) for one, why in zip(producers, tried, strict=True) if why]
    return [*local_only(producers), *failed]


async def _dial(producer: Producer) -> str:
    """Return the reason why a node's registered TCP address cannot be reached from here, "" if it can."""
    if not producer.tcp_port:
        return ""
    try:
        async with asyncio.timeout(DIAL_TIMEOUT):
            _, writer = await asyncio.open_connection(producer.broadcast_address, producer.tcp_port)
        writer.close()
    except OSError as error:  # also TimeoutError
        number = error.errno or 0  # below 0: of a name that was not found
        text = os.strerror(number) if number > 0 else str(error)
        return text or f"no connection within {DIAL_TIMEOUT:g} s"
    return ""


def _refused(producer: Producer, why: str) -> Finding:
    address = f"{producer.broadcast_address}:{producer.tcp_port}"
    action = "Give the nsqd a -broadcast-address that consumers can reach, and open its port in the firewall."
    return Finding(
        "warning",
        producer.address,
        f"consumers are sent to {address}, which cannot be reached from here: {why}",
        action,
    )


def local_only(producers: list[Producer]) -> Iterator[Finding]:
    """Yield the nodes that announce a loopback address although others are on other machines."""
    if len({one.hostname for one in producers}) < 2:
        return
    for one in producers:
        if _is_loopback(one.broadcast_address):
            problem = f"it announces {one.broadcast_address}, which means another machine to its consumers"
            yield Finding(
                "critical", one.address, problem, "Give the nsqd a -broadcast-address that consumers can reach."
            )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


# Config files


async def _checked(daemon: str, path: str) -> list[Finding]:
    """Return the findings of a daemon about its config file: unknown keys, wrong values, files of TLS and rights."""
    command = (sys.executable, "-P", "-m", "penstock.launch", daemon, "-config", path, "-check-config")
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, error = await process.communicate()
    return list(findings_of(path, daemon, error.decode("utf-8", "replace")))


def findings_of(path: str, daemon: str, lines: str) -> Iterator[Finding]:
    """Yield the findings in the lines that a daemon prints about its config file."""
    for line in lines.splitlines():
        text = line.removeprefix(f"{daemon}: ")
        problem = text.removeprefix("warning: ")
        action = f"Correct the file, and check it again; then send {daemon} SIGHUP, or restart it."
        yield Finding("warning" if text != problem else "critical", path, problem, action)


# This machine


def machine(version: tuple[int, ...], files: int, somaxconn: Path) -> Iterator[Finding]:
    """Yield the limits of this machine that are too low for a daemon. `files`: the limit of open files, -1: none."""
    if version < (3, 11):
        yield Finding(
            "critical", "this machine", f"Python {'.'.join(map(str, version))}", "Install Python 3.11 or later."
        )
    if 0 <= files < FILES:
        action = "Raise it with ulimit -Hn, or LimitNOFILE= of systemd."
        yield Finding("warning", "this machine", f"a process may open {files} files, a daemon wants {FILES}", action)
    try:
        backlog = int(somaxconn.read_text())
    except (OSError, ValueError):  # not Linux, or a sandbox
        return
    if backlog < BACKLOG:
        problem = f"net.core.somaxconn is {backlog}: a crowd of clients that connects at once is refused"
        yield Finding("info", "this machine", problem, f"sysctl net.core.somaxconn={BACKLOG}")
