"""Kill rounds of the lake: `python -m bench.crash.lake --rounds 30 --results FILE` counts what an archive lost or has twice.

A round is three nodes that are a cluster, a topic with two copies, a publisher, and an archive that follows it. The victim is
killed several times, and started again:

    driver      the archive, whose tasks run on Spark: its Python or its JVM
    worker      a Python worker of Spark, or the process that makes them
    node        a node, whose log gets another leader; it returns with a new log. A second archive begins after that
    commit      the archive, on Spark or not, after a commit to the table: before it sees the answer, or before the cursor moves
    compaction  `penstock pipeline compact`, while the archive follows

At the end the archive reads the rest, and Polars and pyarrow count: each acknowledged message once, each other one at most
once. The number of a round decides its kind and all moments. FILE gets a line of JSON for each round, and rounds that are
there are not run again.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from bench.background import in_background
from bench.crash.process import CrashError, Process
from bench.ports import lease_port
from bench.server import ROOT
from penstock import lake

HOST, TOPIC, LAKE = "127.0.0.1", "orders", "lake"
KINDS = ("driver", "worker", "node", "commit", "compaction")
NODES = 3
BATCH, PAUSE = 20, 0.01  # messages of a request, s between two
WAIT = 900.0  # s for whatever must happen: a busy machine starts Spark in minutes
_POLL = 0.02  # s
_LAUNCH = (sys.executable, "-m", "penstock.launch")


@dataclass(slots=True)
class Findings:
    """What Polars and pyarrow count in the table at the end of a round."""

    acknowledged: int
    unknown: int  # messages without an answer
    lost: int
    twice: int  # rows too many
    strangers: int  # rows that were not published


def judge(acknowledged: Iterable[str], unknown: Iterable[str], rows: Iterable[str]) -> Findings:
    """Compare the rows of a table with the publishes; bodies are unique."""
    acked, unsure, found = set(acknowledged), set(unknown), Counter(rows)
    return Findings(
        len(acked),
        len(unsure),
        len(acked - found.keys()),
        found.total() - len(found),
        len(found.keys() - acked - unsure),
    )


class Nodes:
    """The nodes of a cluster. Each has the same ports and the same directory whenever it starts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = [(lease_port(), lease_port(), lease_port()) for _ in range(NODES)]  # TCP, HTTP, cluster
        self._secret = directory / "secret"
        self._secret.write_text("a secret for the bench\n")
        self._processes: dict[int, Process] = {}

    @property
    def addresses(self) -> list[str]:
        """Return the HTTP address of each node, by its number."""
        return [f"{HOST}:{port}" for _, port, _ in self._ports]

    def start(self, node: int) -> None:
        """Start a node; it may not be ready yet."""
        tcp, web, cluster = self._ports[node]
        peers = [f"-cluster-peer={HOST}:{ports[2]}" for other, ports in enumerate(self._ports) if other != node]
        data = self._directory / f"node-{node}"
        data.mkdir(exist_ok=True)
        flags = (
            f"-node-id={node}", f"-data-path={data}", f"-cluster-secret-file={self._secret}", "-failover-quorum=majority",
            f"-tcp-address={HOST}:{tcp}", f"-http-address={HOST}:{web}", f"-cluster-address={HOST}:{cluster}", *peers,
        )  # fmt: skip
        self._processes[node] = Process(f"node {node}", (*_LAUNCH, "nsqd", *flags))

    def kill(self, node: int) -> None:
        """Kill a node by SIGKILL, and wait for its end."""
        self._processes[node].kill()

    def are_in_sync(self) -> bool:
        """Return True if all logs of all nodes have their copies."""
        for address in self.addresses:
            try:
                found = json.loads(request(address, "GET", "/cluster"))
            except (OSError, ValueError, http.client.HTTPException):
                return False
            if [one["state"] for one in found.get("followers", ())].count("in sync") < NODES - 1:
                return False
        return True

    def close(self) -> None:
        """Kill all nodes. Raises CrashError for a node that reported damage, or ended by itself."""
        for process in self._processes.values():
            with suppress(CrashError):
                process.close()
            if process.alarms:
                raise CrashError(f"{process.name}: {process.alarms[0]}")


def request(address: str, method: str, path: str, body: bytes = b"") -> bytes:
    """Return the answer of a node. Raises OSError, HTTPException."""
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"{address} answered {answer.status} to {path}")
    return content


