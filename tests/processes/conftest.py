"""The nsqd that the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemons import Daemon, nsqd


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Start one nsqd for all tests of a file, with the file's SHARED_FLAGS. Each test takes a topic of its own."""
    with nsqd(tmp_path_factory.mktemp("shared"), *getattr(request.module, "SHARED_FLAGS", ())) as daemon:
        yield daemon
