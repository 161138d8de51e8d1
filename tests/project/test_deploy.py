"""deploy/compose.yaml: no container can be built here, so each command is tried as a process, or read by what reads it."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

from pipeline.command_line import parser
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
    assert given.lake.startswith(SERVICES["archive"]["volumes"][0].split(":")[1])


def test_master_workers_and_images_are_there() -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    assert list(jars.glob("spark-core_*.jar"))
    for name in ("spark-master", "spark-worker"):
        assert command(name)[0] == "spark-class"
    assert "spark://spark-master:7077" in command("spark-worker")
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    assert {one["build"]["target"] for one in SERVICES.values()} <= stages
    assert "USER penstock" in DOCKERFILE.split("AS daemons")[1].split("FROM")[0]