@dataclass(slots=True)
class Publisher:
    """Publishes to the nodes by turns. Each body is sent once, so it is in the topic once, or not at all without an answer."""

    addresses: Sequence[str]
    acknowledged: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def run(self, is_over: threading.Event) -> None:
        number = 0
        while not is_over.wait(PAUSE):
            bodies = [f"message {one} {'.' * (one % 200)}" for one in range(number, number + BATCH)]
            address = self.addresses[number // BATCH % len(self.addresses)]
            number += BATCH
            try:
                request(address, "POST", f"/mpub?topic={TOPIC}", "\n".join(bodies).encode())
            except (OSError, http.client.HTTPException):
                self.unknown += bodies
            else:
                self.acknowledged += bodies


class Archive:
    """An archive in a session of processes of its own, which is started again when it has died."""

    def __init__(self, nodes: Nodes, place: Path, *, on_spark: bool) -> None:
        self._words = ("archive", "--nsqd", ",".join(nodes.addresses), "--topic", TOPIC, "--max-records", "2000")
        self._place = place
        self._spark = ("--master", "local[2]") if on_spark else ()
        self._log = (place / "archive.log").open("a")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *launch: str) -> None:
        """Start it, by another command than the usual one if one is given."""
        flags = (*self._words, "--lake", str(self._place / LAKE), *self._spark, "--every", "0.2", "--restarts", "1000")
        command = (*(launch or (*_LAUNCH, "penstock")), *flags)
        self._process = subprocess.Popen(command, cwd=ROOT, stderr=self._log, start_new_session=True)

    def ends(self) -> bool:
        """Return True if it has ended."""
        return self._process is None or self._process.poll() is not None

    def pids(self, pattern: str) -> list[int]:
        """Return the processes of its session whose command matches."""
        assert self._process is not None
        found = subprocess.run(
            ["pgrep", "-s", str(self._process.pid), "-f", pattern], stdout=subprocess.PIPE, text=True
        )
        return [int(line) for line in found.stdout.split()]

    def kill(self, pattern: str = "") -> None:
        """Kill the process itself, or all of its session that match."""
        assert self._process is not None
        for pid in self.pids(pattern) if pattern else [self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pattern:
            self._process.wait()

    def finish(self, lake: str) -> None:
        """Archive the rest without Spark, to a lake of that name. Raises CrashError."""
        words = (*self._words, "--lake", str(self._place / lake), "--once")
        for _ in range(5):
            done = subprocess.run((*_LAUNCH, "penstock", *words), cwd=ROOT, stderr=self._log)
            if not done.returncode:
                return
        raise CrashError(f"the archive does not end: {Path(self._log.name).read_text()[-500:]}")

    def close(self) -> None:
        """Kill the archive and all processes that it has started."""
        if self._process is not None:
            self.kill()
            self.kill(".")
        self._log.close()


class Round:
    """One round. The number decides everything that chance decides."""

    def __init__(self, number: int, place: Path, count: int) -> None:
        """Prepare a round with `count` kills; nothing is started yet."""
        self.kind, self._random, self._count = KINDS[number % len(KINDS)], Random(number), count
        self._place, self._lakes = place, (LAKE, "later") if self.kind == "node" else (LAKE,)
        self._nodes = Nodes(place)
        on_spark = self.kind in ("driver", "worker") or (self.kind == "commit" and self._random.random() < 0.5)
        self._archive = Archive(self._nodes, place, on_spark=on_spark)
        self._publisher = Publisher(self._nodes.addresses)
        self.kills: list[str] = []  # the victims, in order

    def run(self) -> Findings:
        """Run the round, and return what the table has. Raises CrashError if a step does not end."""
        with ExitStack() as stack:
            stack.callback(self._nodes.close)
            stack.callback(self._archive.close)
            for node in range(NODES):
                self._nodes.start(node)
            _until(self._nodes.are_in_sync, "the nodes are in sync")
            request(self._nodes.addresses[0], "POST", f"/topic/create?topic={TOPIC}&replicate=2&retention=1h")
            with in_background(self._publisher.run):
                _until(lambda: len(self._publisher.acknowledged) > 0, "a publish is acknowledged")
                self._start()
                for _ in range(self._count):
                    self._progress()
                    time.sleep(self._random.uniform(0, 1.5))
                    getattr(self, f"_kill_{self.kind}")()
                    if self._archive.ends():
                        self._start()
                self._progress()
            self._archive.kill()
            _until(self._nodes.are_in_sync, "the nodes are in sync again")
            for one in self._lakes:
                self._archive.finish(one)
        return self._judged()

    def _start(self) -> None:
        if self.kind == "commit":
            point, count = self._random.choice(("commit", "cursor")), self._random.randrange(1, 6)
            self.kills.append(f"{point} {count}")
            self._archive.start(sys.executable, "-m", "bench.crash.dying", point, str(count))
        else:
            self._archive.start()

    def _progress(self) -> None:
        """Wait until the table has another commit, or the archive has died by itself."""
        before = self._commits()
        _until(lambda: self._commits() > before or self._archive.ends(), "the table grows")

    def _commits(self) -> int:
        return len(list((self._place / LAKE / "messages" / "_delta_log").glob("*.json")))

    def _kill_driver(self) -> None:
        if self._random.random() < 0.5:
            self.kills.append("python")
            self._archive.kill()
        else:
            self.kills.append("jvm")
            self._archive.kill("SparkSubmit")

    def _kill_worker(self) -> None:
        _until(lambda: bool(self._archive.pids("pyspark[./]daemon")), "Spark has a worker")
        found = self._archive.pids("pyspark[./]daemon")
        self.kills.append(f"one of {len(found)} workers")
        with suppress(ProcessLookupError, IndexError):
            os.kill(self._random.choice(found), signal.SIGKILL)

    def _kill_node(self) -> None:
        node = self._random.randrange(NODES)
        self.kills.append(f"node {node}")
        self._nodes.kill(node)
        time.sleep(self._random.uniform(0, 8))
        self._nodes.start(node)
        _until(self._nodes.are_in_sync, "the node is back")

    def _kill_commit(self) -> None:
        _until(self._archive.ends, "the archive dies by itself")

    def _kill_compaction(self) -> None:
        ms = self._random.randrange(1, 400)
        command = (sys.executable, "-m", "bench.crash.dying", "compaction", str(ms), "compact", "--lake")
        done = subprocess.run((*command, str(self._place / LAKE)), cwd=ROOT, stderr=subprocess.DEVNULL)
        self.kills.append(f"compaction {ms} ms{'' if done.returncode < 0 else ': had ended'}")

    def _judged(self) -> Findings:
        """Count with Polars and with pyarrow, in each lake. Raises CrashError if they disagree."""
        known, found = (self._publisher.acknowledged, self._publisher.unknown), list[Findings]()
        for url in (str(self._place / name) for name in self._lakes):
            found.append(judge(*known, (body.decode() for body in lake.scan(url).collect()["body"])))
            found.append(
                judge(*known, (body.decode() for body in lake.arrow(url, columns=["body"])["body"].to_pylist()))
            )
        if found.count(found[0]) < len(found):
            raise CrashError(f"by Polars and by pyarrow there are {found}")
        return found[0]


def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not is_so():
        if time.monotonic() > deadline:
            raise CrashError(f"not within {WAIT:.0f} s: {what}")
        time.sleep(_POLL)


def main(arguments: Sequence[str]) -> int:
    """Run the rounds that the file lacks; return 1 if a message was lost, or is in a table twice."""
    parser = argparse.ArgumentParser(
        "bench.crash.lake", description="Count the messages that an archive loses or has twice over kills."
    )
    parser.add_argument("--rounds", type=int, default=30, help="number of rounds (30)")
    parser.add_argument("--first", type=int, default=0, help="number of the first round (0)")
    parser.add_argument("--kills", type=int, default=3, help="of each round (3)")
    parser.add_argument("--kind", choices=KINDS, help="only the rounds of this kind")
    parser.add_argument("--results", type=Path, required=True, help="file of JSON lines, which is continued")
    given = parser.parse_args(arguments)
    lines = given.results.read_text().splitlines() if given.results.exists() else []
    results = {one["round"]: one for one in map(json.loads, lines)}
    for number in range(given.first, given.first + given.rounds):
        kind = KINDS[number % len(KINDS)]
        if number in results or given.kind not in (None, kind):
            continue
        began, place = time.monotonic(), Path(mkdtemp(prefix="penstock-lake-"))
        played = Round(number, place, given.kills)
        try:
            found = asdict(played.run())
        except CrashError as error:
            print(f"round {number}, {kind}, after {played.kills}: {error}\nits files are in {place}", flush=True)
            return 1
        shutil.rmtree(place)
        result = {
            "round": number,
            "kind": kind,
            "kills": played.kills,
            "seconds": round(time.monotonic() - began, 1),
        } | found
        results[number] = result
        with given.results.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(json.dumps(result), flush=True)
    totals = {
        name: sum(one[name] for one in results.values()) for name in ("acknowledged", "lost", "twice", "strangers")
    }
    print(f"{len(results)} rounds: " + ", ".join(f"{count:,} {name}" for name, count in totals.items()))
    return 1 if totals["lost"] or totals["twice"] or totals["strangers"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
