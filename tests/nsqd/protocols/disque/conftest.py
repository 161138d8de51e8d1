"""The client of a test of Disque's protocol."""

import pytest

from tests.nsqd.protocols.disque.wire import Wire, new_wire


@pytest.fixture
def wire() -> Wire:
    return new_wire()
