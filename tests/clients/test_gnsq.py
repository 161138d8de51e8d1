"""gnsq, the gevent client. In a process of its own: gevent patches the standard library for everybody in its process."""

import sys
from pathlib import Path

import pytest

from tests.clients.authorization import AuthContract
from tests.clients.contract import ClientContract
from tests.clients.upgrades import UpgradeContract

pytestmark = pytest.mark.process


class TestGnsq(ClientContract, UpgradeContract, AuthContract):
    name = "gnsq"
    command = (sys.executable, str(Path(__file__).with_name("gnsq_client.py")))
