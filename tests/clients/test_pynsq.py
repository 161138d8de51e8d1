"""pynsq, NSQ's own Python client (tornado)."""

import sys
from pathlib import Path

import pytest

from tests.clients.authorization import AuthContract
from tests.clients.contract import ClientContract
from tests.clients.upgrades import SMALL, UpgradeContract

pytestmark = pytest.mark.process


class TestPynsq(ClientContract, UpgradeContract, AuthContract):
    name = "pynsq"
    command = (sys.executable, str(Path(__file__).with_name("pynsq_client.py")))

    # When what one read brings decompresses to nothing, pynsq raises an OSError that today's tornado takes for the
    # end; with the original too. So its compressed messages are few and small.
    def bodies(self, compression: str) -> list[bytes]:
        return SMALL[:20] if compression else super().bodies(compression)

    # It does not hear a refusal of IDENTIFY, and connects again indefinitely.
    test_both_compressions_are_refused = None  # type: ignore[assignment]
