"""deploy: each command of compose.yaml is tried as a process, or read by what reads it. `make image-check` runs a container."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pyspark
import pytest
import yaml

from bench.ports import lease_port
from docs.dashboards import DASHBOARDS, recording_rules
from docs.flags_page import DAEMONS, OPTIONS
from docs.generate import GRAFANA
from pipeline.command_line import parser
from shared.options import specs
from shared.print_config import example
from tests.cases import each
from tests.daemons import ROOT, Daemon, eventually

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SINGLE: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "deploy" / "compose.single.yaml").read_text())["services"]
NODES = [name for name in SERVICES if name.startswith("nsqd")]
METRICS = ROOT / "docs/reference/metrics.md"
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def command(name: str) -> list[str]:
    return [str(word) for word in SERVICES[name]["command"]]


def get(node: Daemon, path: str) -> httpx.Response:
    return httpx.get(f"http://{node.http}{path}")


def post(node: Daemon, path: str, body: bytes = b"") -> httpx.Response:
    return httpx.post(f"http://{node.http}{path}", content=body)


def environment(name: str) -> dict[str, str]:
    return {key: str(value) for key, value in SERVICES[name].get("environment", {}).items()}


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """The files of the service `certificates`."""
    shell, flags, script = command("certificates")
    script = script.replace("/certificates", str(tmp_path))
    script = script.replace("penstock ", f"{sys.executable} -m penstock.launch penstock ", 1)
    subprocess.run([shell, flags, script], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return tmp_path


@pytest.mark.process
def test_the_nodes_are_a_cluster_that_keeps_copies(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each service's command and environment, with addresses of this machine in place of those of the containers."""
    places = {name: f"127.0.0.1:{lease_port()}" for name in NODES}

    def here(text: str, name: str) -> str:
        for other, place in places.items():
            text = text.replace(f"{other}:4154", place)
        text = text.replace("0.0.0.0:4154", places[name]).replace("/certificates", str(certificates))
        return text.replace("0.0.0.0:4150", "127.0.0.1:0").replace("0.0.0.0:4151", "127.0.0.1:0")

    with ExitStack() as stack:
        nodes = []
        for name in NODES:
            for key, value in environment(name).items():
                monkeypatch.setenv(key, here(value, name))
            monkeypatch.setenv("NSQD_DATA_PATH", str(certificates / name))
            monkeypatch.delenv("NSQD_LOOKUPD_TCP_ADDRESS")
            (certificates / name).mkdir()
            flags = [here(word, name) for word in command(name)[1:]]
            nodes.append(stack.enter_context(Daemon("nsqd", *flags)))
        eventually(lambda: all(get(node, "/readyz").status_code == 200 for node in nodes))
        assert post(nodes[0], "/topic/create?topic=orders&replicate=2").status_code == 200
        eventually(lambda: post(nodes[0], "/pub?topic=orders", b"x").status_code == 200)


@pytest.mark.process
@pytest.mark.parametrize("name", ["nsqlookupd-0", "nsqlookupd-1", "nsqadmin", "nsqd", "single nsqadmin"])
def test_a_daemons_options_are_its_own(name: str, tmp_path: Path) -> None:
    service = SINGLE[name.removeprefix("single ")] if name in ("nsqd", "single nsqadmin") else SERVICES[name]
    program, *flags = [str(word).replace("/data", str(tmp_path)) for word in service["command"]]
    own = {key: str(value) for key, value in service.get("environment", {}).items()}
    check = [sys.executable, "-m", "penstock.launch", program, *flags, "-check-config"]
    done = subprocess.run(check, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **own})
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr.lower()


def test_services_are_of_their_own_and_wait_for_services() -> None:
    for flag in ("-node-id", "-broadcast-address", "-cluster-tls-cert"):
        assert len({word for name in NODES for word in command(name) if word.startswith(flag)}) == len(NODES)
    assert len({SERVICES[name]["volumes"][0] for name in NODES}) == len(NODES)
    named = {volume.split(":")[0] for one in SERVICES.values() for volume in one.get("volumes", [])}
    assert {name for name in named if not name.startswith(".")} == set(COMPOSE["volumes"])
    assert all((ROOT / "deploy" / name).exists() for name in named if name.startswith("."))
    assert all(port.startswith("127.0.0.1:") for one in SERVICES.values() for port in one.get("ports", []))
    ports = [port for one in SERVICES.values() for port in one.get("ports", [])]
    assert len({port.split(":")[1] for port in ports}) == len(ports)
    assert {name for one in SERVICES.values() for name in one.get("depends_on", [])} <= set(SERVICES)
    words = " ".join(word for name in SERVICES for word in [*command_of(name), *environment(name).values()])
    assert set(re.findall(r"\b(nsq[a-z]+-\d|spark-master):\d+", words)) <= set(SERVICES)


