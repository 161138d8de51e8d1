"""Tests of a file share a node, and each has a topic of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.daemons import Daemon, nsqd

_NUMBERS = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with nsqd(tmp_path_factory.mktemp("node"), "-retention=24h") as daemon:
        yield daemon


@pytest.fixture
def topic() -> str:
    return f"topic{next(_NUMBERS)}"
