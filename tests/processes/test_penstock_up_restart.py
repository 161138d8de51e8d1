"""`penstock up --restart` with real processes: a killed daemon comes back, and a rolling restart loses nothing."""

import os
import signal
import threading
from pathlib import Path

import httpx
import pytest

from penstock.client import Consumer, Producer, PublishError
from tests.daemons import STOP_TIMEOUT, Tool, eventually, our_command
from tests.processes.test_penstock_up import child, free_offset

pytestmark = pytest.mark.process


class Publisher(threading.Thread):
    """Publishes numbered messages at the shared port one by one, and sends each again until it is acknowledged."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__()
        self._address, self._word = address, name
        self.acknowledged: list[str] = []
        self.retries = 0
        self._ends = threading.Event()

    def stop(self) -> None:
        self._ends.set()
        self.join(STOP_TIMEOUT)

    def run(self) -> None:
        with Producer(self._address) as producer:
            while not self._ends.wait(0.005):  # as many as the nodes can take would only cost
                body = f"{self._word}{len(self.acknowledged)}"
                try:
                    producer.publish("t", body.encode())
                    self.acknowledged.append(body)
                except PublishError:
                    self.retries += 1


def test_kills_and_a_rolling_restart_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    offset = free_offset(2)
    shared, lookupd = f"127.0.0.1:{4149 + offset}", f"http://127.0.0.1:{4161 + offset}"
    flags = ("--nodes", "2", "--logs", "--restart", "--data", str(tmp_path), "--shared-port", str(4149 + offset))
    with Tool([*our_command("penstock"), "up", *flags, "--port-offset", str(offset)]) as up:

        def wait_for(text: str) -> None:
            eventually(lambda: any(text in line for line in [*up.out, *up.lines]), 120)

        wait_for("Press Ctrl-C to stop all daemons.")
        for port in (4151 + offset, 4251 + offset):
            for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c"):
                httpx.post(f"http://127.0.0.1:{port}{path}").raise_for_status()
        producers = [Publisher(shared, name) for name in "abcd"]
        for producer in producers:
            producer.start()
        try:
            eventually(lambda: all(producer.acknowledged for producer in producers))
            for name, word in (("nsqd-2", "nsqd-2] "), ("nsqlookupd", "launch.py\0nsqlookupd")):
                os.kill(child(up.process.pid, word), signal.SIGKILL)
                wait_for(f"{name} was killed by SIGKILL: starting it again in 0.")
                wait_for(f"{name} runs again")
            up.process.send_signal(signal.SIGUSR2)
            wait_for("rolling restart: done")
            eventually(lambda: len(httpx.get(f"{lookupd}/nodes").json()["producers"]) == 2)
            before = [len(producer.acknowledged) for producer in producers]
            eventually(lambda: all(len(p.acknowledged) > n for p, n in zip(producers, before, strict=True)))
        finally:
            for producer in producers:
                producer.stop()
        assert sum(producer.retries for producer in producers) >= 2  # each node went away with connections
        missing = {body for producer in producers for body in producer.acknowledged}
        with Consumer("t", "c", [f"127.0.0.1:{port}" for port in (4150 + offset, 4250 + offset)]) as consumer:
            while missing:
                messages = consumer.poll(20)
                assert messages, missing
                for message in messages:
                    missing.discard(message.body.decode())
                    message.finish()
