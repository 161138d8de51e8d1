"""`make release`: build sdist, wheel and .deb of this commit twice, compare the two, and write them with SBOM and checksums.

The version is that of penstock/__init__.py. The changelog must begin with it and, unless it has a day, nothing is released yet:
then the files are for a trial. `make release` refuses changes that are not committed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy import debian
from penstock import __version__

ROOT = Path(__file__).resolve().parent.parent
SBOM = ROOT / "deploy/sbom.cdx.json"
SUMS = "SHA256SUMS"
_HEAD = re.compile(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", re.MULTILINE)


class ReleaseError(Exception):
    """The commit cannot be released. The text says why, in one line."""


def newest_change(changelog: str) -> tuple[str, str]:
    """Return the version at the top of the changelog, and its day or "unreleased". Raises ReleaseError."""
    head = _HEAD.search(changelog)
    if head is None:
        raise ReleaseError("CHANGELOG.md has no heading such as '## 1.2.3 (2026-11-30)'")
    return head[1], head[2]


def require_committed(root: Path) -> None:
    """Raise ReleaseError if a file of the checkout is new or differs from the commit."""
    status = subprocess.check_output(["git", "status", "--porcelain"], cwd=root, text=True)
    if status:
        raise ReleaseError(f"commit or stash first: {', '.join(line[3:] for line in status.splitlines()[:5])}")


def build(directory: Path, epoch: str) -> dict[str, str]:
    """Build sdist and wheel into a directory. Returns the SHA-256 of each by name. `epoch`: s, the time in both."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": epoch})
    if built.returncode:
        raise ReleaseError(f"the build failed: {built.stdout[-1000:]}{built.stderr[-1000:]}")
    return {path.name: _hash(path) for path in sorted(directory.iterdir())}


def release(target: Path) -> dict[str, str]:
    """Write sdist, wheel, SBOM and SUMS into a directory, which must not exist. Returns the hashes. Raises ReleaseError."""
    version, _ = newest_change((ROOT / "CHANGELOG.md").read_text())
    if version != __version__:
        raise ReleaseError(f"CHANGELOG.md begins with {version}, and penstock/__init__.py has {__version__}")
    if target.exists():
        raise ReleaseError(f"{target} exists: remove it first")
    epoch = _epoch()
    with tempfile.TemporaryDirectory() as other, tempfile.TemporaryDirectory() as first:
        hashes, again = build(Path(first), epoch), build(Path(other), epoch)
        if hashes != again:
            different = ", ".join(name for name, value in hashes.items() if again.get(name) != value)
            raise ReleaseError(f"two builds differ: {different}")
        shutil.copytree(first, target)
    shutil.copy(SBOM, target / f"penstock-{version}.cdx.json")
    return _write_sums(target)


def add_debian_package(target: Path) -> dict[str, str]:
    """Add the package for Debian to a release. Returns the hashes of all files. Raises ReleaseError, CalledProcessError."""
    (wheel,) = target.glob("*.whl")
    with tempfile.TemporaryDirectory() as wheels, tempfile.TemporaryDirectory() as other:
        debian.download(Path(wheels))
        built, again = (debian.package(wheel, Path(wheels), place, _epoch()) for place in (target, Path(other)))
        if _hash(built) != _hash(again):
            raise ReleaseError(f"two builds differ: {built.name}")
    return _write_sums(target)


def _epoch() -> str:
    """Return the time of the commit in s, which is that of all files of a release."""
    return subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT, text=True).strip()


def _write_sums(target: Path) -> dict[str, str]:
    hashes = {path.name: _hash(path) for path in sorted(target.iterdir()) if path.name != SUMS}
    (target / SUMS).write_text("".join(f"{value}  {name}\n" for name, value in hashes.items()))
    return hashes


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> int:
    target = Path(sys.argv[1])
    try:
        require_committed(ROOT)
        release(target)
        hashes = add_debian_package(target)
    except (ReleaseError, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for name, value in sorted(hashes.items()):
        print(f"{value}  {target / name}  {(target / name).stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
