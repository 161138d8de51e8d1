import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench import ports

pytestmark = pytest.mark.process

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_leased_port_is_not_one_of_connections() -> None:
    first = int(RANGE.read_text().split()[0]) if RANGE.exists() else 1 << 15
    assert first >= ports.END + ports.BUS
    port = ports.lease_port()
    assert ports.FIRST <= port < ports.END


def test_neither_a_leased_port_nor_one_in_use_is_leased_again() -> None:
    leased = ports.lease_port()
    ask = (
        "from itertools import count; from bench import ports;"
        f"draws = count({leased}); ports.random.randrange = lambda *_: next(draws); print(ports.lease_port())"
    )
    with socket.create_server(("127.0.0.1", leased + 1 + ports.BUS)):
        found = subprocess.run([sys.executable, "-c", ask], capture_output=True, check=True, text=True)
    assert int(found.stdout) > leased + 1
