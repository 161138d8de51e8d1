"""/tube/jobs, /tube/jobs/... and /tube/pause on a real process, with greenstalk: each state, pages, bodies, kills, refusals."""

from __future__ import annotations

import base64
import signal
import time
from pathlib import Path
from typing import Any

import greenstalk
import httpx
import pytest

from tests.cases import each
from tests.daemons import Daemon, eventually, nsqd
from tests.disque_client import Client as Disque

pytestmark = pytest.mark.process

SHARED_FLAGS = ("-beanstalk-address", "127.0.0.1:0", "-mem-budget", "65536")
STATES = ("ready", "reserved", "delayed", "buried")


def client(node: Daemon, tube: str, **options: Any) -> greenstalk.Client:
    host, _, port = node.wait_for_line("BEANSTALK: listening on").split()[-1].rpartition(":")
    return greenstalk.Client((host, int(port)), use=tube, watch=tube, **options)


def ask(node: Daemon, method: str, path: str, **arguments: object) -> Any:
    params = {name: str(value) for name, value in arguments.items()}
    answer = httpx.request(method, f"http://{node.http}{path}", params=params, timeout=30)
    if answer.status_code != 200:
        return answer.status_code, answer.json()["message"]
    return answer.json() if answer.content else None


def look(node: Daemon, tube: str, state: str, **arguments: object) -> dict[str, Any]:
    found = ask(node, "GET", "/tube/jobs", tube=tube, state=state, **arguments)
    assert isinstance(found, dict), found
    return found


def act(node: Daemon, what: str, tube: str, **arguments: object) -> Any:
    return ask(node, "POST", f"/tube/jobs/{what}", tube=tube, **arguments)


def counts(node: Daemon, tube: str) -> list[int]:
    """Return the number of jobs in each of STATES."""
    return [look(node, tube, state)["total"] for state in STATES]


def in_every_state(worker: greenstalk.Client) -> dict[str, int]:
    """One job in each: their ids."""
    buried = worker.put("buried", priority=3, ttr=70)
    worker.bury(worker.reserve(timeout=5), priority=4)
    reserved = worker.put("reserved", priority=3, ttr=70)
    assert worker.reserve(timeout=5).id == reserved
    return {
        "ready": worker.put("ready"),
        "reserved": reserved,
        "delayed": worker.put("delayed", delay=900),
        "buried": buried,
    }


def test_each_state_is_listed(shared: Daemon) -> None:
    with client(shared, "a/b;c+d") as worker:  # a name that no topic can have
        ids = in_every_state(worker)
        for state in STATES:
            found = look(shared, "a/b;c+d", state)
            (job,) = found["jobs"]
            assert (found["total"], "next" in found) == (1, False)
            assert (job["id"], job["state"], job["body"], job["body_size"]) == (ids[state], state, state, len(state))
            response = worker.stats_job(ids[state])
            names = {"ttr": "ttr", "priority": "pri"} | {
                key: key for key in ("reserves", "timeouts", "releases", "buries", "kicks")
            }
            assert {name: job[name] for name in names} == {name: response[key] for name, key in names.items()}
            assert 0 <= job["age"] < 60
            assert ("time_left" in job) == (state in ("reserved", "delayed"))
        assert 40 < look(shared, "a/b;c+d", "reserved")["jobs"][0]["time_left"] < 70
        assert 850 < look(shared, "a/b;c+d", "delayed")["jobs"][0]["time_left"] < 900


def test_bodies_of_any_kind(shared: Daemon) -> None:
    with client(shared, "bodies", encoding=None) as worker:
        for body in (b"plain", "\u03b1\u03b2\u03b3".encode() * 200, b"\xff\0binary", b"", b"</script>"):
            worker.put(body)
        plain, long, binary, empty, markup = look(shared, "bodies", "ready")["jobs"]
        assert (plain["body"], empty["body"], empty["body_size"], markup["body"]) == ("plain", "", 0, "</script>")
        assert (long["body"], long["body_size"]) == ("\u03b1\u03b2\u03b3" * 42 + "\u03b1\u03b2", 1200)  # 256 bytes
        assert base64.b64decode(binary["body_base64"]) == b"\xff\0binary"
        assert [job.get("body") for job in look(shared, "bodies", "ready", preview=3)["jobs"]][:2] == ["pla", "\u03b1"]


