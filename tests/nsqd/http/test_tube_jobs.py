"""/tube/jobs and /tube/pause beside workers of beanstalkd and Disque: each state, bodies, actions, a kill."""

import base64
import re
from typing import Any

from shared.values import SECOND
from tests.disque_client import Client as Disque
from tests.local_node import LocalNode
from tests.nsqd.http.asking import get, post

STATES = ("ready", "reserved", "delayed", "buried")


class Worker:
    """A client of beanstalkd that uses and watches one tube."""

    def __init__(self, node: LocalNode, tube: str) -> None:
        self.socket = node.connect("BEANSTALK")
        self._replies = self.socket.makefile("rb")
        assert self.ask(f"use {tube}\r\nwatch {tube}") == f"USING {tube}"
        assert self._reply() == "WATCHING 2"

    def ask(self, command: str) -> str:
        self.socket.sendall(command.encode() + b"\r\n")
        return self._reply()

    def _reply(self) -> str:
        return self._replies.readline().decode().rstrip()

    def put(self, body: bytes, priority: int = 0, delay: int = 0) -> int:
        self.socket.sendall(b"put %d %d 70 %d\r\n%b\r\n" % (priority, delay, len(body), body))
        return int(self._reply().removeprefix("INSERTED "))

    def reserve(self, number: int) -> None:
        """Reserve this job, whatever comes before it."""
        assert self.ask(f"reserve-job {number}").startswith(f"RESERVED {number} ")
        self._reply()

    def stats(self, command: str) -> dict[str, str]:
        size = int(self.ask(command).removeprefix("OK "))
        return dict(re.findall(r"^([a-z-]+): (.*)$", self._replies.read(size + 2).decode(), re.MULTILINE))

    def put_in_every_state(self) -> dict[str, int]:
        """Put one job in each state, and return their ids."""
        buried, reserved = self.put(b"buried", 3), self.put(b"reserved", 3)
        self.reserve(buried)
        assert self.ask(f"bury {buried} 4") == "BURIED"
        self.reserve(reserved)
        ids = {"buried": buried, "reserved": reserved}
        return {**ids, "ready": self.put(b"ready"), "delayed": self.put(b"delayed", delay=900)}


def look(node: LocalNode, tube: str, state: str, **arguments: object) -> Any:
    return get(node, "/tube/jobs", tube=tube, state=state, **arguments)


def act(node: LocalNode, action: str, tube: str, **arguments: object) -> Any:
    return post(node, f"/tube/jobs/{action}", tube=tube, **arguments).json()


def counts(node: LocalNode, tube: str) -> list[int]:
    """Return the number of jobs in each of STATES."""
    return [look(node, tube, state)["total"] for state in STATES]


def test_each_state_is_listed() -> None:
    node = LocalNode()
    worker = Worker(node, "a/b;c+d")  # a name that no topic can have
    for state, number in worker.put_in_every_state().items():
        found = look(node, "a/b;c+d", state)
        (job,) = found["jobs"]
        assert (found["total"], "next" in found) == (1, False)
        assert (job["id"], job["state"], job["body"], job["body_size"]) == (number, state, state, len(state))
        stats = worker.stats(f"stats-job {number}")
        for name in ("ttr", "reserves", "timeouts", "releases", "buries", "kicks"):
            assert job[name] == int(stats[name])
        assert (job["priority"], job["age"]) == (int(stats["pri"]), 0)
        assert job.get("time_left") == {"reserved": 69, "delayed": 899}.get(state)  # it is rounded down


def test_bodies_of_any_kind() -> None:
    node = LocalNode()
    for body in (b"plain", "\u03b1\u03b2\u03b3".encode() * 200, b"\xff\0binary", b""):
        Worker(node, "bodies").put(body)
    plain, long, binary, empty = look(node, "bodies", "ready")["jobs"]
    assert (plain["body"], empty["body"], empty["body_size"]) == ("plain", "", 0)
    assert (long["body"], long["body_size"]) == ("\u03b1\u03b2\u03b3" * 42 + "\u03b1\u03b2", 1200)  # 256 bytes
    assert base64.b64decode(binary["body_base64"]) == b"\xff\0binary"
    assert [job.get("body") for job in look(node, "bodies", "ready", preview=3)["jobs"]][:2] == ["pla", "\u03b1"]


