"""Replicas that are read back: one is open at a time, it is read when that is needed, and dropped when no request comes."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nsqd.core.cluster_view import ReadableReplica
from nsqd.core.retention.history import OffsetRange, PastTopic
from nsqd.http import logs
from nsqd.http.logs import OWN, PROMOTED, REPLICA, ReplicaReader, find_topic
from shared.http.errors import HttpError
from tests.async_tests import on_asyncio

A, B = b"a" * 16, b"b" * 16


class Cluster:
    """The replicas of a node; each reading makes another object."""

    def __init__(self) -> None:
        self.replicas: dict[bytes, tuple[int, int]] = {A: (1, 10), B: (1, 10)}  # files and durable end
        self.read: list[bytes] = []  # logs in the order in which they were read
        self.hold: threading.Event | None = None  # readings wait for it
        self.is_broken = False

    def readable_replica(self, log_id: bytes) -> ReadableReplica:
        files, durable = self.replicas[log_id]

        def read() -> Any:
            self.read.append(log_id)
            if self.hold is not None:
                self.hold.wait()
            if self.is_broken:
                raise OSError("the disk is broken")
            return SimpleNamespace(log_id=log_id)

        return ReadableReplica(files, durable, read)


class Bridge:
    async def observe(self, function: Callable[[], Any]) -> Any:
        return function()


def replicas_of(cluster: Cluster | None) -> ReplicaReader:
    return ReplicaReader(cast(Any, SimpleNamespace(cluster=cluster, bridge=Bridge())))


@on_asyncio
async def test_a_replica_is_read_once_until_its_files_change_or_another_one_is_wanted() -> None:
    cluster = Cluster()
    replicas = replicas_of(cluster)
    first = await replicas.open(A.hex())
    assert await replicas.open(f"{A.hex()}-7") is first
    cluster.replicas[A] = (1, 20)
    assert await replicas.open(A.hex()) is first, "it is longer, and was read just now"
    cluster.replicas[A] = (2, 20)
    second = await replicas.open(A.hex())
    assert second is not first
    assert cluster.read == [A, A]
    await replicas.open(B.hex())
    assert await replicas.open(A.hex()) is not second, "one is open at a time"
    assert cluster.read == [A, A, B, A]


@on_asyncio
async def test_what_names_no_replica_is_not_read() -> None:
    cluster = Cluster()
    for log_id in ("", "x", A.hex()[:-1], A.hex().upper() + "-x", "c" * 32, f"{A.hex()}-", "\n" + A.hex()):
        assert await replicas_of(cluster).open(log_id) is None
    assert await replicas_of(None).open(A.hex()) is None
    assert cluster.read == []


@on_asyncio
async def test_it_is_dropped_when_no_request_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    replicas = replicas_of(cluster)
    monkeypatch.setattr(logs, "IDLE", 0.0)
    await replicas.open(A.hex())
    while replicas._opened is not None:  # the timer of the loop is due at once
        await asyncio.sleep(0)
    await replicas.open(A.hex())
    assert cluster.read == [A, A]


@on_asyncio
async def test_a_client_that_goes_away_leaves_no_second_reading_beside_its_own() -> None:
    cluster = Cluster()
    cluster.hold, replicas = threading.Event(), replicas_of(cluster)
    gone = asyncio.ensure_future(replicas.open(A.hex()))
    while not cluster.read:
        await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    other = asyncio.ensure_future(replicas.open(B.hex()))
    for _ in range(100):
        await asyncio.sleep(0)
    assert cluster.read == [A], "it waits until the first one is over"
    cluster.hold.set()
    found = await other
    assert found.log_id == B


@on_asyncio
async def test_a_replica_that_cannot_be_read_is_refused_and_tried_again() -> None:
    cluster = Cluster()
    replicas, cluster.is_broken = replicas_of(cluster), True
    with pytest.raises(HttpError) as refused:
        await replicas.open(A.hex())
    assert refused.value.status == 503
    cluster.is_broken = False
    assert await replicas.open(A.hex()) is not None


# a node that has returned with the log C, which continues A from offset 20 on, and has promoted the log B
C = b"c" * 16


class History:
    def __init__(self, log_id: bytes, first: int, following: int, parents: tuple[tuple[str, int], ...] = ()) -> None:
        self.log_id = log_id
        self._range = first, following, parents

    def window(self, topic: int) -> OffsetRange:
        first, following, parents = self._range
        return OffsetRange(f"{self.log_id.hex()}-{topic}", first, following, parents)


def broker_of(history: History, node: int, *promoted: Any) -> Any:
    topic = SimpleNamespace(number=7, ephemeral=False, cursors={})
    return SimpleNamespace(
        topics={"t": topic},
        logs=[None, *promoted],
        context=SimpleNamespace(history=history),
        ids=SimpleNamespace(node=node),
    )


def returned_node() -> Any:
    own = History(C, 20, 30, ((f"{A.hex()}-7", 25),))
    return SimpleNamespace(
        broker=broker_of(own, 3, broker_of(History(B, 0, 5), 9)),
        history=own,
        cluster=SimpleNamespace(is_opening=lambda log_id: log_id == b"o" * 16),
    )


def past_of(log_id: bytes) -> Any:
    past, topic = History(log_id, 0, 20), PastTopic(7, {})
    return SimpleNamespace(log_id=log_id, node=3, history=past, topic=lambda name: topic if name == "t" else None)


def found(log_id: str, offset: int = 0, replica: Any = None, start: int = 0) -> tuple[str, int, int]:
    one = find_topic(returned_node(), "t", log_id, offset, replica, start)
    return one.kind, one.origin, one.window.first


def refusal(log_id: str, offset: int = 0, replica: Any = None) -> tuple[int, str]:
    with pytest.raises(HttpError) as refused:
        found(log_id, offset, replica)
    return refused.value.status, str(refused.value)


def test_a_log_is_found_by_its_id_or_as_offsets_name_it() -> None:
    for log_id in ("", C.hex(), f"{C.hex()}-7"):
        assert found(log_id) == (OWN, 3, 20)
    for log_id in (B.hex(), f"{B.hex()}-7"):
        assert found(log_id) == (PROMOTED, 9, 0)
    assert refusal(f"{B.hex()}-8")[0] == refusal(f"{C.hex()}-8")[0] == 409
    assert (refusal("d" * 32)[0], refusal(("o" * 16).encode().hex())[0], refusal("x")[0]) == (404, 503, 409)


def test_of_a_log_that_the_node_had_before_the_replica_has_the_beginning_and_its_own_log_the_rest() -> None:
    old, replica = f"{A.hex()}-7", past_of(A)
    assert found(old, 24, None, 20) == (OWN, 3, 20)
    assert refusal(old, 26)[0] == 409, "the parent ends at 25"
    assert found(old, 24, replica, 5) == (REPLICA, 3, 0), "it begins to read where its own log has nothing"
    assert (found(old, 24, replica, 20), found(A.hex(), 0, replica)) == ((OWN, 3, 20), (REPLICA, 3, 0))
    assert found(A.hex(), 21, None, 21) == (OWN, 3, 20)


def test_a_replica_cannot_be_changed() -> None:
    one = find_topic(returned_node(), "t", "d" * 32, 0, past_of(bytes.fromhex("d" * 32)))
    assert one.kind == REPLICA
    with pytest.raises(HttpError) as refused:
        one.changeable()
    assert refused.value.status == 409
