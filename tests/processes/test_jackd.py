"""jackd, a client of beanstalkd for Node, unchanged on a real process, over a kill.

Except for pauseTube: this version of it sends no end of line, and waits indefinitely with any server.
"""

import base64
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.clients.node_client import NodeClient, Refused
from tests.processes.test_beanstalkd import Beanstalkd
from tests.requirements import require

pytestmark = pytest.mark.process


class Jackd(NodeClient):
    """A Node process that runs one client of jackd."""

    def __init__(self, address: tuple[str, int] | str) -> None:
        super().__init__("jackd")
        self.call("connect", {"host": address[0], "port": address[1]})

    def call(self, method: str, *arguments: object) -> Any:
        """Return the result of the promise. Raises Refused."""
        return self.send({"call": method, "args": arguments})

    def put(self, body: bytes, **options: int) -> str:
        return str(self.call("put", body.decode(), {"priority": 100, "delay": 0, "ttr": 60} | options))

    def job(self, method: str, *arguments: object) -> tuple[str, bytes]:
        result = self.call(method, *arguments)
        return result["id"], base64.b64decode(result["payload"])


def test_a_worker_in_node_over_a_kill(tmp_path: Path) -> None:
    require("node")
    long = ("\r\nschön\0" * 5000).encode()
    with Beanstalkd("-b", str(tmp_path), "-f0") as daemon, Jackd(daemon.address) as client:
        assert client.call("use", "work") == "work"
        assert client.call("watch", "work") == 2
        assert client.call("ignore", "default") == 1
        with pytest.raises(Refused, match="NOT_IGNORED"):
            client.call("ignore", "work")
        plain, urgent, late = client.put(b"plain"), client.put(long, priority=1), client.put(b"late", delay=1000)
        assert client.job("peekReady") == (urgent, long)
        assert client.job("peekDelayed") == (late, b"late")
        assert client.job("reserve") == (urgent, long)
        client.call("touch", urgent)
        client.call("bury", urgent, 7)
        assert client.job("peekBuried") == (urgent, long)
        assert client.job("reserveWithTimeout", 0) == (plain, b"plain")
        with pytest.raises(Refused, match="TIMED_OUT"):
            client.call("reserveWithTimeout", 0)
        client.call("release", plain, {"priority": 3, "delay": 900})
        with pytest.raises(Refused, match="NOT_FOUND"):
            client.call("delete", "12345678")
        assert "state: delayed" in client.call("statsJob", plain)
        assert "current-jobs-buried: 1" in client.call("statsTube", "work")
        assert "- work" in client.call("listTubes")
        daemon.stop(signal.SIGKILL)
    with Beanstalkd("-b", str(tmp_path), "-f0") as daemon, Jackd(daemon.address) as client:
        client.call("use", "work")
        client.call("watch", "work")
        assert "pri: 3" in client.call("statsJob", plain)
        assert client.call("kick", 10) == 1
        assert client.job("reserve") == (urgent, long)
        client.call("delete", urgent)
        client.call("kickJob", plain)
        assert client.job("reserveJob", late) == (late, b"late")
        assert client.job("reserve") == (plain, b"plain")
        client.call("delete", plain)
        client.call("delete", late)
        assert "current-jobs-ready: 0" in client.call("stats")
