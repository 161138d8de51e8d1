"""One nsqlookupd and three nodes for all clients, a node with a certificate, and one that wants AUTH."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.certificates import Authority
from tests.clients.authorization import Guarded, guarded_node
from tests.clients.contract import MSG_TIMEOUT, Cluster
from tests.clients.upgrades import Secure
from tests.daemons import Daemon, nsqd


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd"))
        flags = ("-lookupd-tcp-address", lookupd.tcp, "-msg-timeout", f"{MSG_TIMEOUT}s")  # gnsq cannot ask for another
        nodes = [stack.enter_context(nsqd(tmp_path_factory.mktemp(name), *flags)) for name in "abc"]
        yield Cluster(lookupd, nodes)


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    https = ("-https-address", "127.0.0.1:0")
    with nsqd(tmp_path_factory.mktemp("secure"), *authority.flags(), *https) as node:
        yield Secure(node, authority)


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_node(tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded
