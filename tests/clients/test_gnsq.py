"""gnsq, the gevent client. In a process of its own: gevent patches the standard library for everybody in its process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clients.authorization import AuthContract
from tests.clients.contract import ClientContract
from tests.clients.upgrades import UpgradeContract

pytestmark = pytest.mark.process


COMMAND = (sys.executable, str(Path(__file__).with_name("gnsq_client.py")))


class TestGnsq(ClientContract):
    name = "gnsq"
    command = COMMAND


class TestGnsqUpgrades(UpgradeContract, AuthContract):
    name = "gnsq"
    command = COMMAND
