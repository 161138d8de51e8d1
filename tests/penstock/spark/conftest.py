"""One Spark session for all tests that need one: a JVM takes seconds to start."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.session import prepare
from tests.daemons import ROOT, Daemon, nsqd
from tests.requirements import require

# A JVM that lives for seconds needs no second compiler, and its classes no verification, which is a quarter of its CPU.
QUICK_JVM = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    " -XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """local[2,2]: a task that fails is tried a second time."""
    require("java")
    from pyspark.sql import SparkSession

    base = tmp_path_factory.mktemp("spark")
    before = dict(os.environ)
    prepare()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    logging = (ROOT / "pipeline" / "log4j2.properties").as_uri()
    conf = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "512m",
        "spark.python.authenticate.socketTimeout": "2m", "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC", "spark.local.dir": str(base / "local"),
        "spark.sql.warehouse.dir": str(base / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Xss8m {QUICK_JVM} -Dlog4j2.configurationFile={logging}",
    }  # fmt: skip
    builder = SparkSession.builder.master("local[2,2]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    os.environ.clear()  # the JVM has it: other tests' processes must not
    os.environ.update(before)
    yield session
    session.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Daemon]:
    with nsqd(tmp_path / "node", "-retention", "1h", "-node-id", "7") as node:
        yield node
