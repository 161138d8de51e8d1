"""`make image-check`: build the images of deploy/Dockerfile with podman, and run a node in a container.

Their base image is on a registry of containers. In its place is the same release of Debian, made by mmdebstrap, with Python in
/usr/local as there. So root, the packages that PACKAGES names, and the archives of Debian and PyPI are all that this needs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = ROOT / "deploy/Dockerfile"
CACHED = ROOT / "build/image"  # has the base image for the next run
PACKAGES = ("mmdebstrap", "podman", "runc", "netavark", "iptables")  # of Debian
CONFINED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")  # as in compose.yaml
STARTS = 60  # s for a node to start, or to stop


class Podman:
    """Runs podman on images and containers of its own, below a directory."""

    def __init__(self, directory: Path) -> None:
        # runc: crun refuses machines with cgroups of both versions
        own = "--root", str(directory / "storage"), "--runroot", str(directory / "run"), "--cgroup-manager", "cgroupfs"
        self._command = ["podman", "--runtime", "runc", "--events-backend", "file", *own]

    def __call__(self, *arguments: str, is_quiet: bool = False) -> str:
        """Run a command of podman, and return what it prints. Raises CalledProcessError."""
        errors = subprocess.DEVNULL if is_quiet else None
        return subprocess.run(
            [*self._command, *arguments], check=True, text=True, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT
        ).stdout.strip()

    def code(self, *arguments: str) -> int:
        """Run a command that may fail, and return its exit code."""
        return subprocess.run([*self._command, *arguments], capture_output=True).returncode

    def start(self, *options: str) -> str:
        """Start a container of the image of daemons, with a volume for its data. Returns its id."""
        ulimits = (
            "--ulimit",
            "nofile=10000:10000",
            "--ulimit",
            "nproc=1000:1000",
        )  # podman would raise those of this process
        volume = "--volume", "data:/data", "--publish", "127.0.0.1::4151"
        return self("run", "--detach", *ulimits, *CONFINED, *volume, *options, "penstock")


def make_base(podman: Podman) -> None:
    """Make the image that the Dockerfile begins with. Raises CalledProcessError."""
    found = re.search(r"^FROM (python:([\d.]+)-slim-(\w+)) AS", DOCKERFILE.read_text(), re.MULTILINE)
    assert found is not None
    name, version, release = found.groups()
    archive = CACHED / f"{release}.tar"
    if not archive.exists():
        CACHED.mkdir(parents=True, exist_ok=True)
        include, hook = "--include=python3-venv,ca-certificates", f'chroot "$1" python{version} -m venv /usr/local'
        made = archive.with_suffix(".part.tar")
        subprocess.run(
            ["mmdebstrap", "--variant=minbase", include, f"--customize-hook={hook}", release, made], check=True
        )
        made.rename(archive)
    podman("import", str(archive), f"docker.io/library/{name}")


def build(podman: Podman, target: str, name: str) -> int:
    """Build an image, and return its size in bytes. Raises CalledProcessError."""
    # the authorities by which this machine trusts the archives, and how its pip is configured
    given = [path for path in ("/etc/ssl/certs", "/etc/pip.conf") if os.path.exists(path)]
    volumes = [word for path in given for word in ("--volume", f"{path}:{path}:ro")]
    options = "--isolation", "chroot", "--network", "host", "--format", "docker", "--pull-never"
    podman("build", *options, *volumes, "--target", target, "--tag", name, "--file", str(DOCKERFILE), str(ROOT))
    return int(podman("image", "inspect", name, "--format", "{{.Size}}"))


def check_node(podman: Podman) -> None:
    """Run a node, stop it, and run it again on the same data. Raises AssertionError, CalledProcessError."""
    config = json.loads(podman("image", "inspect", "penstock"))[0]["Config"]
    assert (config["User"], config["StopSignal"]) == ("10001", "SIGTERM")
    refused = podman.start()
    assert podman("wait", refused) == "1", "without credentials it starts only if its configuration allows that"
    node = podman.start("--env", "NSQD_REQUIRE_AUTH=false")
    _until(lambda: _get(podman, node, "/readyz"))
    _post(podman, node, "/pub?topic=kept", b"message")
    podman("healthcheck", "run", node)
    assert podman("exec", node, "id", "-u") == "10001"
    assert podman.code("exec", node, "touch", "/usr/written") != 0, "the root file system is read-only"
    podman("stop", "--time", str(STARTS), node)
    assert podman("inspect", node, "--format", "{{.State.ExitCode}}") == "0"
    podman("start", node)
    _until(lambda: _get(podman, node, "/readyz"))
    stats = json.loads(_get(podman, node, "/stats?format=json&topic=kept"))
    assert stats["topics"][0]["depth"] == 1, "the message is on the volume"


def _url(podman: Podman, node: str, path: str) -> str:
    return f"http://{podman('port', node, '4151')}{path}"


def _get(podman: Podman, node: str, path: str) -> bytes:
    with urllib.request.urlopen(_url(podman, node, path), timeout=5) as answer:
        content: bytes = answer.read()
        return content


def _post(podman: Podman, node: str, path: str, body: bytes) -> None:
    urllib.request.urlopen(_url(podman, node, path), body, timeout=5).close()


def _until(succeeds: Callable[[], object]) -> None:
    """Try until nothing is raised. Raises OSError after STARTS."""
    end = time.monotonic() + STARTS
    while True:
        try:
            succeeds()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def main() -> int:
    missing = [name for name in ("mmdebstrap", "podman", "runc") if shutil.which(name) is None]
    if missing or os.geteuid():
        print(
            f"image-check: run as root: apt-get install --no-install-recommends {' '.join(PACKAGES)}", file=sys.stderr
        )
        return 1
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        podman = Podman(Path(directory))
        try:
            make_base(podman)
            size = build(podman, "daemons", "penstock")
            check_node(podman)
            print(f"image-check: penstock is {size:,} bytes; it runs, stops and keeps its messages")
            if "--spark" in sys.argv[1:]:
                size = build(podman, "spark", "penstock-spark")
                podman("run", "--rm", *CONFINED, "penstock-spark", "penstock", "pipeline", "--help")
                podman("run", "--rm", *CONFINED, "penstock-spark", "spark-submit", "--version")
                print(f"image-check: penstock-spark is {size:,} bytes; its commands start")
        finally:
            podman("rm", "--force", "--all", is_quiet=True)
            podman("rmi", "--force", "--all", is_quiet=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
