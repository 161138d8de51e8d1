"""nsqjs, NSQ's client for Node, runs unchanged against our daemons."""

from pathlib import Path

import pytest

from tests.clients.authorization import AuthContract
from tests.clients.contract import ClientContract
from tests.clients.upgrades import UpgradeContract
from tests.requirements import NODE_MODULES, require

pytestmark = pytest.mark.process


class TestNsqjs(ClientContract, UpgradeContract, AuthContract):
    name = "nsqjs"
    command = ("node", str(Path(__file__).with_name("nsqjs") / "client.js"))

    @pytest.fixture(autouse=True)
    def _needs_node(self) -> None:
        require("node")

    def bodies(self, compression: str) -> list[bytes]:
        if compression == "snappy" and not (NODE_MODULES / "snappystream").is_dir():
            pytest.skip("nsqjs has no snappy here: npm could not install snappystream, which is optional")
        return super().bodies(compression)
