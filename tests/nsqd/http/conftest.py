"""One node for all tests of a file, which take topics of their own."""

import pytest

from tests.local_node import LocalNode


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest) -> LocalNode:
    """Return a node with the flags that the file calls FLAGS, if it does."""
    return LocalNode(*getattr(request.module, "FLAGS", ()))