def test_operators_act_and_workers_get_errors(shared: Daemon) -> None:
    with client(shared, "acts") as worker:
        ids = in_every_state(worker)
        assert act(shared, "kick", "acts", id=",".join(map(str, ids.values()))) == {"kicked": 2}
        assert counts(shared, "acts") == [3, 1, 0, 0]
        assert act(shared, "bury", "acts", state="ready", count=2) == {"buried": 2}  # the two of the highest priority
        assert [job["id"] for job in look(shared, "acts", "buried")["jobs"]] == [ids["buried"], ids["ready"]]
        assert act(shared, "release", "acts", state="reserved", count=9) == {"released": 1}
        with pytest.raises(greenstalk.NotFoundError):
            worker.touch(greenstalk.Job(ids["reserved"], ""))
        assert worker.reserve(timeout=5).id == ids["reserved"]
        assert act(shared, "delete", "acts", id=ids["reserved"]) == {"deleted": 1}
        with pytest.raises(greenstalk.NotFoundError):
            worker.delete(ids["reserved"])
        assert act(shared, "delete", "acts", id=ids["reserved"]) == {"deleted": 0}
        assert counts(shared, "acts") == [1, 0, 0, 2]
        assert act(shared, "delete", "acts", state="buried", count=1000) == {"deleted": 2}


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    flags = (*SHARED_FLAGS, "-durability", "interval")
    with nsqd(tmp_path, *flags) as node:
        with client(node, "t") as worker:
            kept = in_every_state(worker)
            gone = in_every_state(worker)
            assert act(node, "delete", "t", id=",".join(map(str, gone.values()))) == {"deleted": 4}
            assert act(node, "release", "t", id=kept["reserved"]) == {"released": 1}
            assert act(node, "bury", "t", id=kept["ready"]) == {"buried": 1}
        node.stop(signal.SIGKILL)
    with nsqd(tmp_path, *flags) as node:
        assert counts(node, "t") == [1, 0, 1, 2]
        (job,) = look(node, "t", "ready")["jobs"]
        assert (job["id"], job["body"], job["releases"], job["reserves"]) == (kept["reserved"], "reserved", 1, 1)
        assert [job["body"] for job in look(node, "t", "buried")["jobs"]] == ["buried", "ready"]


def test_a_pause(shared: Daemon) -> None:
    with client(shared, "paused") as worker:
        worker.put("x")
        assert ask(shared, "POST", "/tube/pause", tube="paused", seconds=1000) is None
        assert 900 < worker.stats_tube("paused")["pause-time-left"] <= 1000
        with pytest.raises(greenstalk.TimedOutError):
            worker.reserve(timeout=0)
        assert ask(shared, "POST", "/tube/pause", tube="paused", seconds=0) is None
        assert worker.reserve(timeout=0).body == "x"
        assert worker.stats_tube("paused")["pause-time-left"] == 0
        worker.put("y")
        ask(shared, "POST", "/tube/pause", tube="paused", seconds=1)
        began = time.monotonic()
        assert worker.reserve(timeout=10).body == "y"
        assert time.monotonic() - began > 0.5


def tube_of(node: Daemon, name: str) -> dict[str, Any]:
    (found,) = [one for one in httpx.get(f"http://{node.http}/tubes").json()["tubes"] if one["tube_name"] == name]
    return dict(found)


def test_queues_of_disque(tmp_path: Path) -> None:
    with nsqd(tmp_path, *SHARED_FLAGS, "-disque-address", "127.0.0.1:0") as node:
        node.wait_for_line("DISQUE: listening on")
        host, _, port = node.addresses["DISQUE"].rpartition(":")
        with Disque((host, int(port))) as disque, client(node, "mail") as worker, Disque((host, int(port))) as other:
            first, once = (
                disque.do("ADDJOB", "mail", "a", 0),
                disque.do("ADDJOB", "mail", "b", 0, "RETRY", 0, "TTL", 90),
            )
            listed = look(node, "mail", "ready")["jobs"]
            assert [job["disque_id"] for job in listed] == [first, once]
            assert [(job["ttr"], 80 < job["ttl_left"] < 92) for job in listed] == [(300, False), (0, True)]
            assert act(node, "bury", "mail", id=f"{first},{listed[0]['id']},{once}") == {"buried": 2}
            assert act(node, "kick", "mail", id=first) == {"kicked": 1}
            assert act(node, "delete", "mail", id=once) == {"deleted": 1}
            assert disque.get("mail") == [b"a"]
            worker._sock.sendall(b"reserve-with-timeout 20\r\n")
            disque.send("GETJOB", "FROM", "mail")
            eventually(lambda: tube_of(node, "mail")["waiting_count"] == 2)
            found = tube_of(node, "mail")
            names = ("watching_count", "disque_waiting_count", "node_waiting_count", "queue_paused", "pause_left")
            assert [found[name] for name in names] == [2, 1, 0, "none", 0]
            stats = httpx.get(f"http://{node.http}/stats?format=json&topic=mail").json()["topics"][0]["tube"]
            assert stats == {name: value for name, value in found.items() if name != "tube_name"}
            assert ask(node, "POST", "/tube/pause", tube="mail", queue="all", by="ann") is None
            assert other.do("PAUSE", "mail", "state") == "all"
            found = tube_of(node, "mail")
            assert (found["queue_paused"], found["pause_left"]) == ("all", (1 << 32) - 1)
            assert ask(node, "POST", "/tube/pause", tube="mail", seconds=0) is None  # pause-tube knows nothing of `in`
            assert tube_of(node, "mail")["queue_paused"] == "in"
            assert ask(node, "POST", "/tube/pause", tube="mail", queue="none") is None
            assert other.do("PAUSE", "mail", "state") == "none"


