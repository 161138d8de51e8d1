"""Benches are closed after the test that made them."""

from collections.abc import Iterator

import pytest

from tests.nsqd.net.bench import Bench


@pytest.fixture(autouse=True)
def close_benches() -> Iterator[None]:
    yield
    for bench in [*Bench.open]:
        bench.node.broker.check()
        bench.close()