def command_of(name: str) -> list[str]:
    return command(name) if "command" in SERVICES[name] else []


def test_prometheus_asks_the_services_by_the_names_of_jobs_that_rules_use() -> None:
    scraped = yaml.safe_load((ROOT / "deploy/prometheus.yaml").read_text())["scrape_configs"]
    targets = {
        one["job_name"]: {target.split(":")[0] for target in one["static_configs"][0]["targets"]} for one in scraped
    }
    lookupds = {name for name in SERVICES if name.startswith("nsqlookupd")}
    assert targets == {"nsqd": set(NODES), "nsqlookupd": lookupds, "nsqadmin": {"nsqadmin"}}


def test_dashboards_are_up_to_date_and_ask_for_what_is_there() -> None:
    """Every metric has the labels by which a query selects or adds."""
    known = {
        name: set(re.findall(r"`(\w+)`", labels)) | {"instance", "le", "job"}
        for name, labels in re.findall(r"^\| `(\w+)` \| \w+ \| ([^|]*) \|", METRICS.read_text(), re.MULTILINE)
    }
    known["up"] = {"job", "instance"}
    for dashboard in DASHBOARDS:
        assert (GRAFANA / f"{dashboard.name}.json").read_text() == dashboard.as_json(), "run: make reference"
        queries = [query for row in dashboard.rows for panel in row for query in panel.queries]
        asked = [*dashboard.variables.values(), *(query.expr for query in queries)]
        for expr in asked:
            names = re.findall(r"\b(?:nsq\w+|process_\w+|up)\b", re.sub(r'"[^"]*"', "", expr))
            assert names, expr
            labels = set(re.findall(r"(\w+)=~?\"", expr)) | set(
                re.findall(r"\w+", "".join(re.findall(r" by \(([^)]*)\)", expr)))
            )
            for name in names:
                assert labels <= known[re.sub(r"_bucket$", "", name)], (expr, name)
        for query in queries:
            shown = set(re.findall(r"{{(\w+)}}", query.legend))
            by = re.search(r"sum by \(([^)]*)\)", query.expr)
            if by is not None:
                assert shown <= set(re.findall(r"\w+", by[1])), query


def test_each_recorded_series_is_asked_for_and_the_other_way_round() -> None:
    queries = [query.expr for one in DASHBOARDS for row in one.rows for panel in row for query in panel.queries]
    asked = re.findall(r"\w+:\w+:\w+", " ".join(queries) + (ROOT / "deploy/alerts.yaml").read_text())
    recorded = [rule["record"] for group in yaml.safe_load(recording_rules())["groups"] for rule in group["rules"]]
    assert set(asked) == set(recorded)


def test_the_archive_is_a_job_of_the_pipeline() -> None:
    words = command("archive")
    assert words[0] == "/opt/spark/bin/spark-submit"
    assert (Path(pyspark.__file__).parent / "bin" / "spark-submit").exists()
    place = next(place for place, word in enumerate(words) if word.endswith("/pyspark_nsq/submit.py"))
    assert (ROOT / "pyspark_nsq" / "submit.py").exists()
    given = parser().parse_args(words[place + 1 :])
    assert (given.job, given.lookupd, given.topic_pattern) == ("archive", "nsqlookupd-0:4161", ".*")
    assert given.lake.startswith(SERVICES["archive"]["volumes"][0].split(":")[1])


def test_master_workers_and_images_are_there() -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    assert list(jars.glob("spark-core_*.jar"))
    for name in ("spark-master", "spark-worker"):
        assert command(name)[0] == "spark-class"
    assert "spark://spark-master:7077" in command("spark-worker")
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    assert {one["build"]["target"] for one in SERVICES.values() if "build" in one} <= stages
    assert "USER 10001" in DOCKERFILE.split("AS daemons")[1].split("FROM")[0]


@pytest.mark.process
def test_the_workflows_pass_their_linter() -> None:
    command = [str(Path(sys.executable).with_name("zizmor")), "--offline", "--no-progress", ".github/workflows"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


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
