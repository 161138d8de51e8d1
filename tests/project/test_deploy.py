"""deploy/compose.yaml: no container can be built here, so each command is tried as a process, or read by what reads it."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

from docs.generate import DAEMONS, OPTIONS
from pipeline.command_line import parser
from shared.options import specs
from shared.print_config import example
from tests.cases import each
from tests.daemons import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def command(name: str) -> list[str]:
    return [str(word) for word in SERVICES[name]["command"]]


@pytest.mark.process
@pytest.mark.parametrize("name", ["nsqlookupd", "nsqd-1", "nsqd-2", "nsqadmin"])
def test_a_daemons_flags_are_its_own(name: str, tmp_path: Path) -> None:
    program, *flags = [word.replace("/data", str(tmp_path)) for word in command(name)]
    flags = [re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", flag) for flag in flags]
    check = [sys.executable, "-m", "penstock.launch", program, *flags, "-check-config"]
    done = subprocess.run(check, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr.lower()


def test_services_are_of_their_own_and_wait_for_those_that_are_there() -> None:
    nodes = [name for name in SERVICES if name.startswith("nsqd")]
    for flag in ("-node-id", "-broadcast-address"):
        assert len({word for name in nodes for word in command(name) if word.startswith(flag)}) == len(nodes)
    assert len({volume for name in nodes for volume in SERVICES[name]["volumes"]}) == len(nodes)
    assert {volume.split(":")[0] for one in SERVICES.values() for volume in one.get("volumes", [])} == set(
        COMPOSE["volumes"]
    )
    assert all(port.startswith("127.0.0.1:") for one in SERVICES.values() for port in one.get("ports", []))
    assert {name for one in SERVICES.values() for name in one.get("depends_on", [])} <= set(SERVICES)
    names = re.findall(
        r"(?:tcp-address=|lookupd=|spark://)([a-z-]+):", " ".join(word for name in SERVICES for word in command(name))
    )
    assert set(names) <= set(SERVICES)


def test_the_archive_is_a_job_of_the_pipeline() -> None:
    words = command("archive")
    assert words[0] == "/opt/spark/bin/spark-submit"
    assert (Path(pyspark.__file__).parent / "bin" / "spark-submit").exists()
    place = next(place for place, word in enumerate(words) if word.endswith("/pyspark_nsq/submit.py"))
    assert (ROOT / "pyspark_nsq" / "submit.py").exists()
    given = parser().parse_args(words[place + 1 :])
    assert (given.job, given.lookupd, given.topic_pattern) == ("archive", "nsqlookupd:4161", ".*")
    assert str(given.out).startswith(SERVICES["archive"]["volumes"][0].split(":")[1])


def test_master_workers_and_images_are_there() -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    assert list(jars.glob("spark-core_*.jar"))
    for name in ("spark-master", "spark-worker"):
        assert command(name)[0] == "spark-class"
    assert "spark://spark-master:7077" in command("spark-worker")
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    assert {one["build"]["target"] for one in SERVICES.values()} <= stages
    assert "USER penstock" in DOCKERFILE.split("AS daemons")[1].split("FROM")[0]


UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units, with an instance of the template, and with programs that exist."""
    found = []
    for unit in UNITS:
        text = unit.read_text().replace("/usr/bin/", f"{Path(sys.executable).parent}/")
        found.append(tmp_path / unit.name.replace("@", "@1"))
        found[-1].write_text(text)
    return found


@systemd
@pytest.mark.process
def test_systemd_understands_the_units_and_finds_little_exposure(units: list[Path]) -> None:
    for unit in units:
        verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
        assert (verified.returncode, verified.stderr) == (0, "")
        check = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", unit]  # in tenths
        assert subprocess.run(check, stdout=subprocess.DEVNULL).returncode == 0


@each("daemon", DAEMONS)
def test_an_example_of_a_config_file_has_every_option_with_its_default(daemon: str) -> None:
    path = ROOT / f"deploy/config/{daemon}.toml"
    assert path.read_text() == example(OPTIONS[daemon], daemon), "run: make reference"
    settings = re.sub(r"^#(?! )", "", path.read_text(), flags=re.MULTILINE)
    found = tomllib.loads(settings)
    assert found.keys() == {spec.key for spec in specs(OPTIONS[daemon], daemon) if spec.in_file}


@each("daemon", DAEMONS)
def test_a_unit_reads_the_config_file_of_its_daemon(daemon: str) -> None:
    unit = next(unit for unit in UNITS if unit.name.startswith(daemon)).read_text()
    flags = re.search(rf"^ExecStart=/usr/bin/{daemon} (.*)$", unit, re.MULTILINE)
    assert flags is not None
    known = {f"-{spec.flag}" for spec in specs(OPTIONS[daemon], daemon)}
    assert {word for word in flags[1].split() if word.startswith("-")} <= known
    assert "Type=notify" in unit
