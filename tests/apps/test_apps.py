"""The blocking client, nsq_tail and to_nsq, against a small honest nsqd in threads of this process."""

import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from struct import pack, unpack
from typing import Any, BinaryIO

import pytest

from apps import nsq_tail, passthrough, to_nsq
from penstock.client import ConnectionLost, Consumer, Producer, PublishError
from penstock.client.connection import Connection
from penstock.client.dial import Dialing, targets_of
from shared.log import _LIBRARIES, log
from tests import forkserver
from tests.cases import each
from tests.daemons import ROOT
from tests.forkserver import LAUNCH

BODY_LIMIT = 100_000


class FakeNsqd:
    """One queue for all topics, one window per consumer. It notes every command, and refuses those in `refuse`."""

    def __init__(self, listener: socket.socket | None = None) -> None:
        self.listener = listener or socket.create_server(("127.0.0.1", 0))
        self.lock = threading.RLock()
        self.commands: list[bytes] = []  # the lines, in the order read
        self.published: list[tuple[bytes, bytes]] = []  # topic, body
        self.queue: list[bytes] = []  # bodies to deliver
        self.finished: list[bytes] = []  # bodies
        self.refuse: dict[bytes, bytes] = {}  # command word -> error text sent instead of an answer
        self.attempts = 1  # of every delivery
        self.peers: list[Peer] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        name = self.listener.getsockname()
        return name if isinstance(name, str) else f"{name[0]}:{name[1]}"

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed: the test is over
            while True:
                peer = Peer(self, self.listener.accept()[0])
                self.peers.append(peer)
                threading.Thread(target=peer.serve, daemon=True).start()

    def verbs(self) -> list[bytes]:
        with self.lock:
            return [line.split()[0] for line in self.commands]

    def deliver(self, *bodies: bytes) -> None:
        with self.lock:
            self.queue += bodies
            for peer in self.peers:
                peer.push()

    def hang_up(self) -> None:
        for peer in self.peers:
            peer.hang_up()

    def close(self) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept; close alone does not
        self.listener.close()
        self.hang_up()


class Peer:
    def __init__(self, nsqd: FakeNsqd, sock: socket.socket) -> None:
        self.nsqd, self.sock = nsqd, sock
        self.rdy = 0
        self.in_flight: dict[bytes, bytes] = {}
        self.count = 0

    def send(self, kind: int, data: bytes) -> None:
        with suppress(OSError):
            self.sock.sendall(pack(">ii", 4 + len(data), kind) + data)

    def hang_up(self) -> None:
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def push(self) -> None:
        with self.nsqd.lock:
            while self.nsqd.queue and len(self.in_flight) < self.rdy:
                self.count += 1
                id = b"%016x" % self.count
                body = self.in_flight[id] = self.nsqd.queue.pop(0)
                self.send(2, pack(">qH16s", 1, self.nsqd.attempts, id) + body)

    def serve(self) -> None:
        with self.sock, self.sock.makefile("rb") as file:
            with suppress(OSError):
                assert file.read(4) in (b"  V2", b"")  # b"": a client that was closed while it connected
                while (line := file.readline()) and self.take(line.strip(), file):
                    self.push()
            with self.nsqd.lock:  # unlike NSQ, so that no test waits for the timeout
                self.rdy = 0
                self.nsqd.deliver(*self.in_flight.values())
                self.in_flight.clear()

    def take(self, line: bytes, file: BinaryIO) -> bool:
        """Execute a command. Return whether the connection stays."""
        verb, *arguments = line.split()
        body = file.read(unpack(">i", file.read(4))[0]) if verb in (b"IDENTIFY", b"PUB", b"MPUB") else b""
        with self.nsqd.lock:
            self.nsqd.commands.append(line)
            error = self.nsqd.refuse.get(verb) or (b"E_BAD_MESSAGE too big" if len(body) > BODY_LIMIT else b"")
            match verb:
                case _ if error:
                    self.send(1, error)
                case b"IDENTIFY":
                    assert json.loads(body)["feature_negotiation"] is True
                    self.send(0, b'{"max_rdy_count":2500}')
                case b"PUB":
                    self.nsqd.published.append((arguments[0], body))
                case b"MPUB":
                    at = 4
                    for _ in range(unpack(">i", body[:4])[0]):
                        size = unpack(">i", body[at : at + 4])[0]
                        self.nsqd.published.append((arguments[0], body[at + 4 : at + 4 + size]))
                        at += 4 + size
                case b"RDY":
                    self.rdy = int(arguments[0])
                case b"FIN":
                    self.nsqd.finished.append(self.in_flight.pop(arguments[0]))
                case b"REQ":
                    self.nsqd.queue.append(self.in_flight.pop(arguments[0]))
                case b"TOUCH":
                    assert arguments[0] in self.in_flight
                case b"CLS":
                    self.rdy = 0
                    self.send(0, b"CLOSE_WAIT")
            if not error and verb in (b"SUB", b"PUB", b"MPUB"):
                self.send(0, b"OK")
        return not error


