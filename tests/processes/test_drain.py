"""A real nsqd that drains: every way in is closed, every way out is open, and it tells when nothing is left."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import greenstalk
import httpx
import pytest

from tests.daemons import ERROR, OK, Conversation, Daemon, eventually, nsqd, sized

pytestmark = pytest.mark.process

NOT_DRAINING = {
    "draining": False,
    "since": 0,
    "depth": 0,
    "in_flight": 0,
    "deferred": 0,
    "buried": 0,
    "jobs": 0,
    "done": False,
}


def post(node: Daemon, path: str, body: str = "", **arguments: str) -> httpx.Response:
    return httpx.post(f"http://{node.http}{path}", params=arguments, content=body)


def get(node: Daemon, path: str) -> httpx.Response:
    return httpx.get(f"http://{node.http}{path}")


def told(node: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = get(node, "/node/drain").raise_for_status().json()
    return found


def refused(answer: httpx.Response) -> bool:
    return (answer.status_code, answer.json()) == (503, {"message": "DRAINING"})


def test_a_node_is_drained(tmp_path: Path) -> None:
    flags = ("-beanstalk-address", "127.0.0.1:0", "-statistics-topic", "_stats")
    with nsqd(tmp_path, *flags, listens=("TCP", "HTTP", "BEANSTALK")) as node:
        host, port = node.addresses["BEANSTALK"].split(":")
        assert told(node) == NOT_DRAINING
        assert post(node, "/node/undrain").json() == NOT_DRAINING
        post(node, "/topic/create", topic="t", retention="1h")
        post(node, "/channel/create", topic="t", channel="c")
        post(node, "/mpub", "one\ntwo\nthree", topic="t")
        post(node, "/pub", "later", topic="t", defer="300")
        eventually(lambda: get(node, "/topic/offsets?topic=_stats").status_code == 200)  # nobody consumes it
        with greenstalk.Client((host, int(port)), use="jobs", watch="jobs") as worker:
            worker.put("job")
            began = int(time.time())
            answer = post(node, "/node/drain")
            first = answer.raise_for_status().json()
            assert began <= first["since"] <= time.time()
            assert first | {"since": 0, "depth": 0, "deferred": 0} == NOT_DRAINING | {"draining": True, "jobs": 1}
            assert first["depth"] + first["deferred"] == 4
            assert answer.headers["content-type"] == "application/json; charset=utf-8"
            assert post(node, "/node/drain").json()["since"] == first["since"]

            assert (get(node, "/readyz").status_code, get(node, "/readyz").text) == (503, "NOK - DRAINING")
            assert [(get(node, path).status_code, get(node, path).text) for path in ("/ping", "/livez")] == [
                (200, "OK")
            ] * 2
            assert get(node, "/stats?format=json").json()["health"] == "OK"

            assert refused(post(node, "/pub", "x", topic="t"))
            assert refused(post(node, "/pub", "x", topic="new", defer="5"))
            assert refused(post(node, "/pub", "x", topic="t", key="k"))
            assert refused(post(node, "/pub", "x", topic="t", channel="c"))
            assert refused(post(node, "/mpub", "x\ny", topic="t"))
            assert refused(post(node, "/channel/messages/move", topic="t", channel="c", offset="0", to="u"))
            assert refused(post(node, "/channel/create", **{"topic": "t", "channel": "again", "from": "earliest"}))
            with Conversation(node, b"  V2PUB t\n" + sized(b"x")) as producer:
                assert producer.frames() == [(ERROR, b"E_PUB_FAILED PUB failed DRAINING")]
            with pytest.raises(greenstalk.DrainingError):
                worker.put("x")

            job = worker.reserve(timeout=0)
            assert told(node)["jobs"] == 1
            worker.delete(job)
            with Conversation(node, b"  V2SUB t c\nRDY 10\n") as consumer:
                assert consumer.frame() == OK
                bodies = []
                for _ in range(4):
                    message = consumer.message()
                    assert told(node)["in_flight"] >= 1
                    assert told(node)["done"] is False
                    bodies.append(message.body)
                    consumer.send(b"FIN " + message.id + b"\n")
                assert sorted(bodies) == [b"later", b"one", b"three", b"two"]
                eventually(lambda: told(node)["done"])
            assert told(node) == NOT_DRAINING | {"draining": True, "since": first["since"], "done": True}

        stats = get(node, "/topic/offsets?topic=_stats").json()["next"]
        time.sleep(1.1)  # nothing comes to be told of
        assert get(node, "/topic/offsets?topic=_stats").json()["next"] == stats

        assert post(node, "/node/undrain").json() == NOT_DRAINING
        assert get(node, "/readyz").text == "OK"
        assert post(node, "/pub", "x", topic="t").text == "OK"
        assert sum("DRAIN:" in line for line in node.lines) == 2


def test_a_restart_forgets_it_and_only_some_methods_are_there(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        assert get(node, "/node/undrain").status_code == 405
        assert post(node, "/node/drain").json()["done"] is True
        node.kill()
    with nsqd(tmp_path) as node:
        assert told(node) == NOT_DRAINING
        assert post(node, "/pub", "x", topic="t").text == "OK"
