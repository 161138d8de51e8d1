"""One nsqlookupd and three nodes for all clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.clients.contract import Cluster
from tests.daemons import Daemon, nsqd


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd"))
        flags = ("-lookupd-tcp-address", lookupd.tcp, "-msg-timeout", "1s")  # gnsq cannot ask for another
        nodes = [stack.enter_context(nsqd(tmp_path_factory.mktemp(name), *flags)) for name in "abc"]
        yield Cluster(lookupd, nodes)
