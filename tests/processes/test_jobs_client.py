"""penstock.jobs against real servers: kill -9, silence and lies, many workers, TLS; asyncio and trio."""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from penstock.jobs import (
    AsyncJob,
    AsyncJobs,
    BadServer,
    ConnectionLost,
    FoundJob,
    Jobs,
    JobsSettings,
    ReservationLost,
    Retries,
    Unsupported,
)
from tests.cases import each
from tests.certificates import Authority
from tests.daemons import Daemon, eventually, nsqd
from tests.processes.test_beanstalkd import Beanstalkd, beanstalk

pytestmark = pytest.mark.process
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
HASTY = JobsSettings(connect_timeout_s=1, timeout_s=0.5, retry_s=0.5)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Beanstalkd() as daemon:
        yield ":".join(map(str, daemon.address))


@contextmanager
def server(*answers: bytes, waits: bool = True) -> Iterator[str]:
    """Listen, and give each connection the next of the answers, whatever it says; then keep it open, or close it."""
    listener = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def serve() -> None:
        for answer in answers:
            try:
                sock, _ = listener.accept()
                kept.append(sock)
                sock.recv(65536)
                sock.sendall(answer)
            except OSError:  # closed
                return
            if not waits:
                sock.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    for sock in kept:
        sock.close()


def beanstalk_node(directory: Path, address: str = "127.0.0.1:0") -> Daemon:
    return nsqd(directory, "-beanstalk-address", address, listens=("TCP", "HTTP", "BEANSTALK"))


def test_over_kill_9_of_the_node_puts_come_once_and_reservations_end(tmp_path: Path) -> None:
    with beanstalk_node(tmp_path) as node:
        address = node.addresses["BEANSTALK"]
        jobs = Jobs(address, use="t", watch=["t"])
        jobs.put(b"first")
        job = jobs.reserve(5)
        assert job is not None
        node.kill()
    thread = threading.Thread(target=lambda: jobs.put_unique("k", b"second"))
    thread.start()  # the put waits for the server
    with beanstalk_node(tmp_path, address):
        thread.join(30)
        with pytest.raises(ReservationLost):
            job.touch()
        assert jobs.put_unique("k", b"second") is None
        assert [one.body for one in jobs.reserve_each(0)] == [b"first", b"second"]
        assert jobs.epoch >= 2
        jobs.close()


@each(
    "answers, waits, error, why",
    [
        ((b"", b""), True, ConnectionLost, "in time"),
        ((b"HTTP/1.1 200 OK\r\n\r\n",), True, BadServer, "HTTP"),
        ((b"",) * 20, False, ConnectionLost, "closed"),
    ],
)
def test_a_server_that_is_silent_lies_or_closes(
    answers: tuple[bytes, ...], waits: bool, error: type[Exception], why: str
) -> None:
    settings = HASTY if why == "in time" else JobsSettings(retry_s=0.5)
    with server(*answers, waits=waits) as address, pytest.raises(error, match=why):
        Jobs(address, settings).stats()

    async def main() -> None:
        with server(*answers, waits=waits) as address, pytest.raises(error, match=why):
            await AsyncJobs(address, settings).stats()

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)


@BACKENDS
def test_run_handles_every_job_retries_buries_and_touches(address: str, backend: str) -> None:
    tube = f"run-{backend}"
    done: list[bytes] = []
    failed: list[int] = []

    async def handler(job: AsyncJob) -> None:
        if job.body == b"bad":
            failed.append(job.id)
            raise ValueError("bad job")
        if job.body == b"slow":
            await anyio.sleep(4)  # the job has 3 s to run: only touches keep it
        done.append(job.body)

    async def main() -> None:
        async with AsyncJobs(address, use=tube, watch=[tube]) as jobs:
            await jobs.put(b"slow", ttr=3)
            bad = await jobs.put(b"bad")
            for number in range(100):
                await jobs.put(b"%d" % number)
            async with anyio.create_task_group() as group:
                group.start_soon(jobs.run, handler, 4, Retries(max_attempts=2, first_delay_s=1))
                with anyio.fail_after(60):
                    while len(done) < 101 or (await jobs.stats_job(bad))["state"] != "buried":
                        await anyio.sleep(0.05)
                group.cancel_scope.cancel()
            assert failed == [bad, bad]
            assert sorted(done) == sorted([b"slow", *(b"%d" % number for number in range(100))])
            figures = await jobs.stats_tube()
            assert (
                figures["current-jobs-buried"],
                figures["current-jobs-ready"],
                figures["current-jobs-reserved"],
            ) == (1, 0, 0)
            await jobs.delete(bad)

    anyio.run(main, backend=backend)


def test_tls_for_both_clients(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    with nsqd(tmp_path / "data", "-beanstalk-tls-address", "127.0.0.1:0", *authority.flags()) as node:
        address = f"localhost:{beanstalk(node, 'BEANSTALK TLS')[1]}"
        settings = JobsSettings(tls=authority.client())
        with Jobs(address, settings) as jobs:
            jobs.put(b"x" * 60_000)
            time.sleep(1.1)  # s: an idle connection is not taken for a lost one
            assert [job.body for job in jobs.reserve_each(0)] == [b"x" * 60_000]
            assert jobs.epoch == 1

        async def main() -> None:
            async with AsyncJobs(address, settings) as other:
                job = await other.reserve(5)
                await job.delete()

        for backend in ("asyncio", "trio"):
            anyio.run(main, backend=backend)
            with Jobs(address, settings) as jobs:
                jobs.put(b"for the next")
        with pytest.raises(ConnectionLost):  # no TLS where TLS is spoken
            Jobs(address, HASTY).stats()


ORIGINAL = os.environ.get("PENSTOCK_BEANSTALKD", "")


@pytest.mark.skipif(not ORIGINAL, reason="PENSTOCK_BEANSTALKD names no beanstalkd")
def test_the_original_server_has_all_but_the_extensions(tmp_path: Path) -> None:
    path = str(tmp_path / "sock")
    process = subprocess.Popen([ORIGINAL, "-l", f"unix:{path}"])
    try:
        eventually(lambda: os.path.exists(path))
        with Jobs(path, use="t", watch=["t"]) as jobs:
            job_id = jobs.put(b"x")
            for extension in (
                lambda: jobs.put_unique("k", b"delete 1\r\n"),
                lambda: jobs.put(b"delete 1\r\n", group="g"),
                lambda: jobs.reserve_batch(2),
                lambda: jobs.delete_batch([job_id]),
                lambda: jobs.clear_tube("t"),
                lambda: jobs.move_job(job_id, "u"),
                jobs.list_jobs,
            ):
                with pytest.raises(Unsupported):
                    extension()
            job = jobs.reserve(1)
            assert job.stats()["state"] == "reserved"
            job.release()
            job = jobs.reserve(0)
            job.touch()
            job.bury()
            assert jobs.kick(5) == 1
            assert (jobs.peek_ready(), jobs.peek_buried(), jobs.peek(99)) == (FoundJob(job_id, b"x"), None, None)
            assert jobs.stats_tube()["current-jobs-ready"] == 1
            assert jobs.list_tubes() == ["default", "t"]
            jobs.pause_tube("t", 0)
            jobs.delete(job_id)
            assert jobs.reserve(0) is None
            assert jobs.epoch == 1
    finally:
        process.kill()
        process.wait()