@pytest.fixture
def nsqd() -> Iterator[FakeNsqd]:
    with closing(FakeNsqd()) as fake:
        yield fake


@pytest.fixture
def second() -> Iterator[FakeNsqd]:
    with closing(FakeNsqd()) as fake:
        yield fake


# ---- producer


@pytest.mark.process
@each("address", ["127.0.0.1:0", "h" * 70 + ":1", "h\0h:1", "/h\0h"])
def test_an_address_that_cannot_be_one_is_just_not_reached(address: str) -> None:
    with pytest.raises(ConnectionLost, match="cannot connect to"):
        Connection.open(address, 1.0, 1.0)
    with pytest.raises(OSError):
        Dialing(address, targets_of(address, 1.0), 1.0)


@pytest.mark.process
def test_publishes_and_refusals_after_which_the_producer_goes_on(nsqd: FakeNsqd) -> None:
    with Producer(nsqd.address) as producer:
        producer.publish("t", b"one")
        producer.publish_many("t", [b"two", b"three"])
        producer.publish_many("t", [])
        with pytest.raises(PublishError, match=f"{nsqd.address}: E_BAD_MESSAGE too big") as error:
            producer.publish("t", b"x" * (BODY_LIMIT + 1))
        assert error.value.code == "E_BAD_MESSAGE"
        producer.publish("t", b"four")
        assert nsqd.published == [(b"t", body) for body in (b"one", b"two", b"three", b"four")]
        nsqd.hang_up()
        select.select([producer], [], [], 5)  # until the end has arrived
        producer.publish("t", b"five")
        assert nsqd.published[-1] == (b"t", b"five")
    nsqd.refuse[b"MPUB"] = b"E_MPUB_FAILED MPUB failed exiting"
    producer = Producer(nsqd.address)

    def submit_many() -> None:
        for _ in range(100):
            producer.submit("t", [b"a", b"b"])

    with pytest.raises(PublishError, match="E_MPUB_FAILED MPUB failed exiting"):  # they fail as one
        submit_many()


