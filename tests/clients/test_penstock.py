"""Penstock's own client, where it speaks of more than plain NSQ."""

import sys
from pathlib import Path

import pytest

from tests.clients.authorization import AuthContract
from tests.clients.upgrades import UpgradeContract

pytestmark = pytest.mark.process


class TestPenstockUpgrades(UpgradeContract, AuthContract):
    name = "penstock"
    command = (sys.executable, str(Path(__file__).with_name("penstock_client.py")))
