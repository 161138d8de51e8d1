"""Operators act on messages in every state while consumers work on them: each message ends once, by one of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, eventually, nsqd, several

pytestmark = pytest.mark.process

COUNT = 3000
STATES = ("ready", "in_flight", "deferred", "buried")
DONE = {"finish": "finished", "requeue": "requeued", "kick": "kicked", "bury": "buried", "move": "moved"}


class Worker:
    """A consumer that finishes most of what it gets, and hands some back."""

    def __init__(self, node: Daemon, seed: int) -> None:
        self.finished = 0  # FINs that nsqd took
        self._random = random.Random(seed)
        self._client = Conversation(node, b"  V2SUB t c\nRDY 40\n")
        assert self._client.frame() == OK
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while (frame := self._client.frame()) is not None:
            kind, data = frame
            if kind == 2:
                message_id, dice = data[10:26], self._random.random()
                if dice < 0.75:
                    self.finished += 1
                    self._client.send(b"FIN " + message_id + b"\n")
                elif dice < 0.95:
                    self._client.send(b"REQ " + message_id + b" %d\n" % self._random.choice((0, 20, 400)))
            elif data.startswith(b"E_FIN_FAILED"):
                self.finished -= 1
            elif data == b"CLOSE_WAIT":
                return
            else:
                assert data.startswith((b"E_REQ_FAILED", b"E_TOUCH_FAILED")), data

    def stop(self) -> None:
        """It is answered for what it has sent, and hangs up."""
        self._client.send(b"CLS\n")
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._client.close()


def ask(node: Daemon, method: str, path: str, **arguments: object) -> httpx.Response:
    params = {"topic": "t"} | {name: str(value) for name, value in arguments.items()}
    return httpx.request(method, f"http://{node.http}{path}", params=params, timeout=30).raise_for_status()


def operator(node: Daemon, seed: int, done: dict[str, int], over: threading.Event) -> Callable[[], None]:
    """Acts on a few messages of some state, by offset or the first of them, until it is over."""
    dice = random.Random(seed)

    def work() -> None:
        while not over.is_set():
            state, what = dice.choice(STATES), dice.choice(list(DONE))
            chosen: dict[str, object] = {"state": state, "count": dice.randrange(1, 30)}
            if dice.random() < 0.5:
                page = ask(node, "GET", "/channel/messages", channel="c", state=state, limit=20).json()["messages"]
                if not page:
                    continue
                chosen = {"offset": ",".join(str(one["offset"]) for one in page)}
            if what == "move":
                chosen["to"] = "elsewhere"
            if what == "requeue":
                chosen["delay"] = dice.choice((0, 50, 1000))
            told = ask(node, "POST", f"/channel/messages/{what}", channel="c", **chosen).json()
            done[what] += told[DONE[what]]

    return work


def test_each_message_ends_once(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-msg-timeout", "1s") as node:
        ask(node, "POST", "/topic/create")
        ask(node, "POST", "/channel/create", channel="c")
        workers = [Worker(node, seed) for seed in range(3)]
        over, tallies = threading.Event(), [dict.fromkeys(DONE, 0) for _ in range(2)]
        operators = [threading.Thread(target=operator(node, 10 + n, tally, over)) for n, tally in enumerate(tallies)]
        for thread in operators:
            thread.start()
        with Conversation(node, b"  V2") as producer:
            for first in range(0, COUNT, 100):
                producer.send(b"MPUB t\n" + several(*(b"%06d" % number for number in range(first, first + 100))))
                assert producer.frame() == OK

        def left(*counts: str) -> int:
            """The sum of counts of one moment: between two answers a message may go from one count to another."""
            (topic,) = ask(node, "GET", "/stats", format="json").json()["topics"]
            return sum(topic["channels"][0][name] for name in counts)

        eventually(lambda: left("depth", "deferred_count") < COUNT // 20, 60)
        over.set()
        for thread in operators:
            thread.join(30)
        kicked = ask(node, "POST", "/channel/messages/kick", channel="c", state="buried", count=1000).json()["kicked"]
        assert kicked < 1000  # there are no more
        eventually(lambda: not left("depth", "in_flight_count", "deferred_count"), 60)
        for worker in workers:
            worker.stop()
        by_consumers, total = (
            sum(worker.finished for worker in workers),
            {what: sum(tally[what] for tally in tallies) for what in DONE},
        )
        assert all(total.values()), total
        assert by_consumers + total["finish"] + total["move"] == COUNT, (by_consumers, total)
        moved = httpx.get(f"http://{node.http}/stats", params={"format": "json", "topic": "elsewhere"}).json()
        assert moved["topics"][0]["depth"] == total["move"]