def test_operators_act_and_workers_get_errors() -> None:
    node = LocalNode()
    worker = Worker(node, "acts")
    ids = worker.put_in_every_state()
    assert act(node, "kick", "acts", id=",".join(map(str, ids.values()))) == {"kicked": 2}
    assert counts(node, "acts") == [3, 1, 0, 0]
    assert act(node, "bury", "acts", state="ready", count=2) == {"buried": 2}  # the two of the highest priority
    assert [job["id"] for job in look(node, "acts", "buried")["jobs"]] == [ids["ready"], ids["delayed"]]
    assert act(node, "release", "acts", state="reserved", count=9) == {"released": 1}
    assert worker.ask(f"touch {ids['reserved']}") == "NOT_FOUND"
    worker.reserve(ids["reserved"])
    assert act(node, "delete", "acts", id=ids["reserved"]) == {"deleted": 1}
    assert worker.ask(f"delete {ids['reserved']}") == "NOT_FOUND"
    assert act(node, "delete", "acts", id=ids["reserved"]) == {"deleted": 0}
    assert counts(node, "acts") == [1, 0, 0, 2]
    metrics = node.client.get("/metrics").text
    for name, value in (("ready", 1), ("buried", 2), ("delayed", 0), ("jobs_total", 4)):
        assert f'nsqd_tube_{name}{{tube="acts"}} {value}.0\n' in metrics


def test_the_oldest_job_is_known_everywhere_also_after_a_kill() -> None:
    node = LocalNode()
    worker = Worker(node, "t")
    worker.put(b"waits", delay=900)
    node.advance(4 * SECOND)
    worker.put(b"first", 9)
    node.advance(3 * SECOND)
    worker.put(b"urgent")
    node = node.killed()
    (tube,) = get(node, "/tubes")["tubes"][-1:]
    (stats,) = get(node, "/stats", format="json")["topics"]
    assert 4 * SECOND <= tube["oldest"] - tube["oldest_job"] < 5 * SECOND
    assert stats["tube"] | {"tube_name": "t"} == tube
    metrics = node.client.get("/metrics").text
    ready, all_ = (
        float(re.search(rf'^nsqd_tube_{name}_age_seconds{{tube="t"}} (.*)$', metrics, re.MULTILINE)[1])
        for name in ("oldest", "oldest_job")
    )
    assert (3 <= ready < 4, 7 <= all_ < 8) == (True, True)
    assert int(Worker(node, "t").stats("stats-tube t")["oldest-ready-age"]) == int(ready)
    post(node, "/tube/jobs/delete", tube="t", state="ready", count=2)
    assert [get(node, "/tubes")["tubes"][-1][name] > 0 for name in ("oldest", "oldest_job")] == [False, True]


def test_what_was_answered_survives_a_kill() -> None:
    node = LocalNode("-durability", "interval")
    worker = Worker(node, "t")
    kept, gone = worker.put_in_every_state(), worker.put_in_every_state()
    assert act(node, "delete", "t", id=",".join(map(str, gone.values()))) == {"deleted": 4}
    assert act(node, "release", "t", id=kept["reserved"]) == {"released": 1}
    assert act(node, "bury", "t", id=kept["ready"]) == {"buried": 1}
    node = node.killed("-durability", "interval")
    assert counts(node, "t") == [1, 0, 1, 2]
    (job,) = look(node, "t", "ready")["jobs"]
    assert (job["id"], job["body"], job["releases"], job["reserves"]) == (kept["reserved"], "reserved", 1, 1)


def test_queues_of_disque_and_pauses() -> None:
    node = LocalNode()
    disque, worker = Disque(node.connect("DISQUE")), Worker(node, "mail")
    first, once = disque.do("ADDJOB", "mail", "a", 0), disque.do("ADDJOB", "mail", "b", 0, "RETRY", 0, "TTL", 90)
    listed = look(node, "mail", "ready")["jobs"]
    assert [(job["disque_id"], job["ttr"]) for job in listed] == [(first, 300), (once, 0)]
    assert listed[1]["ttl_left"] in (90, 91)
    assert act(node, "bury", "mail", id=f"{first},{listed[0]['id']},{once}") == {"buried": 2}
    assert act(node, "kick", "mail", id=first) == {"kicked": 1}
    assert act(node, "delete", "mail", id=once) == {"deleted": 1}
    post(node, "/tube/pause", tube="mail", seconds=1000)
    assert worker.stats("stats-tube mail")["pause-time-left"] == "999"
    assert worker.ask("reserve-with-timeout 0") == "TIMED_OUT"
    post(node, "/tube/pause", tube="mail", queue="all", by="ann")
    assert disque.do("PAUSE", "mail", "state") == "all"
    post(node, "/tube/pause", tube="mail", seconds=0)  # pause-tube knows nothing of `in`
    (tube,) = get(node, "/tubes")["tubes"]
    names = ("tube_name", "queue_paused", "pause_left", "ready_count", "watching_count", "using_count")
    assert [tube[name] for name in names] == ["mail", "in", 0, 1, 1, 1]
    stats = get(node, "/stats", format="json", topic="mail")["topics"][0]["tube"]
    assert stats == {name: value for name, value in tube.items() if name != "tube_name"}
    post(node, "/tube/pause", tube="mail", queue="none")
    assert disque.get("mail") == [b"a"]
