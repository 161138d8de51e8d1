"""The node of a test of the core."""

from collections.abc import Iterator

import pytest

from nsqd.core.limits import Limits
from tests.nsqd.core.node import Node


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """Make a node with the file's LIMITS, if it states some, and check its invariants when the test is over."""
    node = Node(getattr(request.module, "LIMITS", Limits()))
    yield node
    node.broker.check()
