"""nsqjs, NSQ's client for Node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.contract import ClientContract
from tests.requirements import require

pytestmark = pytest.mark.process


class TestNsqjs(ClientContract):
    name = "nsqjs"
    command = ("node", str(Path(__file__).with_name("nsqjs") / "client.js"))

    @pytest.fixture(autouse=True)
    def _needs_node(self) -> None:
        require("node")
