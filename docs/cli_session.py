"""A session at a terminal with the commands that need processes, sockets or a disk, for docs/reference/cli.md.

`python -m docs.cli_session` runs it on three nodes, and writes cli_session.txt. A test runs it again, and compares.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.shared.audit.test_chain import chain

ROOT = Path(__file__).parent.parent
TEXT = Path(__file__).with_name("cli_session.txt")
UP = "penstock up --nodes 3 --chaos --set failover-quorum=none"
USE, SET_UP, ARCHIVE, CLUSTER = "Use", "Set up", "Archive", "Clusters and lost nodes"
LINES = {  # command lines of bash, in one directory
    USE: """\
penstock pub orders '{"id": 17}' '{"id": 18}'
penstock sub orders mail -n 1
penstock sub orders mail --until-empty --json | cut -c 1-60
penstock put pictures 'resize 17' --ttr 300
penstock reserve pictures -n 1
penstock schedule add orders night 'close the day' --cron '0 3 * * *'
penstock schedule list
penstock pub pictures 'resize 7' --header batch=album-7
penstock batch close album-7
penstock batch list
penstock create audit; penstock config audit retention=24h
penstock pub audit 'user 17 logged in' --nsqd-http-address 127.0.0.1:4151
penstock read audit --cursor report --nsqd-http-address 127.0.0.1:4151
penstock cursors audit --nsqd-http-address 127.0.0.1:4151
penstock bench pub --count 1000 --topic load | head -2
""",
    SET_UP: """\
penstock context add local --lookupd-http-address 127.0.0.1:4161
penstock context list
penstock auth token create auth.toml billing --role consumer --topics orders
penstock auth can auth.toml billing consume orders mail
echo a-long-password | penstock users set auth.toml ann --role admin
penstock users list auth.toml
penstock backup copy --nsqd-http-address 127.0.0.1:4151
penstock verify copy | head -1
penstock restore copy data-4 --node 4
mkdir old; penstock import old
penstock completion bash | head -1
""",
    ARCHIVE: """\
penstock archive --nsqd 127.0.0.1:4151 --topic audit --lake lake --once
penstock pipeline rollup --lake lake
penstock doctor --lake lake | head -1
""",
    CLUSTER: """\
penstock cluster certs certs --nodes 3
penstock cluster wait --for whole
penstock cluster status | head -2
penstock chaos kill 2
penstock recover data-of-2 --node 2 --from 127.0.0.1:4151
penstock cluster promote --node 2 --nsqd-http-address 127.0.0.1:4151
penstock cluster forget --node 2 | head -1
penstock leave --nsqd-http-address 127.0.0.1:4251 | tail -1
penstock audit verify audit.jsonl
""",
}
PORTS = re.compile(r"\b127\.0\.0\.1:(\d{4,5})\b")
MOST_WIDTH, MOST_LINES = 130, 16  # of an output that is not cut
PATIENCE = 120  # s for a command
OFFSET = 20500  # added to every port, while the page is written


class Session:
    """Three nodes, and a directory of a user."""

    def __init__(self, directory: Path, offset: int) -> None:
        """`offset`: number that is added to every port."""
        self._directory, self._offset = directory, offset
        site = {"PYTHONPATH": str(ROOT), "PYTHON": sys.executable, "COLUMNS": str(MOST_WIDTH)}
        own = {name: str(directory / name.lower()) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")}
        self._environ = {**os.environ, **site, **own}
        (directory / "audit.jsonl").write_bytes(b"\n".join([*chain(6), b""]))

    @contextmanager
    def started(self) -> Iterator[str]:
        """Start the nodes. Yields what `penstock up` prints."""
        line = f"exec {UP} --port-offset {self._offset}".replace("penstock", '"$PYTHON" -P -m penstock.launch penstock')
        out = self._directory / "up.out"
        with out.open("w") as file:
            up = subprocess.Popen(["bash", "-c", line], cwd=self._directory, env=self._environ, stdout=file)
        try:
            while "Press Ctrl-C" not in out.read_text() and up.poll() is None:
                time.sleep(0.1)
            self.run("penstock cluster wait --for whole")
            yield self._shown(out.read_text())
        finally:
            up.terminate()
            up.wait(PATIENCE)

    def run(self, line: str) -> str:
        """Run a command line until it succeeds. Returns it with its output, standard error last, and an exit code above 0."""
        begin = 'penstock() { "$PYTHON" -P -m penstock.launch penstock "$@"; }; set -o pipefail;'
        moved = PORTS.sub(lambda found: f"127.0.0.1:{int(found[1]) + self._offset}", line)
        until = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run(
                ["bash", "-c", f"{begin} {moved}"], cwd=self._directory, env=self._environ, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False,
            )  # fmt: skip
            if not done.returncode or time.monotonic() > until:
                break
            time.sleep(1)  # a lost node is noticed after some seconds
        lines = self._shown(done.stdout + done.stderr).splitlines()
        if len(lines) > MOST_LINES:
            lines = [*lines[: MOST_LINES - 1], f"... ({len(lines) - MOST_LINES + 1} more)"]
        lines += [f"(exit code {done.returncode})"] if done.returncode else []
        printed = "".join(f"{one}\n" if len(one) <= MOST_WIDTH else f"{one[: MOST_WIDTH - 3]}...\n" for one in lines)
        return f"$ {line}\n{printed}"

    def _shown(self, output: str) -> str:
        """Return an output with the usual ports, and without the secrets and paths of this run."""
        output = PORTS.sub(lambda found: f"127.0.0.1:{int(found[1]) - self._offset}", output)
        output = re.sub(r"\bpst_[\w-]+", "pst_...", output).replace(f"{self._directory}/", "")
        return re.sub(r"\S*launch\.py penstock|\S*/bin/penstock", "penstock", output)


def written(offset: int = OFFSET) -> str:
    """Run the session, and return it: first UP, then for each part of LINES its name after a #, and its command lines."""
    with tempfile.TemporaryDirectory() as directory:
        session = Session(Path(directory), offset)
        with session.started() as up:
            parts = [f"$ {UP}\n{up}"]
            for name, lines in LINES.items():
                parts += [f"# {name}\n", *map(session.run, lines.splitlines())]
    return "\n".join(parts)


def shape(text: str) -> str:
    """Return a session without what differs each time: numbers, ids, and the width of columns."""
    return re.sub(" +", " ", re.sub(r"\d[\d,.]*", "0", re.sub(r"\b([0-9a-f]{8}|[0-9a-f]{12,})\b", "ID", text)))


if __name__ == "__main__":
    TEXT.write_text(written())
