"""The client of a test of Disque's protocol."""

from collections.abc import Iterator

import pytest

from tests.nsqd.protocols.disque.wire import Wire, new_wire


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Make a client of a node of its own, and check the node when the test is over."""
    wire = new_wire()
    yield wire
    wire.check()