@pytest.mark.process
def test_the_next_address_is_tried(nsqd: FakeNsqd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"127.0.0.1:{listener.getsockname()[1]}"
    with Producer([closed, nsqd.address]) as producer:
        producer.publish("t", b"x")
        assert nsqd.published == [(b"t", b"x")]
    with pytest.raises(PublishError, match=f"cannot connect to {closed}: Connection refused"):
        Producer(closed).publish("t", b"x")


# ---- consumer


@pytest.mark.process
def test_messages_from_two_nsqds_are_finished_in_batches(nsqd: FakeNsqd, second: FakeNsqd) -> None:
    nsqd.deliver(*[b"a%d" % i for i in range(50)])
    second.deliver(*[b"b%d" % i for i in range(50)])
    seen = []
    with Consumer("t", "c", [nsqd.address, second.address], max_in_flight=20) as consumer:
        for message in consumer:
            seen.append(message.body)
            message.touch()
            message.finish()
            message.requeue(0)  # too late: the first answer counts
            if len(seen) == 100:
                consumer.stop()
    assert sorted(seen) == sorted(nsqd.finished + second.finished)
    assert len(set(seen)) == 100
    assert b"RDY 10" in nsqd.commands
    assert b"RDY 10" in second.commands


@pytest.mark.process
def test_a_lost_nsqd_is_connected_again(nsqd: FakeNsqd) -> None:
    nsqd.deliver(b"1")
    with Consumer("t", "c", [nsqd.address]) as consumer:
        next(consumer).finish()
        consumer.flush()
        while not nsqd.finished:
            threading.Event().wait(0.001)
        nsqd.hang_up()
        nsqd.deliver(b"2")
        again = next(consumer)
        assert again.body == b"2"
        again.finish()
    assert nsqd.verbs().count(b"SUB") == 2


@pytest.mark.process
def test_what_was_not_handed_out_goes_back_at_close_and_poll_returns_in_time(nsqd: FakeNsqd) -> None:
    with Consumer("t", "c", [nsqd.address]) as consumer:
        assert consumer.poll(0) == []
    for arguments in (("t b", "c", ["h:1"]), ("t", "", ["h:1"]), ("t", "c"), ("t", "c", ["h"])):
        with pytest.raises(ValueError):
            Consumer(*arguments)

    nsqd.deliver(b"1", b"2", b"3")
    with Consumer("t", "c", [nsqd.address]) as consumer:
        first = next(consumer)
        first.finish()
    assert nsqd.finished == [b"1"]
    assert sorted(nsqd.queue) == [b"2", b"3"]


@pytest.mark.process
def test_nsqds_that_do_not_answer_keep_no_message_waiting(nsqd: FakeNsqd) -> None:
    nsqd.deliver(b"one")
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):  # fill its queue: the kernel answers no more of them
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(silent.getsockname())
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        consumer = stack.enter_context(Consumer("t", "c", [address, nsqd.address]))
        message = next(consumer)
        (dialing,) = consumer._links._dialings
        assert dialing.address == address
        message.finish()
        dialing.until = 0
        while consumer._links._dialings:  # until it is given up
            assert consumer.poll(0.05) == []
        assert address in consumer._links.core._dials


# ---- nsq_tail


def tail(nsqd: FakeNsqd, n: int, **more: object) -> bytes:
    options = nsq_tail.Options(topic=("t",), channel="c", nsqd_tcp_address=(nsqd.address,), n=n, **more)  # type: ignore[arg-type]
    reader, writer = os.pipe()
    with open(reader, "rb") as printed:
        assert nsq_tail.run(options, writer) == 0
        os.close(writer)
        return printed.read()


@pytest.mark.process
def test_tail_finishes_all_that_it_printed_and_nothing_else(nsqd: FakeNsqd) -> None:
    nsqd.deliver(*[b"%d" % i for i in range(10)])
    assert tail(nsqd, 4) == b"0\n1\n2\n3\n"
    assert nsqd.finished == [b"0", b"1", b"2", b"3"]
    assert sorted(nsqd.queue) == [b"%d" % i for i in range(4, 10)]
    nsqd.queue.clear()
    nsqd.deliver(b"x")
    assert tail(nsqd, 1, print_topic=True) == b"t | x\n"


@pytest.mark.process
def test_tail_into_a_broken_pipe_ends_cleanly_and_loses_nothing(nsqd: FakeNsqd) -> None:
    nsqd.deliver(b"x")
    reader, writer = os.pipe()
    os.close(reader)
    flags = ["-topic", "t", "-channel", "c", "-nsqd-tcp-address", nsqd.address]
    command = [*LAUNCH, "nsq_tail", *flags]
    done = forkserver.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (nsqd.finished, nsqd.queue) == ([], [b"x"])


# ---- to_nsq


def publish(data: bytes, *destinations: FakeNsqd, delimiter: str = "\n", rate: int = 0) -> int:
    addresses = tuple(nsqd.address for nsqd in destinations)
    reader, writer = os.pipe()

    def feed() -> None:
        with os.fdopen(writer, "wb") as file:
            file.write(data)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        return to_nsq.run(to_nsq.Options("t", delimiter, rate, addresses), reader)
    finally:
        os.close(reader)
        feeder.join()


