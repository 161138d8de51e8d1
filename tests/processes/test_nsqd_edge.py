"""A real nsqd at SIGHUP, and its zone and region in the answers of all daemons."""

import json
import signal
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.admin.conftest import nsqadmin
from tests.certificates import Authority
from tests.daemons import Daemon, nsqd, post, sized

pytestmark = pytest.mark.process


def get(daemon: Daemon, path: str) -> Any:
    return httpx.get(f"http://{daemon.http}{path}").json()


# SIGHUP


def test_sighup_takes_over_the_log_level(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.cfg"
    config.write_text('log_level = "info"\n')
    with nsqd(tmp_path, "-config", str(config)) as daemon:
        config.write_text('log_level = "debug"\n')
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_line("SIGHUP: log level debug")
        assert get(daemon, "/config/log_level") == 1
        config.write_text("log_level = 7\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_line("SIGHUP: cannot reload the configuration, nothing was changed: ")
        assert get(daemon, "/config/log_level") == 1


def serial(daemon: Daemon, name: str, context: ssl.SSLContext) -> bytes:
    """The certificate that one of the daemon's listeners shows, through IDENTIFY on TCP."""
    sock = daemon.connect(name)
    if name == "TCP":
        sock.sendall(b"  V2IDENTIFY\n" + sized(json.dumps({"feature_negotiation": True, "tls_v1": True}).encode()))
        assert b'"tls_v1":true' in sock.recv(4096)
    with context.wrap_socket(sock, server_hostname="localhost") as secure:
        certificate = secure.getpeercert(binary_form=True)
        assert certificate
        return certificate


def test_sighup_loads_certificates_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    flags = (*authority.flags(), "-https-address", "127.0.0.1:0")
    with nsqd(tmp_path / "data", *flags, listens=("TCP", "HTTP", "HTTPS")) as daemon:
        client = authority.client()
        before = {serial(daemon, name, client) for name in ("TCP", "HTTPS")}
        assert len(before) == 1
        authority.renew()
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_line("SIGHUP: reloaded the certificates")
        after = {serial(daemon, name, client) for name in ("TCP", "HTTPS")}
        assert len(after) == 1
        assert after != before
        Path(authority.key).write_text("no key")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_line("SIGHUP: cannot reload the certificates, the current ones stay in use: ")
        assert {serial(daemon, name, client) for name in ("TCP", "HTTPS")} == after


# topology


def test_zone_and_region_reach_every_answer_about_the_node(tmp_path: Path) -> None:
    where = {"topology_zone": "z1", "topology_region": "r"}
    flags = ("-topology-zone", "z1", "-topology-region", "r")
    with Daemon("nsqlookupd") as lookupd, nsqd(tmp_path / "1", *flags, "-lookupd-tcp-address", lookupd.tcp) as daemon:
        daemon.wait_for_line("connected, its HTTP API is at")
        post(daemon, "/topic/create", topic="t")
        with nsqadmin("-lookupd-http-address", lookupd.http) as admin:
            told = [
                get(daemon, "/info"),
                get(lookupd, "/lookup?topic=t")["producers"][0],
                get(lookupd, "/nodes")["producers"][0],
                get(lookupd, "/debug")["topic:t:"][0],
                get(admin, "/api/nodes")["nodes"][0],
            ]
    assert all(where.items() <= one.items() for one in told), told
