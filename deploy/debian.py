"""The package for Debian: wheel, its locked dependencies as wheels, units, configuration files and the system user, by nfpm.

The postinst script makes a virtual environment of them without a network. The dependencies are built for a version of Python
and a machine, so the package is for the Debian whose Python is that of this process: 3.11 is Debian 12's.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from penstock import __version__

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
HOME = "/usr/lib/penstock"
# console scripts in /usr/bin: not those that Debian's packages of the originals have
PROGRAMS = (
    "nsqd", "nsqlookupd", "nsqadmin", "nsq_tail", "to_nsq", "nsq_to_nsq", "nsq_to_http", "nsq_stat", "nsq_to_file", "penstock",
)  # fmt: skip
CONFIGURATIONS = (
    ("nsqd", "nsqd-1"),
    ("nsqlookupd", "nsqlookupd"),
    ("nsqadmin", "nsqadmin"),
)  # daemons, names of files
KEPT = "config|noreplace"  # nfpm's word for a file that an upgrade does not replace if it was changed
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def download(directory: Path) -> None:
    """Download the wheels that requirements.lock names, as this Python and machine need them. Raises CalledProcessError."""
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(directory), "--requirement", str(LOCK)]
    subprocess.run(command, check=True)


def package(wheel: Path, wheels: Path, target: Path, epoch: str) -> Path:
    """Write the package into the directory `target`, and return its path. Raises CalledProcessError.

    `wheel`: Penstock's; `wheels`: the directory of its dependencies; `epoch`: s, the time of all files.
    """
    with tempfile.TemporaryDirectory() as directory:
        version, described = Path(directory) / "version", Path(directory) / "nfpm.json"
        version.write_text(__version__ + "\n")
        described.write_text(json.dumps(_description([wheel, *sorted(wheels.glob("*.whl"))], version, int(epoch))))
        command = ["nfpm", "package", "--packager", "deb", "--config", str(described), "--target", str(target)]
        found = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        environment = {**os.environ, "PATH": found, "SOURCE_DATE_EPOCH": epoch}
        subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    (built,) = target.glob("*.deb")
    return built


def _description(wheels: list[Path], version: Path, epoch: int) -> dict[str, object]:
    """Return nfpm's description of the package. Every file has the time `epoch` (s), so that two builds are equal."""
    major, minor = sys.version_info[:2]
    files = [(str(path), f"{HOME}/wheels/{path.name}", "") for path in wheels]
    files += [(str(LOCK), f"{HOME}/requirements.lock", ""), (str(version), f"{HOME}/version", "")]
    units = sorted((ROOT / "deploy/systemd").glob("*.service"))
    files += [(str(path), f"/lib/systemd/system/{path.name}", "") for path in units]
    files += [("deploy/systemd/penstock.sysusers", "/usr/lib/sysusers.d/penstock.conf", "")]
    files += [(f"deploy/config/{daemon}.toml", f"/etc/penstock/{name}.toml", KEPT) for daemon, name in CONFIGURATIONS]
    files += [(f"{HOME}/current/bin/{name}", f"/usr/bin/{name}", "symlink") for name in PROGRAMS]
    files += [("LICENSE", "/usr/share/doc/penstock/copyright", "")]
    time = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "name": "penstock",
        "arch": _MACHINES.get(platform.machine(), platform.machine()),
        "version": __version__,
        "maintainer": "Penstock",
        "description": "message queue for the unchanged clients of NSQ, beanstalkd and Disque",
        "license": "MIT",
        "section": "net",
        "priority": "optional",
        "mtime": time,
        "depends": [
            f"python3 (>= {major}.{minor})",
            f"python3 (<< {major}.{minor + 1})",
            "python3-venv",
            "systemd",
            "procps",
        ],
        "contents": [
            {"src": source, "dst": path, "type": kind, "file_info": {"mtime": time}} for source, path, kind in files
        ],
        "scripts": {
            "postinstall": "deploy/debian/postinst",
            "preremove": "deploy/debian/prerm",
            "postremove": "deploy/debian/postrm",
        },
    }