@each(
    "method, path, arguments, error",
    [
        ("GET", "jobs", {"state": "ready"}, (400, "MISSING_ARG_TUBE")),
        ("GET", "jobs", {"tube": "nowhere", "state": "ready"}, (404, "TUBE_NOT_FOUND")),
        ("GET", "jobs", {"tube": "bad"}, (400, "MISSING_ARG_STATE")),
        ("GET", "jobs", {"tube": "bad", "state": "in_flight"}, (400, "INVALID_ARG_STATE")),
        ("GET", "jobs", {"tube": "bad", "state": "ready", "limit": 1001}, (400, "INVALID_ARG_LIMIT")),
        ("GET", "jobs", {"tube": "bad", "state": "ready", "preview": 65537}, (400, "INVALID_ARG_PREVIEW")),
        ("GET", "jobs", {"tube": "bad", "state": "ready", "after": "<b>"}, (400, "INVALID_ARG_AFTER")),
        ("POST", "jobs/delete", {"id": 1}, (400, "MISSING_ARG_TUBE")),
        ("POST", "jobs/delete", {"tube": "nowhere", "id": 1}, (404, "TUBE_NOT_FOUND")),
        ("POST", "jobs/delete", {"tube": "bad"}, (400, "MISSING_ARG_ID")),
        ("POST", "jobs/delete", {"tube": "bad", "id": "1,,2"}, (400, "INVALID_ARG_ID")),
        ("POST", "jobs/delete", {"tube": "bad", "id": "-1"}, (400, "INVALID_ARG_ID")),
        ("POST", "jobs/delete", {"tube": "bad", "id": ",".join(map(str, range(1001)))}, (400, "INVALID_ARG_ID")),
        ("POST", "jobs/delete", {"tube": "bad", "state": "ready"}, (400, "MISSING_ARG_COUNT")),
        ("POST", "jobs/delete", {"tube": "bad", "state": "gone", "count": 1}, (400, "INVALID_ARG_STATE")),
        ("POST", "jobs/delete", {"tube": "bad", "state": "ready", "count": 1001}, (400, "INVALID_ARG_COUNT")),
        ("POST", "jobs/kick", {"tube": "bad", "state": "ready", "count": 1}, (400, "INVALID_ARG_STATE")),
        ("POST", "jobs/bury", {"tube": "bad", "state": "reserved", "count": 1}, (400, "INVALID_ARG_STATE")),
        ("POST", "jobs/release", {"tube": "bad", "state": "buried", "count": 1}, (400, "INVALID_ARG_STATE")),
        ("POST", "jobs/delete", {"tube": "bad", "id": "9999999"}, {"deleted": 0}),
        ("GET", "jobs/delete", {"tube": "bad", "id": "1"}, (405, "METHOD_NOT_ALLOWED")),
        ("POST", "pause", {"tube": "bad"}, (400, "MISSING_ARG_SECONDS")),
        ("POST", "pause", {"tube": "bad", "seconds": "-1"}, (400, "INVALID_ARG_SECONDS")),
        ("POST", "pause", {"tube": "bad", "seconds": 1 << 32}, (400, "INVALID_ARG_SECONDS")),
        ("POST", "pause", {"tube": "nowhere", "seconds": 1}, (404, "TUBE_NOT_FOUND")),
        ("POST", "pause", {"seconds": 1}, (400, "MISSING_ARG_TUBE")),
        ("POST", "pause", {"tube": "bad", "queue": "state"}, (400, "INVALID_ARG_QUEUE")),
        ("POST", "pause", {"tube": "bad", "queue": "in", "by": "\n"}, (400, "INVALID_ARG_BY")),
        ("POST", "pause", {"tube": "nowhere", "queue": "in"}, (404, "TUBE_NOT_FOUND")),
        ("POST", "jobs/delete", {"tube": "bad", "id": "D-1"}, (400, "INVALID_ARG_ID")),
        ("POST", "jobs/delete", {"tube": "bad", "id": f"D-01234567-{'A' * 24}-05a1"}, {"deleted": 0}),
    ],
)
def test_what_is_refused(shared: Daemon, method: str, path: str, arguments: dict[str, Any], error: Any) -> None:
    with client(shared, "bad"):
        assert ask(shared, method, f"/tube/{path}", **arguments) == error
