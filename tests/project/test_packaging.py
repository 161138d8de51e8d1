"""The wheel: `penstock` and `pyspark_nsq` are its only top-level names, and the console scripts run from it."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.daemons import ROOT

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl")
    return built


def test_two_top_level_names_with_the_rooms_inside(wheel: Path) -> None:
    files = set(zipfile.ZipFile(wheel).namelist())
    names = {name.split("/")[0] for name in files}
    assert {name for name in names if not name.endswith(".dist-info")} == {"penstock", "pyspark_nsq"}
    wanted = (
        "admin/templates/layout.html", "admin/static/nsqadmin.css", "nsqd/start/daemon.py", "lookupd/daemon.py",
        "apps/to_nsq.py", "shared/options.py", "nsqd/core/topic.py",
    )  # fmt: skip
    assert {f"penstock/_app/{path}" for path in wanted} <= files


def test_console_scripts_find_their_rooms(wheel: Path, tmp_path: Path) -> None:
    """Installed without its dependencies into an empty environment that borrows ours: no network is needed."""
    venv.create(tmp_path / "env", system_site_packages=False, symlinks=True)
    python = tmp_path / "env/bin/python"
    (site,) = (tmp_path / "env/lib").glob("python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    base = next(path for path in sys.path if path.endswith("site-packages"))
    script = f"import sys; sys.path.append({base!r}); sys.argv = ['nsqd', '-version']; from penstock.launch import nsqd; nsqd()"
    done = subprocess.run([python, "-I", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nsqd v1.3.0 (built w/python")
    where = "import sys, penstock, penstock.launch; print(penstock.__file__)"
    shown = subprocess.run([python, "-I", "-c", where], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) in shown
