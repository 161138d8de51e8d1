"""`beanstalkd` as supervisors and its clients know it: greenstalk and pystalk unchanged, kill -9, flags, NSQ beside it."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import greenstalk
import pystalk
import pytest

from tests import daemons
from tests.daemons import Daemon, Tool, drained, eventually, nsqd, our_command, post

pytestmark = pytest.mark.process


class Beanstalkd(Tool):
    """A running beanstalkd of ours, on a free port."""

    ends_with = -signal.SIGTERM  # as the original

    def __init__(self, *flags: str) -> None:
        where = () if any(flag.startswith("-l") for flag in flags) else ("-l", "127.0.0.1", "-p", "0")
        super().__init__(our_command("beanstalkd"), "-V", *flags, *where, listens=("",))

    @property
    def address(self) -> tuple[str, int] | str:
        host, _, port = self.addresses[""].rpartition(":")
        return (host, int(port)) if host else self.addresses[""]

    def client(self, **options: Any) -> greenstalk.Client:
        return greenstalk.Client(self.address, **options)


@pytest.fixture(scope="module")
def shared() -> Iterator[Beanstalkd]:
    with Beanstalkd() as daemon:
        yield daemon


@pytest.mark.parametrize(("how", "sync"), [(signal.SIGKILL, "-f0"), (signal.SIGKILL, "-f50"), (signal.SIGTERM, "-F")])
def test_a_worker_written_with_greenstalk_over_a_restart(how: int, sync: str, tmp_path: Path) -> None:
    with Beanstalkd("-b", str(tmp_path), sync) as daemon, daemon.client(use="work", watch="work") as client:
        ids = [client.put(f"job {number}", priority=number % 3, ttr=60) for number in range(6)]
        assert ids == list(range(1, 7))
        late = client.put("late", delay=600)
        first = client.reserve()
        assert (first.id, first.body) == (1, "job 0")
        client.delete(first)
        second = client.reserve(timeout=1)
        assert second.id == 4
        client.bury(second, priority=7)
        third = client.reserve()
        assert third.id == 2
        client.release(third, priority=9, delay=0)
        fourth = client.reserve()
        assert fourth.id == 5
        client.touch(fourth)
        assert client.kick(1) == 1  # the buried one
        client.bury(fourth)
        before = client.stats_job(third)
        with daemon.connect("") as raw:
            raw.sendall(b"use unique\r\nput-unique once 0 0 60 1\r\nx\r\nquit\r\n")
            assert raw.makefile("rb").read().startswith(b"USING unique\r\nINSERTED ")
        assert daemon.stop(how) == -how
    with Beanstalkd("-b", str(tmp_path), sync) as daemon, daemon.client(use="work", watch="work") as client:
        assert client.peek_buried().id == 5
        assert client.peek_delayed().id == late
        after = client.stats_job(2)
        assert {key: after[key] for key in after if key != "age"} == {
            key: before[key] for key in before if key != "age"
        }
        assert [client.reserve(timeout=0).id for _ in range(4)] == [3, 6, 4, 2]
        with pytest.raises(greenstalk.TimedOutError):
            client.reserve(timeout=0)
        with daemon.connect("") as raw:
            raw.sendall(b"use unique\r\nput-unique once 0 0 60 1\r\nx\r\nquit\r\n")
            assert raw.makefile("rb").read() == b"USING unique\r\nDUPLICATE\r\n"
        assert client.put("new") > late
        assert client.stats_job(4)["kicks"] == 1


def test_pystalk(shared: Beanstalkd) -> None:
    client = pystalk.BeanstalkClient(*shared.address)
    with client.using("stalk") as inserter:
        inserter.put_job("one", pri=5)
        inserter.put_job("two", pri=1)
    client.watch("stalk")
    jobs = [client.reserve_job(timeout=1) for _ in range(2)]
    assert [job.job_data for job in jobs] == [b"two", b"one"]
    client.bury_job(jobs[0].job_id)
    assert client.stats_job(jobs[0].job_id)["state"] == "buried"
    client.kick_job(jobs[0].job_id)
    client.release_job(jobs[1].job_id)
    assert client.stats_tube("stalk")["current-jobs-ready"] == 2
    for job in jobs:
        client.delete_job(job.job_id)
    client.close()


def test_drain_mode(tmp_path: Path) -> None:
    with Beanstalkd() as daemon, daemon.client() as client:
        job = client.put("before")
        daemon.process.send_signal(signal.SIGUSR1)
        eventually(lambda: str(client.stats()["draining"]).lower() == "true")
        with pytest.raises(greenstalk.DrainingError):
            client.put("x")
        assert client.reserve(timeout=0).id == job


def run(*flags: str) -> tuple[int, str, str]:
    done = daemons.run("beanstalkd", *flags)
    return done.returncode, done.stdout, done.stderr


def test_flags_and_exit_codes(shared: Beanstalkd, tmp_path: Path) -> None:
    assert run("-v") == (0, "beanstalkd 1.13\n", "")
    code, out, error = run("-h")
    assert (code, out) == (0, "")
    assert error.startswith("Use: beanstalkd")
    for flags in (("-x",), ("-z",), ("-zabc",), ("extra",), ("-p", "1x")):
        assert run(*flags)[0] == 5, flags
    assert run("-l", "127.0.0.1", f"-p{shared.address[1]}")[0] == 111
    assert run("-b", str(tmp_path / "nowhere"), "-l127.0.0.1", "-p0")[0] == 10
    assert run("-u", "no-such-user", "-l127.0.0.1", "-p0")[0] == 32
    with Beanstalkd("-b", str(tmp_path)):
        assert run("-b", str(tmp_path), "-l127.0.0.1", "-p0")[0] == 10
    with Beanstalkd("-z10", "-f10") as daemon, daemon.client() as client:
        assert client.stats()["max-job-size"] == 10


def test_nsqs_clients_and_beanstalkds_share_a_topic(tmp_path: Path) -> None:
    flags = ("-beanstalk-address", "127.0.0.1:0")
    with nsqd(tmp_path, *flags) as node:
        post(node, "/topic/create", topic="mail")  # to use a tube makes none
        post(node, "/channel/create", topic="mail", channel="copy")
        with greenstalk.Client(beanstalk(node), use="mail", watch="mail") as client:
            client.put("from beanstalkd", priority=5)
            client.delete(client.reserve(timeout=5))  # the channel's copy is not touched
            post(node, "/pub", "from nsq", topic="mail")
            job = client.reserve(timeout=5)
            assert job.body == "from nsq"
            client.bury(job)
            client.use("a/b;c")  # no topic's name: beanstalkd's clients' alone
            client.put("hidden")
            client.put("later", delay=1000)
        assert drained(node, "mail", "copy", 2) == [b"from beanstalkd", b"from nsq"]
        node.stop(signal.SIGKILL)
    verified = daemons.run("penstock", "verify", str(tmp_path))
    assert verified.returncode == 0
    assert "  tube: 1 ready, 1 delayed, 0 buried\n" in verified.stdout
    assert "  tube: 0 ready, 0 delayed, 1 buried\n" in verified.stdout
    with (
        nsqd(tmp_path, *flags) as node,
        greenstalk.Client(beanstalk(node), watch=["mail", "a/b;c"], use="mail") as client,
    ):
        assert client.peek_buried().body == "from nsq"
        assert client.reserve(timeout=0).body == "hidden"


def beanstalk(node: Daemon, name: str = "BEANSTALK") -> tuple[str, int]:
    line = node.wait_for_line(f"{name}: listening on")
    host, _, port = line.split()[-1].rpartition(":")
    return host, int(port)
