"""pynsq, NSQ's own Python client (tornado)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clients.contract import ClientContract

pytestmark = pytest.mark.process


class TestPynsq(ClientContract):
    name = "pynsq"
    command = (sys.executable, str(Path(__file__).with_name("pynsq_client.py")))
