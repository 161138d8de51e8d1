"""Two nodes in the test's process, and `penstock` for them."""

import pytest

from tests.admin.terminal.program import Terminal
from tests.local_node import LocalNode


@pytest.fixture
def nodes() -> list[LocalNode]:
    return [LocalNode("-node-id=0"), LocalNode("-node-id=1")]


@pytest.fixture
def terminal(
    nodes: list[LocalNode], monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Terminal:
    return Terminal(monkeypatch, capsysbinary, nodes)
