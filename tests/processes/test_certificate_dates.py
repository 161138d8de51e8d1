"""Certificates that expire soon: the logs and metrics of all daemons, nsqadmin's alarm, and a reload that ends it."""

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import trustme

from tests.admin.conftest import nsqadmin
from tests.daemons import Daemon, eventually, nsqd

pytestmark = pytest.mark.process

PROGRAMS = ("nsqd", "nsqlookupd", "nsqadmin")


def issue(directory: Path, begins: float, ends: float) -> tuple[str, ...]:
    """Write a certificate that begins and ends these numbers of days from now, and its key. Returns the flags."""
    authority, now = trustme.CA(), datetime.now(UTC)
    leaf = authority.issue_cert(
        "localhost", "127.0.0.1", not_before=now + timedelta(days=begins), not_after=now + timedelta(days=ends)
    )
    paths = [str(directory / name) for name in ("cert.pem", "key.pem")]
    Path(paths[0]).write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(paths[1])
    return "-tls-cert", paths[0], "-tls-key", paths[1]


def metric(daemon: Daemon, program: str) -> float | None:
    """The days that the daemon's certificate is valid for, by its metric."""
    text = httpx.get(f"http://{daemon.http}/metrics", timeout=20).text
    name = f'{program}_certificate_expiry_seconds{{option="tls-cert"}} '
    return next((float(line.removeprefix(name)) / 86400 for line in text.splitlines() if line.startswith(name)), None)


def test_a_running_daemon_warns_has_a_metric_and_nsqadmin_an_alarm(tmp_path: Path) -> None:
    flags = (*issue(tmp_path, -20, 1.5), "-https-address", "127.0.0.1:0")
    with (
        Daemon("nsqlookupd", *flags) as lookupd,
        nsqd(tmp_path / "data", "-lookupd-tcp-address", lookupd.tcp, *flags) as node,
        nsqadmin("-lookupd-http-address", lookupd.http, "-alarm-interval", "1s", *flags) as admin,
    ):
        for daemon, program in zip((node, lookupd, admin), PROGRAMS, strict=True):
            daemon.wait_for_line("TLS: --tls-cert")
            days = metric(daemon, program)
            assert days is not None, program
            assert 1 < days < 1.5
        assert "certificates" in httpx.get(f"http://{lookupd.http}/info").json()

        def raised() -> set[tuple[str, str]]:
            found = httpx.get(f"http://{admin.http}/api/alarms", timeout=20).json()["alarms"]
            return {(one["subject"], one["severity"]) for one in found if one["rule"] == "certificate-expiring"}

        eventually(
            lambda: raised() == {(f"{node.http}: tls-cert", "critical"), ("nsqadmin: tls-cert", "critical")}, 300
        )
        page = httpx.get(f"http://{admin.http}/nodes/{node.http}", timeout=20).text
        assert "Certificate expires</a> for <time" in page
        issue(tmp_path, -1, 40)
        for daemon, program in zip((node, lookupd, admin), PROGRAMS, strict=True):
            daemon.process.send_signal(signal.SIGHUP)
            eventually(lambda daemon=daemon, program=program: (metric(daemon, program) or 0) > 39)  # type: ignore[misc]
        eventually(lambda: raised() == set(), 300)
