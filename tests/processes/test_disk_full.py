"""A real nsqd on a full file system: FINs are taken, nothing acknowledged is lost, it resumes by itself, it restarts.

Needs root and mount, for a tmpfs of 8 MB. Else skipped, with the reason.
"""

import contextlib
import signal
from pathlib import Path

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, eventually, nsqd
from tests.processes.test_cluster_chaos import small_disk

pytestmark = pytest.mark.process

BODY = b"x" * 48_000
RESUMES = 30.0  # s; usually 1 after space was given back, 5 after FINs
MOST = 7_000  # messages: far more than fit


class Publisher:
    """Publishes numbered messages over HTTP, and remembers those that were acknowledged."""

    def __init__(self, node: Daemon) -> None:
        self.acked: list[int] = []
        self._next = 0
        self.use(node)

    def use(self, node: Daemon) -> None:
        self._client = httpx.Client(base_url=f"http://{node.http}", timeout=60)

    def publish(self) -> bool:
        """One message. False: it was refused."""
        number, self._next = self._next, self._next + 1
        answer = self._client.post("/pub?topic=t", content=b"%d." % number + BODY)
        assert answer.status_code in (200, 503), answer.text
        assert answer.status_code == 200 or answer.json()["message"] == "DISK_FULL no space left for the log"
        if answer.status_code == 200:
            self.acked.append(number)
        return answer.status_code == 200

    def fill(self) -> None:
        """Publish until nsqd refuses for want of space: space that it cleans meanwhile is filled, too."""
        while self.publish() or self._client.get("/readyz").status_code == 200:
            assert self._next < MOST


def held(node: Daemon) -> int:
    """How many messages the channel has, whatever they wait for."""
    stats = httpx.get(f"http://{node.http}/stats?format=json&topic=t&include_clients=false").json()
    (channel,) = stats["topics"][0]["channels"]
    return sum(channel[name] for name in ("depth", "in_flight_count", "deferred_count"))


def finish(node: Daemon, most: int) -> list[int]:
    """Take up to `most` messages, and finish them; returns their numbers once the node has handled that."""
    numbers: list[int] = []
    count = min(most, held(node))
    with Conversation(node, b"  V2SUB t c\nRDY 100\n") as consumer:
        assert consumer.frame() == OK
        while len(numbers) < count:
            message = consumer.message()
            numbers.append(int(message.body.split(b".")[0]))
            consumer.send(b"FIN %s\n" % message.id)
    with Conversation(node, b"  V2SUB t c\nCLS\n") as consumer:  # what came before is handled before
        assert consumer.frame() == OK
        assert consumer.frame() == (0, b"CLOSE_WAIT")
    return numbers


def test_on_a_full_disk_nothing_is_lost_and_it_resumes_by_itself(tmp_path: Path) -> None:
    with small_disk(tmp_path / "volume", "8m") as volume:
        fill_and_finish(volume)


def fill_and_finish(volume: Path) -> None:
    data = volume / "data"
    with nsqd(data, "-requeue-on-disconnect") as node:
        httpx.post(f"http://{node.http}/topic/create?topic=t")
        httpx.post(f"http://{node.http}/channel/create?topic=t&channel=c")
        publisher = Publisher(node)
        done: set[int] = set()
        for _ in range(2):
            publisher.fill()
            assert len(publisher.acked) - len(done) > 17, "it was refused with much room left"
            done.update(finish(node, len(publisher.acked) - len(done)))
            assert done == set(publisher.acked)
            eventually(publisher.publish, RESUMES)  # FINs make space
        publisher.fill()
        done.update(finish(node, 50))  # FINs are taken while it is full
        with (volume / "others").open("wb", buffering=0) as others, contextlib.suppress(OSError):
            while others.write(bytes(4096)):  # another program takes the rest, to the last byte
                pass
        done.update(finish(node, 50))
        node.process.send_signal(signal.SIGKILL)
        node.process.wait()
    with nsqd(data, "-requeue-on-disconnect") as node:
        publisher.use(node)
        publisher.fill()  # the FINs before the kill may have made some space
        (volume / "others").unlink()
        done.update(finish(node, MOST))
        eventually(publisher.publish, RESUMES)
        done.update(finish(node, MOST))
    assert done == set(publisher.acked)
