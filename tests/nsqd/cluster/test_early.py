"""A node visits others before it has read its log, and answers visitors: over TLS or not, to nodes of its cluster alone."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from apps.certificate_authority import Authority
from nsqd.cluster import early
from nsqd.cluster.early import EarlyLed, EarlyPort
from nsqd.cluster.replication.asking import NodeReplicas
from nsqd.cluster.replication.directory import ReplicaDirectory
from nsqd.cluster.replication.offers import MOST_FETCHED, Offer, TransferError, find_offers, pack_ask
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.handshake import Credentials, Handshake
from nsqd.cluster.wire.node_identity import NodeIdentity, visitor
from nsqd.cluster.wire.visit import Visits
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.identity import read_identity
from shared.tls.mutual import MutualCertificates, MutualTlsFiles
from tests.nsqd.cluster.replication.test_replica_to_log import known_log, replica_of
from tests.nsqd.cluster.wire.identities import node
from tests.nsqd.cluster.wire.test_handshake import SECRET, shaken, side
from tests.nsqd.storage.log.test_restore import start
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import NODE

LOG_ID = bytes(range(1, 17))


def promoted(path: Path) -> tuple[bytes, Path]:
    """Put a log among the promoted ones of a data directory. Returns its id and its directory."""
    node = start(SimDisk(Random(1)))
    node.publish(3)
    node.log.close()
    identity = read_identity(node.disk)
    directory = path / "promoted" / identity.log_id.hex() / "log"
    directory.mkdir(parents=True)
    for name in node.disk.names():
        (directory / name).write_bytes(node.disk.content(name))
    return identity.log_id, directory


def led_offers(led: EarlyLed, log_id: bytes) -> list[Offer] | None:
    return find_offers("h:1", {"replicas": [], "led": led.states(), "closed": []}, log_id)


def test_a_log_is_being_opened_until_it_was_read(tmp_path: Path) -> None:
    log_id, directory = promoted(tmp_path)
    (tmp_path / "promoted" / "other").mkdir()
    before = {one.name: one.read_bytes() for one in directory.iterdir()}
    led = EarlyLed(tmp_path)
    assert led.states() == [{"log_id": log_id.hex(), "opening": True}]
    assert led_offers(led, log_id) is None
    assert led_offers(led, bytes(16)) == []
    led.read_all(lambda: True)
    assert led.states()[0]["opening"]
    led.read_all(lambda: False)
    (offer,) = led_offers(led, log_id) or []
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


def visits(number: int, files: Path | None = None, secret: bytes = SECRET) -> Visits:
    """How node `number` visits; with `files`, over TLS with the certificates there."""
    tls = None
    if files is not None:
        names = f"node-{number}.pem", f"node-{number}-key.pem", "ca.pem"
        tls = MutualCertificates(MutualTlsFiles(*(str(files / name) for name in names)))
    return Visits(Credentials("c", secret, visitor(number, f"node{number}:4152")), tls)


@contextmanager
def starting(path: Path, files: Path | None = None) -> Iterator[str]:
    """Node 1, which starts. Yields the address of its cluster port."""
    with socket.create_server(("127.0.0.1", 0)) as sock, EarlyPort(sock, visits(1, files), path):
        yield f"127.0.0.1:{sock.getsockname()[1]}"


def asking(address: str, files: Path | None = None, secret: bytes = SECRET, number: int = 2) -> NodeReplicas:
    return NodeReplicas(visits(number, files, secret), {1: address}, 0.0)


def answers(replicas: NodeReplicas) -> bool:
    """Return whether the node answers; it has no replica of the log that is asked for."""
    assert replicas.ask(LOG_ID, Followers()) == []
    return not replicas.is_incomplete


@pytest.mark.process
def test_a_replica_is_fetched_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nsqd.cluster.replication import answers as answers_module

    disk, manifest = replica_of(known_log())
    target = ReplicaDirectory(tmp_path).open(manifest.log_id)
    for name in disk.names():
        file = target.create(name)
        file.append([disk.content(name)], 0)
        file.close()
    monkeypatch.setattr(answers_module, "MOST_FETCHED", 100)
    whole = b"".join(disk.content(file.name) for file in manifest.files)
    with starting(tmp_path) as address:
        replicas = asking(address)
        (offer,) = replicas.ask(manifest.log_id, Followers())
        pieces = list(replicas.fetch(offer, manifest.log_id, 0))
        assert len(pieces) > len(manifest.files)
        sent = b"".join(piece.data for piece in pieces)
        assert (sent, pieces[0].base) == (whole[: len(sent)], manifest.files[0].base)
        last = pieces[-1]
        assert last.base is not None
        assert last.base + last.offset + len(last.data) > offer.end
        middle = list(replicas.fetch(offer, manifest.log_id, offer.end - 10))
        assert [(len(piece.data), piece.segment) for piece in middle] == [(10, last.segment)]
        assert list(replicas.fetch(offer, manifest.log_id, offer.end + MOST_FETCHED)) == []
        with pytest.raises(TransferError, match="no replica"):
            list(replicas.fetch(offer, LOG_ID, 0))


@pytest.mark.process
def test_who_does_not_know_the_secret_is_not_answered(tmp_path: Path) -> None:
    with starting(tmp_path) as address:
        assert answers(asking(address))
        assert not answers(asking(address, secret=b"another secret of nodes"))
        with pytest.raises(TransferError, match="secrets"):
            list(asking(address, secret=b"another secret of nodes").fetch(Offer(address, 1, ()), LOG_ID, 0))


@pytest.mark.process
def test_with_certificates_only_nodes_that_present_one_are_answered(tmp_path: Path) -> None:
    files, other = tmp_path / "files", tmp_path / "other"
    for directory in (files, other):
        authority = Authority(directory, 10)
        authority.issue(1)
        authority.issue(2)
    with starting(tmp_path, files) as address:
        assert answers(asking(address, files))
        assert not answers(asking(address)), "in clear"
        assert not answers(asking(address, other)), "an authority of its own"
        (files / "node-3.pem").write_bytes((files / "node-2.pem").read_bytes())
        (files / "node-3-key.pem").write_bytes((files / "node-2-key.pem").read_bytes())
        with pytest.raises(TransferError, match="certificate is that of node 2"):
            list(asking(address, files, number=3).fetch(Offer(address, 1, ()), LOG_ID, 0))
    with starting(tmp_path) as address:
        assert not answers(asking(address, files)), "it has no TLS"


@pytest.mark.process
def test_a_node_that_has_its_log_is_refused_and_a_visitor_may_do_nothing_but_ask(tmp_path: Path) -> None:
    with starting(tmp_path) as address:
        stranger = Visits(Credentials("c", SECRET, node(2)), None)
        with pytest.raises(PeerError, match="has not read its log yet"), stranger.dial(address, 5.0):
            pass
        for frame in (encode(FrameKind.LEADERS), encode(FrameKind.FETCHED), pack_ask(bytes(15))):
            with visits(2).dial(address, 5.0) as visit, pytest.raises(PeerError):
                visit.ask(frame, FrameKind.OFFERS)
        with visits(2).dial(address, 5.0) as visit, pytest.raises(PeerError, match="before the reply"):
            visit.ask(pack_ask(LOG_ID) * 2, FrameKind.FETCHED)


@pytest.mark.process
def test_the_thread_that_reads_ends_with_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    promoted(tmp_path)
    begun = threading.Event()

    def endless(disk: Disk, durable: int = 0, interrupt: Callable[[], None] = lambda: None) -> None:
        begun.set()
        while True:
            interrupt()

    monkeypatch.setattr(early, "LogReading", endless)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        with EarlyPort(sock, visits(1), tmp_path) as port:
            assert begun.wait(10)
        assert not port._reader.is_alive()
    assert port.led.states()[0]["opening"]


def prove(own: NodeIdentity, other: NodeIdentity) -> Handshake:
    """Return the handshake of the node that was dialed, when it is done. Raises PeerError."""
    acceptor = side(other, False)
    shaken(side(own, True), acceptor)
    return acceptor


def test_on_a_visit_one_side_at_least_has_no_log() -> None:
    assert prove(visitor(1, "a:1"), visitor(2, "b:1")).is_visit
    assert prove(visitor(1, "a:1"), node(2)).is_visit
    assert not prove(node(1), node(2)).is_visit
    with pytest.raises(PeerError, match="has not read its log yet"):
        prove(node(1), visitor(2, "b:1"))
    with pytest.raises(PeerError, match="give each node a -node-id of its own"):
        prove(visitor(1, "a:1"), visitor(1, "b:1"))
