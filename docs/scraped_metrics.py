"""The metrics of the daemons, as an nsqd and an nsqlookupd with one of everything answer GET /metrics."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from prometheus_client import generate_latest

from nsqd.http.figures import FigureRow
from nsqd.http.identities import identity_families
from nsqd.http.metrics import Families

ROOT = Path(__file__).parent.parent
START = 30.0  # s until a daemon answers


def metric_rows() -> dict[str, list[tuple[str, str, str, str]]]:
    """Return name, type, labels and meaning of each metric, by program, as cells of a table."""
    scraped = _scraped()
    scraped["nsqd"] += _identities()
    return {program: list(_families(text)) for program, text in scraped.items()}


def _identities() -> str:
    """Return the additional metrics of an nsqd with an auth file."""
    row = FigureRow(("name",), (0,) * 4, (0,) * 5)
    return generate_latest(Families(list(identity_families([row], None, "")))).decode()


# Labels of the metrics of which a new node has no series, by the end of the name.
_UNSEEN = {
    "nsqd_refused_total": "`reason`",
    "nsqd_client_errors_total": "`protocol`, `code`",
    "nsqlookupd_refused_total": "`reason`",
}
_UNSEEN |= {"_certificate_expiry_seconds": "`option`"}
_UNSEEN |= {f"_{name}": "`node`" for name in ("follower_behind_bytes", "follower_lag_seconds", "follower_in_sync")}
_UNSEEN |= {f"_{name}": "`node`" for name in ("replica_position_bytes", "replica_failed")}


def _families(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, labels and meaning of each metric, sorted by name."""
    meaning: dict[str, str] = {}
    kinds: dict[str, str] = {}
    labels: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, _, said = line[7:].partition(" ")
            meaning[name] = said
        elif line.startswith("# TYPE "):
            name, _, kinds[name] = line[7:].partition(" ")
        elif "{" in line:
            name, _, rest = line.partition("{")
            own = [pair.partition("=")[0] for pair in rest.partition("}")[0].split(",")]
            labels[name] = ", ".join(f"`{label}`" for label in own if label != "le")
    for name in sorted(meaning):
        shown = labels.get(name, next((label for end, label in _UNSEEN.items() if name.endswith(end)), ""))
        yield f"`{name}`", kinds[name], shown, meaning[name]


def _scraped() -> dict[str, str]:
    """Start an nsqlookupd and an nsqd with one of everything, and return what both answer on /metrics."""
    with tempfile.TemporaryDirectory() as directory:
        found = {}
        beside = Path(directory)
        for program, own in (
            (
                "nsqd",
                (
                    *("-data-path", directory, "-audit-file", str(beside / "audit")),
                    *("-otel-endpoint", "http://127.0.0.1:9"),
                    *("-e2e-processing-latency-percentile", "0.99"),
                ),
            ),
            ("nsqlookupd", ()),
        ):
            http = beside / f"{program}.http"
            command = [sys.executable, "-m", "penstock.launch", program, "-log-level", "error"]
            command += ["-tcp-address", str(beside / f"{program}.tcp"), "-http-address", str(http), *own]
            if program == "nsqd":
                command += ["-beanstalk-address", str(beside / "beanstalk")]
                (beside / "secret").write_text("the secret of a cluster")
                command += ["-node-id", "1", "-cluster-address", "127.0.0.1:0"]
                command += ["-cluster-secret-file", str(beside / "secret")]
            process = subprocess.Popen(command, cwd=ROOT)
            try:
                with httpx.Client(transport=httpx.HTTPTransport(uds=str(http)), base_url="http://localhost") as client:
                    _await(client)
                    if program == "nsqd":
                        _fill(client, beside / "beanstalk")
                    found[program] = client.get("/metrics").raise_for_status().text
            finally:
                process.terminate()
                process.wait(START)
        return found


def _await(client: httpx.Client) -> None:
    until = time.monotonic() + START
    while True:
        try:
            client.get("/ping").raise_for_status()
            return
        except httpx.TransportError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _fill(client: httpx.Client, beanstalk: Path) -> None:
    """Make a topic, a channel, a cursor and a tube."""

    client.post("/topic/create?topic=t&retention=1h").raise_for_status()
    client.post("/channel/create?topic=t&channel=c").raise_for_status()
    client.post("/topic/cursor?topic=t&name=n").raise_for_status()
    with socket.socket(socket.AF_UNIX) as worker:
        worker.connect(str(beanstalk))
        worker.sendall(b"use j\r\nput 0 0 60 1\r\nx\r\n")
        said = b""
        while b"INSERTED" not in said:
            said += worker.recv(1000)
