"""Run `penstock backup DIR`: copy the data directory of a running nsqd, as it was at one moment.

DIR must not exist. The command writes the copy to `DIR.partial`, syncs it, and renames it to DIR when it is complete. It leaves
out the logs that the node has promoted, and names them: --log copies one of them.
"""

import argparse
import json
import os
import re
import sys
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import httpx

from apps.node_client import add_address, open_client, why_refused
from shared.counted import counted
from shared.files import sync_directory
from shared.terminal.commands import CommandError, Commands, NoAnswer, make_command
from shared.terminal.context import START
from shared.tls.client import why_failed

NAMES = re.compile(r"nsqd\.dat|cluster\.json|log/log\.id|log/\d{20}\.\d{1,9}\.log")  # the only names that are unpacked
CHUNK = 1024 * 1024  # bytes


def add_command(commands: Commands) -> None:
    """Add the command `backup` to the parser."""
    what = "copy the data directory of a running nsqd, as it was at one moment"
    command = make_command(commands, "backup", run, what, examples="backup copy --nsqd-http-address 10.0.0.1:4151")
    command.add_argument(
        "directory", type=Path, metavar="DIR", help="directory to create; nsqd can be started with it as -data-path"
    )
    add_address(command)
    command.add_argument(
        "--log", metavar="ID", help="copy a log that the node has promoted, for penstock restore (default: its own log)"
    )
    command.add_argument("--json", action="store_true", help="print a JSON object with the number of files and bytes")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return 0. Raises CommandError if there is no backup."""
    target: Path = arguments.directory
    partial = partial_of(target)
    with open_client(arguments) as client:
        count, size, headers = fetch(client, arguments.nsqd_http_address, "/backup", arguments.log, partial)
    left_out = _left_out(headers)
    partial.rename(target)
    sync_directory(target.parent)
    for log_id, node in left_out.items():
        print(
            f"penstock backup: left out the log {log_id} of node {node}, which this node has promoted: back it up with"
            f" --log {log_id}",
            file=sys.stderr,
        )
    result = {"directory": str(target), "files": count, "bytes": size, "left_out": list(left_out)}
    text = f"copied {counted(count, 'file')}, {size} bytes to {target}; check the copy with: penstock verify {target}"
    print(json.dumps(result) if arguments.json else text)
    return 0


def partial_of(target: Path) -> Path:
    """Return the directory of an incomplete copy of `target`. Raises CommandError if one of the two exists."""
    partial = target.with_name(f"{target.name}.partial")
    if target.exists():
        raise CommandError(f"{target} exists: choose a new directory")
    if partial.exists():
        raise CommandError(f"{partial} exists: remove it, it is left from an interrupted copy")
    return partial


def fetch(
    client: httpx.Client, address: str, url: str, log: str | None, partial: Path
) -> tuple[int, int, httpx.Headers]:
    """Fetch a log, None: the node's own, to the directory `partial`.

    Returns the number of files and of bytes, and the headers. Raises CommandError.
    """
    try:
        with client.stream("GET", url, params={"log": log} if log else {}) as answer:
            if answer.status_code != 200:
                answer.read()
                raise CommandError(why_refused(answer, {}, address))
            partial.mkdir(parents=True, mode=0o700)
            return *unpack(answer, partial), answer.headers
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = f"cannot copy from nsqd at {address}: {why_failed(error)}"
        if not partial.exists():
            raise NoAnswer(f"{why}: {START}") from None
    except (OSError, tarfile.TarError) as error:
        why = f"cannot write the copy: {error}"
    raise CommandError(f"{why}; the incomplete copy is in {partial}" if partial.exists() else why)


def _left_out(headers: httpx.Headers) -> dict[str, str]:
    """Return the ids of the logs that are not in the backup, each with the number of the node that published into it."""
    entries = (entry.partition(":") for entry in headers.get("x-nsq-left-out", "").split(",") if entry)
    return {log_id: node for log_id, _, node in entries}


def unpack(answer: httpx.Response, target: Path) -> tuple[int, int]:
    """Unpack the tar stream into `target`, sync every file, and return the number of files and of bytes.

    Raises OSError or tarfile.TarError if the stream is incomplete or contains a file that no data directory has.
    """
    (target / "log").mkdir(mode=0o700)
    count = size = 0
    total = int(answer.headers.get("content-length", 0))
    stream = ChunkReader(answer.iter_raw(CHUNK), _progress(total))
    with tarfile.open(fileobj=cast("Any", stream), mode="r|") as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            if not NAMES.fullmatch(entry.name) or content is None:
                raise OSError(f"the backup has an unexpected file {entry.name!r}")
            with (target / entry.name).open("xb") as file:
                while chunk := content.read(CHUNK):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
                if file.tell() != entry.size:
                    raise OSError(f"the file {entry.name} ended early")
            count, size = count + 1, size + entry.size
    _finish(stream, total)
    sync_directory(target / "log")
    sync_directory(target)
    return count, size


class ChunkReader:
    """The body of a response as the file object that tarfile reads in its mode `r|`."""

    def __init__(self, chunks: Iterable[bytes], progress: Callable[[int], None] | None = None) -> None:
        """`chunks`: only the last may be empty. `progress` is called after each read with the number of bytes so far."""
        self.count = 0  # bytes that were read
        self._chunks = iter(chunks)
        self._held = b""
        self._progress = progress

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, or fewer at the end. Raises what the chunks raise."""
        while len(self._held) < size and (chunk := next(self._chunks, b"")):
            self._held += chunk
        part, self._held = self._held[:size], self._held[size:]
        self.count += len(part)
        if self._progress is not None:
            self._progress(self.count)
        return part


def _progress(total: int) -> Callable[[int], None] | None:
    """Return the function that prints the percentage of `total` bytes to the terminal; None without a terminal."""
    if not sys.stderr.isatty() or not total:
        return None
    return lambda count: print(f"\r{count * 100 // total} %", end="", file=sys.stderr, flush=True)


def _finish(stream: ChunkReader, total: int) -> None:
    """Read the rest of the stream. Raises OSError if fewer or more bytes came than Content-Length announced."""
    while stream.read(CHUNK):
        pass
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if stream.count != total:
        raise OSError("the response ended early")