@pytest.mark.process
def test_to_nsq_publishes_to_all_and_chops_nothing(nsqd: FakeNsqd, second: FakeNsqd) -> None:
    assert publish(b"aaa\n\nbbb\n\n\nccc", nsqd, second) == 0
    assert [body for _, body in nsqd.published] == [b"aaa", b"bbb", b"ccc"]
    assert second.published == nsqd.published
    records = [b"%d" % i for i in range(5000)]
    assert publish(b",".join(records), nsqd, delimiter=",") == 0
    assert [body for _, body in nsqd.published[3:]] == records
    assert len(nsqd.commands) < 20, "waiting records go in batches"
    assert publish(b"x\n" * 40, second, rate=200) == 0
    assert len(second.published) == 43
    nsqd.refuse[b"PUB"] = b"E_PUB_FAILED PUB failed exiting"
    with pytest.raises(PublishError, match="E_PUB_FAILED PUB failed exiting"):
        publish(b"x\n", nsqd)


@pytest.mark.process
def test_to_nsq_sends_a_slow_inputs_lines_at_once(nsqd: FakeNsqd) -> None:
    reader, writer = os.pipe()
    options = to_nsq.Options("t", nsqd_tcp_address=(nsqd.address,))

    def type_slowly() -> None:  # each line only after the one before it has arrived
        for count, line in enumerate((b"a\n", b"b\nc", b"c\n"), 1):
            os.write(writer, line)
            while len(nsqd.published) < min(count, 2):
                threading.Event().wait(0.001)
        os.close(writer)

    typist = threading.Thread(target=type_slowly)
    typist.start()
    assert to_nsq.run(options, reader) == 0
    typist.join()
    os.close(reader)
    assert [body for _, body in nsqd.published] == [b"a", b"b", b"cc"]


def test_the_splitter_cut_anywhere() -> None:
    data = b"one\n\ntwo\nthree"
    for i in range(len(data)):
        for j in range(i, len(data)):
            splitter = to_nsq.Splitter(b"\n")
            records = [r for piece in (data[:i], data[i:j], data[j:]) for r in splitter.feed(piece)]
            assert records + splitter.end() == [b"one", b"two", b"three"]


def test_the_throttle_keeps_the_rate() -> None:
    throttle, sent, now = to_nsq.Throttle(100), 0, 0.0
    while now < 10:
        allowed = throttle.allowance(now)
        throttle.spend(allowed)
        sent += allowed
        now = now if allowed else now + throttle.early(now)
    assert 1000 <= sent <= 1012
    assert throttle.allowance(1000.0) == 11  # an idle time is made up for by a tenth of a second, not more
    assert to_nsq.Throttle(0).allowance(0.0) == sys.maxsize


# ---- flags


