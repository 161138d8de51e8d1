"""The release: two builds are equal; `penstock` and `pyspark_nsq` are the wheel's only top-level names; its scripts run."""

import json
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from deploy.debian import PROGRAMS, package
from deploy.release import SUMS, ReleaseError, newest_change, release, require_committed
from penstock import __version__
from tests.cases import each
from tests.daemons import ROOT

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("release") / "files"
    release(target)
    return target


@pytest.fixture(scope="module")
def wheel(released: Path) -> Path:
    (built,) = released.glob("*.whl")
    return built


def test_checksums_are_of_the_released_files(released: Path) -> None:
    lines = (released / SUMS).read_text().splitlines()
    assert {line.split("  ")[1] for line in lines} == {path.name for path in released.iterdir()} - {SUMS}
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=released, check=True)


def test_the_wheel_has_the_sbom_of_the_lock_file(wheel: Path) -> None:
    (name,) = [name for name in zipfile.ZipFile(wheel).namelist() if "/sboms/" in name]
    components = json.loads(zipfile.ZipFile(wheel).read(name))["components"]
    pinned = re.findall(r"^([\w.-]+)==([^ ]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert {(one["name"], one["version"]) for one in components} == set(pinned), "run: make lock"


@each("changelog, found", [
    ("# Changelog\n\n## 1.2.3 (2026-11-30)\n\n## 1.2.2 (2026-11-01)\n", ("1.2.3", "2026-11-30")),
    ("## 1.2.3 (unreleased)\n", ("1.2.3", "unreleased")), ("## 1.2.3\n", None), ("## Unreleased\n", None),
])  # fmt: skip
def test_the_newest_change(changelog: str, found: tuple[str, str] | None) -> None:
    if found is not None:
        assert newest_change(changelog) == found
        return
    with pytest.raises(ReleaseError):
        newest_change(changelog)


def test_the_package_for_debian_has_daemons_units_and_files_and_two_builds_are_equal(
    wheel: Path, tmp_path: Path
) -> None:
    """Without the wheels of the dependencies, which come from a network: `make release` adds them."""
    built = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        built.append(package(wheel, tmp_path, tmp_path / name, "1700000000"))
    assert built[0].read_bytes() == built[1].read_bytes()
    fields = subprocess.check_output(["dpkg-deb", "--field", built[0]], text=True)
    assert f"Version: {__version__}\n" in fields
    major, minor = sys.version_info[:2]
    assert (
        f"Depends: python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1}), python3-venv, systemd, procps"
        in fields
    )
    subprocess.run(["dpkg-deb", "--raw-extract", built[0], tmp_path / "root"], check=True)
    root = tmp_path / "root"
    for unit in (root / "lib/systemd/system").iterdir():
        start, _, path = re.search(r"ExecStart=/(\S+) (-config) /(\S+)", unit.read_text()).groups()  # type: ignore[union-attr]
        assert (root / start).readlink().parent == Path("/usr/lib/penstock/current/bin")
        assert (root / path.replace("%i", "1")).is_file()
        assert f"/{path.replace('%i', '1')}\n" in (root / "DEBIAN/conffiles").read_text()
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {path.name for path in (root / "usr/bin").iterdir()} == set(PROGRAMS) <= set(scripts)
    assert [path.name for path in (root / "usr/lib/penstock/wheels").iterdir()] == [wheel.name]
    for script in ("postinst", "prerm", "postrm"):
        subprocess.run(["sh", "-n", root / "DEBIAN" / script], check=True)


def test_the_changelog_must_begin_with_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.release.__version__", "99.0")
    with pytest.raises(ReleaseError, match=r"penstock/__init__\.py has 99\.0"):
        release(tmp_path / "none")
    monkeypatch.undo()
    with pytest.raises(ReleaseError, match="exists: remove it first"):
        release(tmp_path)


def test_only_a_commit_is_released(tmp_path: Path) -> None:
    for command in ("init --quiet", "-c user.name=a -c user.email=a@b commit --quiet --allow-empty --message=a"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    require_committed(tmp_path)
    (tmp_path / "new.txt").touch()
    with pytest.raises(ReleaseError, match=r"new\.txt"):
        require_committed(tmp_path)


def test_two_top_level_names_with_the_rooms_inside(wheel: Path) -> None:
    files = set(zipfile.ZipFile(wheel).namelist())
    names = {name.split("/")[0] for name in files}
    assert {name for name in names if not name.endswith(".dist-info")} == {"penstock", "pyspark_nsq"}
    wanted = (
        "admin/templates/layout.html", "admin/static/nsqadmin.css", "nsqd/start/daemon.py", "lookupd/daemon.py",
        "apps/to_nsq.py", "shared/options.py", "nsqd/core/topic.py", "docs/troubleshooting/lost-node.md",
    )  # fmt: skip
    assert {f"penstock/_app/{path}" for path in wanted} <= files


def test_console_scripts_find_their_rooms(wheel: Path, tmp_path: Path) -> None:
    """Installed without its dependencies into an empty environment that borrows ours: no network is needed."""
    venv.create(tmp_path / "env", system_site_packages=False, symlinks=True)
    python = tmp_path / "env/bin/python"
    (site,) = (tmp_path / "env/lib").glob("python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    site_packages = next(path for path in sys.path if path.endswith("site-packages"))
    script = (
        f"import sys; sys.path.append({site_packages!r}); sys.argv = ['nsqd', '-version'];"
        "from penstock.launch import nsqd; nsqd()"
    )
    done = subprocess.run([python, "-I", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nsqd v1.3.0 (built w/python")
    where = "import sys, penstock, penstock.launch; print(penstock.__file__)"
    shown = subprocess.run([python, "-I", "-c", where], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) in shown


def test_make_lake_installs_what_the_readme_imports() -> None:
    (imported,) = re.findall(r"^import (\w+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert f"--editable '.[lake]' {imported}" in (ROOT / "Makefile").read_text()
