"""A node that starts tells of the logs that it has promoted before it has opened them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import httpx
import pytest

from nsqd.cluster.replication import early_led
from nsqd.cluster.replication.early import Early, EarlyReplicas
from nsqd.cluster.replication.early_led import EarlyLed
from nsqd.cluster.replication.offers import Offer, ask, find_offers
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.identity import read_identity
from tests.daemons import eventually
from tests.nsqd.storage.log.test_restore import start
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import NODE


def promoted(path: Path) -> tuple[bytes, Path]:
    """Put a log among the promoted ones of a data directory. Returns its id and its directory."""
    node = start(SimDisk(Random(1)))
    node.publish(3)
    node.log.close()
    identity = read_identity(node.disk)
    assert identity is not None
    directory = path / "promoted" / identity.log_id.hex() / "log"
    directory.mkdir(parents=True)
    for name in node.disk.names():
        (directory / name).write_bytes(node.disk.content(name))
    return identity.log_id, directory


def test_a_log_is_being_opened_until_it_was_read(tmp_path: Path) -> None:
    log_id, directory = promoted(tmp_path)
    (tmp_path / "promoted" / "other").mkdir()
    before = {one.name: one.read_bytes() for one in directory.iterdir()}
    led = EarlyLed(tmp_path)
    assert led.states() == [{"log_id": log_id.hex(), "opening": True}]
    assert find_offers("h:1", {"replicas": [], "led": led.states()}, log_id) is None
    assert find_offers("h:1", {"replicas": [], "led": led.states()}, bytes(16)) == []
    led.read_all(lambda: True)
    assert led.states()[0]["opening"]
    led.read_all(lambda: False)
    offers = find_offers("h:1", {"replicas": [], "led": led.states()}, log_id)
    assert offers is not None
    (offer,) = offers
    assert (offer.leader, offer.end > 0, len(offer.epochs)) == (NODE, True, 1)
    assert before == {one.name: one.read_bytes() for one in directory.iterdir()}


def test_a_log_that_cannot_be_read_stays_one_that_is_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, directory = promoted(tmp_path)
    (directory / "log.id").write_bytes((directory / "log.id").read_bytes()[:-1])
    segment = next(one for one in directory.iterdir() if one.name.endswith(".log"))
    segment.rename(directory / f"{999:020}.0.log")
    led = EarlyLed(tmp_path)
    led.read_all(lambda: False)
    assert led.states()[0]["opening"]
    assert "cannot read the promoted log" in caplog.text


@pytest.mark.process
def test_others_that_start_at_the_same_time_hear_of_it(tmp_path: Path) -> None:
    log_id, _ = promoted(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        with EarlyReplicas(Early(sock), tmp_path):
            found: list[Offer] = []
            eventually(lambda: found.extend(ask(log_id, address, 5.0) or []) or found)
            assert found[0].leader == NODE
            answers = [httpx.request(method, f"http://{address}/stats") for method in ("GET", "POST", "PUT", "DELETE")]
            assert [(answer.status_code, answer.json()) for answer in answers] == [(503, {"message": "STARTING"})] * 4


@pytest.mark.process
def test_the_thread_that_reads_ends_with_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    promoted(tmp_path)
    begun = threading.Event()

    def endless(disk: Disk, durable: int = 0, interrupt: Callable[[], None] = lambda: None) -> None:
        begun.set()
        while True:
            interrupt()

    monkeypatch.setattr(early_led, "LogReading", endless)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        with EarlyReplicas(Early(sock), tmp_path) as early:
            assert begun.wait(10)
        assert not early._reader.is_alive()
    assert early.led.states()[0]["opening"]