@pytest.fixture
def own_log() -> Iterator[None]:
    """A program's main sends the log of the whole process elsewhere: afterwards it is as other tests expect it."""
    loggers = [logging.getLogger(name) for name in (log.name, *_LIBRARIES)]
    before = [(logger, logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, handlers, propagate, level in before:
        logger.handlers[:] = handlers
        logger.propagate = propagate
        logger.setLevel(level)


def run_main(monkeypatch: pytest.MonkeyPatch, program: object, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["program", *words])
    return program.main()  # type: ignore[attr-defined, no-any-return]


@each("program, words, code, text", [
    (nsq_tail, ["-nix"], 2, "nsq_tail: flag provided but not defined: -nix"),
    (nsq_tail, ["-n", "x"], 2, 'invalid value "x" for flag -n'), (nsq_tail, ["-nsqd-tcp-address=h:1"], 1, "--topic required"),
    (nsq_tail, ["-topic", "t"], 1, "--lookupd-http-address required (nsq_tail -help lists the flags)"),
    (nsq_tail, ["-topic=t", "-nsqd-tcp-address=tcp://h:1"], 1, "address should not contain scheme"),
    (nsq_tail, ["-consumer-opt=foo"], 2, "invalid option foo (expected name,value such as msg_timeout,2m)"),
    (nsq_tail, ["-topic=t", "-nsqd-tcp-address=h:1", "-lookupd-http-address=h:2"], 1, "not both"),
    (nsq_tail, ["-topic=t", "-nsqd-tcp-address=h"], 1, "not an address"),
    (nsq_tail, ["-topic=a b", "-nsqd-tcp-address=h:1"], 1, "not a legal topic"),
    (nsq_tail, ["-consumer-opt=local_addr,h:1"], 2, "this client cannot choose its local address"),
    (nsq_tail, ["-consumer-opt=tls_min_version,tls1.9"], 2, "tls_min_version is not a TLS version: 'tls1.9'"),
    (nsq_tail, ["-topic=t", "-nsqd-tcp-address=h:1", "-consumer-opt=tls_v1", "-consumer-opt=tls_root_ca_file,/nix"], 1,
     "tls_root_ca_file /nix: No such file"),
    (nsq_tail, ["-consumer-opt=nix,1"], 2, "invalid option nix"), (nsq_tail, ["-help"], 0, "Usage of nsq_tail:"),
    (to_nsq, ["-nix"], 2, "to_nsq: flag provided but not defined: -nix"),
    (to_nsq, ["-nsqd-tcp-address=h:1"], 1, "--topic required"),
    (to_nsq, ["-topic=t"], 1, "--nsqd-tcp-address required (to_nsq -help lists the flags)"),
    (to_nsq, ["-topic=t", "-nsqd-tcp-address=tcp://h:1"], 1, "address should not contain scheme"),
    (to_nsq, ["-topic=t", "-delimiter=ab", "-nsqd-tcp-address=h:1"], 1, "--delimiter must be a single byte"),
    (to_nsq, ["-producer-opt=deflate_level,10"], 2, "deflate_level must be 1 to 9"),
    (to_nsq, ["-h"], 0, "Usage of to_nsq:"), (to_nsq, ["--help"], 0, r'stdin (default "\n") [$TO_NSQ_DELIMITER]'),
])  # fmt: skip
@pytest.mark.usefixtures("own_log")
def test_flags(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], program: Any, words: Any, code: int, text: str
) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert run_main(monkeypatch, program, *words) == code
    printed = capfd.readouterr().err
    assert text in printed
    assert code == 0 or printed.count("\n") == 1


def test_options_of_the_client() -> None:
    words = ["client_id,a,b", "heartbeat_interval,5s", "deflate,false", "max_in_flight,7", "dial_timeout,250"]
    words += ["skip_lookupd_authorization,false", "low_rdy_timeout,30s", "output-buffer-size,-1"]
    assert passthrough.check(words) == ""
    settings, max_in_flight = passthrough.settings(words, "nsq_tail")
    assert (settings.client_id, settings.heartbeat_interval_ms, max_in_flight) == ("a,b", 5000, 7)
    assert (settings.dial_timeout_s, settings.output_buffer_size) == (0.25, -1)
    assert not settings.lookupd_authorization
    assert passthrough.settings([], "nsq_tail")[0].lookupd_authorization
    assert settings.user_agent.startswith("nsq_tail/1.3.0 penstock-client/")
    for bad in (["sample_rate"], ["sample_rate,x"], ["auth_secret"], ["deflate,x"], ["x"]):
        assert passthrough.check(bad)

    words = ["tls_v1", "tls_root_ca_file,ca.pem", "tls_insecure_skip_verify,true", "tls_cert,c.pem", "tls_key,k.pem"]
    words += ["tls_min_version,tls1.2", "snappy", "deflate,false", "deflate_level,9", "auth_secret,a,b"]
    assert passthrough.check(words) == ""
    settings, _ = passthrough.settings(words, "to_nsq")
    assert settings.tls_v1
    assert settings.tls_insecure_skip_verify
    assert (settings.tls_root_ca_file, settings.tls_cert, settings.tls_key) == ("ca.pem", "c.pem", "k.pem")
    assert (settings.snappy, settings.deflate, settings.deflate_level) == (True, False, 9)
    assert settings.auth_secret == "a,b"
    assert "a,b" not in repr(settings)
