"""`penstock support-bundle`: one archive with the state of all daemons, to send to a supporter.

It has no message and no secret: statistics, the state of logs and cluster, alarms, versions, and the ends of the logs of the
set that `penstock up` runs in the working directory. Credentials in addresses are hidden. MANIFEST lists the contents.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import tarfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl

from admin.terminal.arguments import add_command
from admin.terminal.health import snapshot
from admin.terminal.session import Session
from shared.counted import counted
from shared.secrets import hide
from shared.terminal.commands import CommandError, Commands, ExitCode
from shared.terminal.context import given
from shared.terminal.output import plain
from shared.version import version_line

OF_NODES = (
    "/info",
    "/stats?format=json&include_clients=true",
    "/storage",
    "/cluster",
    "/pauses",
    "/node/drain",
    "/metrics",
)
OF_LOOKUPDS = ("/info", "/nodes", "/topics", "/metrics")
LOGS = Path("data", "logs")
MOST_TAIL = 256 * 1024  # bytes of the end of each log


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    what = "write an archive with the state of all daemons, without messages and secrets"
    bundle = add_command(commands, "support-bundle", _bundle, what, "support-bundle\nsupport-bundle state.tar.gz")
    bundle.add_argument("file", nargs="?", type=Path, metavar="FILE", help="(default: penstock-TIME.tar.gz)")


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


@dataclass(slots=True)
class Bundle:
    """The files of an archive, by path."""

    files: dict[str, bytes] = field(default_factory=dict)

    def write(self, path: Path, now: float) -> None:
        """Write the archive, which only its owner may read. Raises OSError."""
        manifest = "".join(f"{len(content):>10}  {name}\n" for name, content in sorted(self.files.items()))
        with open(path, "xb", opener=_private) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, content in sorted((self.files | {"MANIFEST": manifest.encode()}).items()):
                entry = tarfile.TarInfo(f"penstock/{name}")
                entry.size, entry.mtime, entry.mode = len(content), int(now), 0o600
                archive.addfile(entry, io.BytesIO(content))


async def _bundle(session: Session, arguments: argparse.Namespace) -> int:
    bundle, now = Bundle(), session.clock() / 1e9
    look, alarms = await snapshot(session)
    lines = [f"{one.severity.word}: {one.rule}: {one.name}: {one.words}" for one in alarms]
    bundle.files["alarms.txt"] = "\n".join([*lines, ""]).encode()
    bundle.files["machine.txt"] = (
        f"{version_line('penstock')}\n{platform.platform()}\nPython {platform.python_version()}\n".encode()
    )
    bundle.files["context.json"] = json.dumps(
        {name: hide(value) for name, value in given(session.context).items()}
    ).encode()
    nodes = [address for address, one in look.nodes.items() if not one.state.is_gone]
    await _ask(session, bundle, nodes, OF_NODES)
    await _ask(session, bundle, session.context.lookupd_http_address, OF_LOOKUPDS)
    _add_logs(bundle, LOGS)
    path = arguments.file or Path(time.strftime("penstock-%Y%m%d-%H%M%S.tar.gz", time.gmtime(now)))
    try:
        bundle.write(path, now)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    names = sorted(bundle.files)
    if arguments.json:
        print(json.dumps({"file": str(path), "files": names}))
    else:
        print(f"{plain(path)} has {counted(len(names), 'file')}, without messages and secrets:")
        print("\n".join(f"  {name}" for name in names))
    return ExitCode.DONE


async def _ask(session: Session, bundle: Bundle, daemons: Iterable[str], paths: Iterable[str]) -> None:
    """Add the answers of daemons to these requests. A request that is refused is in the archive as the refusal."""
    for path in paths:
        route, _, query = path.partition("?")
        ask = partial(session.direct.get_bytes, path=route, arguments=dict(parse_qsl(query)))
        found = await session.direct.all_of(daemons, ask)
        name = route.strip("/").replace("/", "-")
        bundle.files |= {f"{_directory(daemon)}/{name}": content for daemon, content in found.answers.items()}
        bundle.files |= {f"errors/{name}-{number}": error.encode() for number, error in enumerate(found.errors)}


def _directory(daemon: str) -> str:
    return daemon.rpartition("/")[2].replace(":", "-").strip("[]")


def _add_logs(bundle: Bundle, directory: Path) -> None:
    """Add the ends of the logs in a directory, if there is one."""
    for path in sorted(directory.glob("*.log")):
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - MOST_TAIL))
                bundle.files[f"logs/{path.name}"] = file.read(MOST_TAIL)
        except OSError as error:
            bundle.files[f"logs/{path.name}"] = str(error).encode()
