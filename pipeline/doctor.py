"""`penstock pipeline doctor`: check what the daemons, archives and Spark require of this machine, and say how to meet it.

With --lake URL, as `penstock doctor --lake URL`, it also tries what an archive does there, in a table that it removes.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import resource
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator

from penstock.lake.location import Lake, LakeError, lake_at
from pipeline.session import OLDEST_JAVA, Missing, find_java

FILES = 1024  # open files that a daemon wants
DAEMONS, ARCHIVE, SPARK = "the daemons", "penstock archive", "Spark"
Check = tuple[bool, str]


def main() -> int:
    """Run `penstock doctor --lake URL`. Returns the exit code of `check`."""
    made = argparse.ArgumentParser(
        prog="penstock doctor", description="Try to write a lake, and check what that needs."
    )
    made.add_argument("--lake", required=True, metavar="URL", help="a directory, s3://, gs:// or az://")
    return check(made.parse_args().lake)


def check(url: str) -> int:
    """Print the checks, and return 1 if the daemons lack something, 2 if only archives or Spark do, otherwise 0.

    `url`: of a lake that is tried as well; "": none.
    """
    lacking = list[str]()
    for name, need, look in _CHECKS:
        good, detail = look()
        lacking += [] if good else [need]
        print(f"{'ok     ' if good else 'MISSING'} {name:9} {detail}")
    if url:
        for good, detail in _lake(url):
            lacking += [] if good else [ARCHIVE]
            print(f"{'ok     ' if good else 'FAILED '} lake      {detail}")
    for need in dict.fromkeys(lacking):
        print(f"{need} cannot run")
    return 1 if DAEMONS in lacking else 2 if lacking else 0


def _python() -> Check:
    return sys.version_info >= (3, 11), f"{sys.version.split()[0]}; Python 3.11 or later is required"


def _files() -> Check:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most >= FILES, f"limit of open files: {most}; raise it with ulimit -Hn for more connections"


def _java() -> Check:
    try:
        program, version = find_java()
    except Missing as missing:
        return False, str(missing)
    return version >= OLDEST_JAVA, f"{version}, {program}"


def _package(name: str, extra: str) -> Callable[[], Check]:
    def look() -> Check:
        try:
            return True, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return False, f"not installed: make {extra}, or: pip install 'penstock[{extra}]'"

    return look


def _lake(url: str) -> Iterator[Check]:
    """Try what an archive does, step by step, up to the first failure."""
    try:
        lake = lake_at(url)
        from deltalake.exceptions import DeltaError
    except (LakeError, ImportError) as error:
        yield False, str(error)
        return
    step = "write"
    try:
        for step in _steps(lake, f"penstock-doctor-{uuid.uuid4().hex}"):
            yield True, step
    except (DeltaError, OSError, ValueError, LakeError) as error:
        yield False, f"after {step}: {(str(error).splitlines() or [type(error).__name__])[0]}"


def _steps(lake: Lake, name: str) -> Iterator[str]:
    """Make a table with one file, and remove it. Yields what has worked."""
    from pyarrow.fs import FileSelector

    from penstock.lake.files import create, file_system

    system = file_system(lake, name)
    with create(lake, name, "probe/file") as file:
        file.write(b"x")
    yield "write a file"
    _commit_twice(lake, name)
    yield "refuse the second of two equal commits"
    found = [one.path for one in system.get_file_info(FileSelector("", recursive=True)) if one.is_file]
    if not any(path.endswith("probe/file") for path in found):
        raise LakeError("the file that was written is not listed")
    yield "list files"
    for path in found:
        system.delete_file(path)
    if lake.is_directory:
        shutil.rmtree(lake.table(name))
    yield "delete files"


def _commit_twice(lake: Lake, name: str) -> None:
    """Let two writers commit to one table. Raises LakeError unless the second one fails."""
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import CommitFailedError

    schema = Schema.from_arrow(pa.schema([("probe", pa.int64())]))
    DeltaTable.create(lake.table(name), schema)
    first, second = DeltaTable(lake.table(name)), DeltaTable(lake.table(name))
    properties = CommitProperties(max_commit_retries=0, app_transactions=[Transaction("probe", 1)])
    first.create_write_transaction([], "append", schema, commit_properties=properties)
    try:
        second.create_write_transaction([], "append", schema, commit_properties=properties)
    except CommitFailedError:
        return
    raise LakeError("two writers have made the same commit: the store puts a file over another one")


_CHECKS = (
    ("python", DAEMONS, _python),
    ("files", DAEMONS, _files),
    ("deltalake", ARCHIVE, _package("deltalake", "lake")),
    ("pyarrow", ARCHIVE, _package("pyarrow", "lake")),
    ("java", SPARK, _java),
    ("pyspark", SPARK, _package("pyspark", "spark")),
)
