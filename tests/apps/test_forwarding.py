"""The main loop of nsq_to_nsq and nsq_to_http, between small nsqds in threads of this process."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from apps import nsq_to_http, nsq_to_nsq
from apps.forwarding import TOUCH_S, touch_interval
from penstock.client import ConsumerError, Settings
from tests.apps.test_apps import FakeNsqd
from tests.http_endpoint import Endpoint


@pytest.fixture
def nsqds() -> Iterator[tuple[FakeNsqd, FakeNsqd]]:
    with closing(FakeNsqd()) as source, closing(FakeNsqd()) as destination:
        yield source, destination


def end_when(done: threading.Event) -> None:
    """Send this process SIGTERM as soon as `done` is set."""

    def wait() -> None:
        done.wait(30)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


class Finished(list[bytes]):
    """A list that sets an event when it has a number of members."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.reached = threading.Event()

    def append(self, body: bytes) -> None:
        super().append(body)
        if len(self) == self.count:
            self.reached.set()


def republish(source: FakeNsqd, destination: FakeNsqd, **more: object) -> None:
    flags = {"topic": ("t",), "nsqd_tcp_address": (source.address,)}
    nsq_to_nsq.run(nsq_to_nsq.Options(**flags, destination_nsqd_tcp_address=(destination.address,), **more))  # type: ignore[arg-type]


@pytest.mark.process
def test_messages_are_published_in_batches_and_then_finished(nsqds: tuple[FakeNsqd, FakeNsqd]) -> None:
    source, destination = nsqds
    bodies = [b"%d" % i for i in range(1000)]
    source.finished = Finished(len(bodies))
    end_when(source.finished.reached)
    source.deliver(*bodies)
    republish(source, destination)
    assert sorted(body for _, body in destination.published) == sorted(bodies)
    assert sorted(source.finished) == sorted(bodies)
    assert len([word for word in destination.verbs() if word in (b"MPUB", b"PUB")]) < len(bodies) / 2


@pytest.mark.process
def test_requests_and_then_fins(nsqds: tuple[FakeNsqd, FakeNsqd]) -> None:
    source, _ = nsqds
    source.finished = Finished(20)
    end_when(source.finished.reached)
    source.deliver(*[b"%d" % i for i in range(20)])
    with Endpoint() as endpoint:
        options = nsq_to_http.Options(topic="t", nsqd_tcp_address=(source.address,), post=(endpoint.url,), n=3)
        nsq_to_http.run(options)
        assert sorted(endpoint.bodies) == sorted(source.finished)
        assert len(endpoint.bodies) == 20
        assert endpoint.connections <= 3


@pytest.mark.process
def test_a_refused_subscription_ends_the_program(nsqds: tuple[FakeNsqd, FakeNsqd]) -> None:
    source, destination = nsqds
    source.refuse[b"SUB"] = b"E_BAD_CHANNEL no"
    with pytest.raises(ConsumerError, match="E_BAD_CHANNEL"):
        republish(source, destination)


def test_how_often_a_message_is_touched() -> None:
    assert touch_interval(Settings()) == TOUCH_S
    assert touch_interval(Settings(msg_timeout_ms=60_000)) == 20.0
    assert touch_interval(Settings(msg_timeout_ms=1)) == 0.1
