"""`penstock pipeline doctor`: check what the daemons, archives and Spark require of this machine, and say how to meet it.

With --lake URL, as `penstock doctor --lake URL`, it also tries what an archive does there, in a table that it removes.
"""

from __future__ import annotations

import importlib.metadata
import resource
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError

from penstock.lake.location import Lake, LakeError, lake_at, one_line
from pipeline.session import OLDEST_JAVA, Missing, find_java
from shared.terminal.commands import Parser

FILES = 1024  # open files that a daemon wants
DAEMONS, ARCHIVE, SPARK = "the daemons", "penstock archive", "Spark"
ROUNDS, PATIENCE = 10, 60.0  # commits of each of two writers; s to wait for the other one
Check = tuple[bool, str]
STEPS = ("write a file", "refuse the second of two commits at a time", "list files", "delete files")  # of an archive


def main() -> int:
    """Run `penstock doctor --lake URL`. Returns the exit code of `check`."""
    made = Parser(prog="penstock doctor", description="Try to write a lake, and check what that needs.")
    made.add_argument("--lake", required=True, metavar="URL", help="a directory, s3://, gs:// or az://")
    return check(made.parse_args().lake)


def check(url: str | None) -> int:
    """Print the checks, and return 1 if the daemons lack something, 2 if only archives or Spark do, otherwise 0.

    `url`: of a lake that is tried as well; None: no lake is.
    """
    lacking = list[str]()
    for name, need, look in _CHECKS:
        good, detail = look()
        lacking += [] if good else [need]
        print(f"{'ok     ' if good else 'MISSING'} {name:9} {detail}")
    if url is not None:
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
    name = f"penstock-doctor-{uuid.uuid4().hex}"
    steps = _steps(lake, name)
    for step in STEPS:
        try:
            next(steps)
        except (DeltaError, OSError, ValueError, LakeError) as error:
            yield False, f"{step}: {one_line(error)}"
            with suppress(OSError):
                _remove(lake, name)
            return
        yield True, step


def _steps(lake: Lake, name: str) -> Iterator[None]:
    """Make a table with one file, and remove it. Yields after each of STEPS."""
    import pyarrow as pa
    from pyarrow.fs import FileSelector
    from pyarrow.parquet import write_table

    from penstock.lake.files import create, file_system

    system = file_system(lake, name)
    with create(lake, name, "probe/file") as file:
        write_table(pa.table({"probe": [1]}), file)  # not bytes: only Parquet files go through Delta's stores
    yield
    _commit_together(lake, name)
    yield
    found = [one.path for one in system.get_file_info(FileSelector("", recursive=True)) if one.is_file]
    if not any(path.endswith("probe/file") for path in found):
        raise LakeError("the file that was written is not listed")
    yield
    _remove(lake, name)
    yield


def _remove(lake: Lake, name: str) -> None:
    """Delete the files of a table, and its directory if there is one."""
    from pyarrow.fs import FileSelector

    from penstock.lake.files import file_system

    system = file_system(lake, name)
    for one in system.get_file_info(FileSelector("", recursive=True)):
        if one.is_file:
            system.delete_file(one.path)
    if lake.is_directory:
        shutil.rmtree(lake.table(name))


def _commit_together(lake: Lake, name: str) -> None:
    """Let two processes commit to one table at the same times. Raises LakeError if a commit was put over another one."""
    import pyarrow as pa
    from deltalake import DeltaTable, Schema

    url = lake.table(name)
    DeltaTable.create(url, Schema.from_arrow(pa.schema([("probe", pa.int64())])))
    context = get_context("spawn")
    with ProcessPoolExecutor(2, context, _meet, (context.Barrier(2),)) as pool:
        made = sum(pool.map(_commits, (url, url)))
    if made > DeltaTable(url).version():
        raise LakeError("two writers have made the same commit: the store puts a file over another one")


_meeting: list[Barrier] = []  # in each of the two processes


def _meet(barrier: Barrier) -> None:
    _meeting.append(barrier)


def _commits(url: str) -> int:
    """Commit ROUNDS times, together with the other process, and return how many commits were made. Raises LakeError."""
    from deltalake import CommitProperties, DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError

    (barrier,), made = _meeting, 0
    try:
        for _ in range(ROUNDS):
            table = DeltaTable(url)
            barrier.wait(PATIENCE)
            with suppress(CommitFailedError):
                table.create_write_transaction(
                    [], "append", table.schema(), commit_properties=CommitProperties(None, 0)
                )
                made += 1
    except (DeltaError, OSError, BrokenBarrierError) as error:
        barrier.abort()
        raise LakeError(one_line(error)) from None
    return made


_CHECKS = (
    ("python", DAEMONS, _python),
    ("files", DAEMONS, _files),
    ("deltalake", ARCHIVE, _package("deltalake", "lake")),
    ("pyarrow", ARCHIVE, _package("pyarrow", "lake")),
    ("java", SPARK, _java),
    ("pyspark", SPARK, _package("pyspark", "spark")),
)
