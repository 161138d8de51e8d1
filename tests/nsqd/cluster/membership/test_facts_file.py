"""cluster.json while a node runs: a waiting reply leaves when it is durable, and a failed write is repeated."""

from pathlib import Path

import pytest
import trio

from nsqd.cluster.membership import facts_file
from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.cluster_json import read_facts, write_facts
from nsqd.cluster.membership.facts_file import FactsFile
from nsqd.cluster.wire.handshake import Credentials
from tests.nsqd.cluster.wire.identities import node
from tests.nsqd.core.node import SECOND


def a_cluster() -> Cluster:
    return Cluster(Credentials("c", b"a secret of 16 bytes", node(1)), [], 5 * SECOND, bytes)


async def kept(file: FactsFile) -> bool:
    """Return whether what is known now could be written."""
    reported, word = trio.open_memory_channel[bool](1)
    file.keep(reported.send_nowait)
    return await word.receive()


async def test_a_waiting_caller_is_called_when_the_known_facts_are_in_the_file(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    cluster, woken = a_cluster(), list[None]()
    file = FactsFile(cluster, tmp_path, lambda: woken.append(None))
    nursery.start_soon(file.run)
    cluster.leases[7] = 5000
    assert await kept(file)
    assert (7, 5000) in read_facts(tmp_path).leases
    assert await kept(file), "nothing is new"
    assert len(woken) == 2


async def test_a_disk_that_fails_is_reported_and_the_next_try_writes_the_facts(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OSError("no space")

    cluster = a_cluster()
    file = FactsFile(cluster, tmp_path, lambda: None)
    cluster.leases[7] = 5000
    monkeypatch.setattr(facts_file, "write_facts", failing)
    nursery.start_soon(file.run)
    assert not await kept(file)
    monkeypatch.setattr(facts_file, "write_facts", write_facts)
    assert await kept(file)
    assert (7, 5000) in read_facts(tmp_path).leases
