"""bench/: its parsers and its table, and that it runs at all. Never a speed."""

import re
import subprocess
import sys

import pytest

from bench.consume import fins
from bench.crowd import split
from bench.job_load import LANGUAGES
from bench.load import Sample
from bench.log_sizes import log_sizes
from bench.outcome import Outcome, timed
from bench.publish import Publish
from bench.server import ROOT, cpu_time, resident
from bench.stats import RowStats, medians, stats_of
from bench.table import cells, duration, megabytes, number, share, table, versus
from bench.upgrade import Upgraded, pack_for
from bench.wire import FRAME, FRAME_HEAD, HEARTBEAT, MPUB_BODY, OK, varied_body
from penstock.protocol.compression import Deflate, Snappy
from tests.cases import each

PATIENCE = 300  # s; a minute at most on two idle cores


class Arriving:
    """A Wire that brings these pieces, then its end."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def fileno(self) -> int:
        return -1

    def recv(self, size: int, /) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def recv_into(self, view: memoryview, /) -> int:
        raise NotImplementedError

    def sendall(self, data: bytes | memoryview, /) -> None:
        raise NotImplementedError


def row_stats(rate: float = 1000.0, server: float = 0.9, load: float = 0.5, cpu: float = 700.0) -> RowStats:
    return RowStats(rate=rate, cpu=cpu, p50=None, p99=None, rss=1e8, growth=300.0, server_share=server, load_share=load)


# files of /proc


def test_cpu_time_and_memory_are_read() -> None:
    stat = "123 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 5 0 100 1000 10"
    assert cpu_time(stat) == 3_000_000_000  # 300 ticks of 10 ms
    assert resident("VmHWM:\t   99 kB\nVmRSS:\t   57176 kB\nThreads:\t3\n") == 57176 * 1024
    assert resident("Name:\tzombie\n") == 0


# bytes of the loads


@each("count", [1, 15, 16, 17, 40])
def test_frames_become_fins_in_order(count: int) -> None:
    ids = [f"{i:016x}".encode() for i in range(count)]
    frames = b"".join(FRAME_HEAD + bytes(8) + b"\0\1" + id + b"x" * 200 for id in ids)
    assert len(frames) == count * FRAME
    assert fins(memoryview(frames), count) == b"".join(b"FIN " + id + b"\n" for id in ids)


def test_frames_are_split_wherever_the_bytes_were_cut() -> None:
    data = OK + HEARTBEAT + OK
    for cut in range(len(data) + 1):
        first, rest = split(data[:cut])
        second, rest = split(rest + data[cut:])
        assert (first + second, rest) == ([OK, HEARTBEAT, OK], b"")


DISQUE_ID = b"D-%s" % (b"7" * 38)


@each("language, replies, sent, ended", [
    ("beanstalkd", b"RESERVED 17 200\r\n" + b"x" * 200 + b"\r\nDELETED\r\nRESERVED 18 200\r\n" + b"x" * 200 + b"\r\n",
     [b"delete 17\r\n", b"reserve-with-timeout 0\r\n", b"delete 18\r\n"], b"TIMED_OUT\r\n"),
    ("disque", b"*1\r\n*3\r\n$4\r\njobs\r\n$40\r\n%s\r\n$200\r\n%s\r\n:1\r\n" % (DISQUE_ID, b"x" * 200),
     [b"*2\r\n$6\r\nACKJOB\r\n$40\r\n%s\r\n" % DISQUE_ID,
      b"*4\r\n$6\r\nGETJOB\r\n$6\r\nNOHANG\r\n$4\r\nFROM\r\n$4\r\njobs\r\n"], b"*-1\r\n"),
])  # fmt: skip
def test_a_worker_answers_replies_wherever_the_bytes_were_cut(
    language: str, replies: bytes, sent: list[bytes], ended: bytes
) -> None:
    answer = LANGUAGES[language].answer
    for cut in range(len(replies) + 1):
        first = answer(replies[:cut])
        second = answer(first.rest + replies[cut:])
        assert (first.send + second.send, second.rest) == (b"".join(sent), b""), cut
        assert first.done + second.done == 1
        assert (first.ended, second.ended) == (False, False)
    assert answer(ended).ended


def test_an_mpub_is_200_messages_of_200_bytes_which_differ_in_varied_bodies() -> None:
    plan = Publish("127.0.0.1", {"HTTP": 4151}, "mpub", "t", connections=1, depth=1, seconds=1.0, warm_up=0.0)
    request, messages = plan._request("t")
    assert messages == 200
    assert request.startswith(b"MPUB t\n\0\0\x9f\x64\0\0\0\xc8\0\0\0\xc8xxx")
    assert len(request) == len("MPUB t\n") + 4 + 4 + 200 * 204
    data = varied_body()
    bodies = {data[at : at + 204] for at in range(0, len(data), 204)}
    assert data == varied_body()
    assert len(data) == len(MPUB_BODY)
    assert len(bodies) == 200
    assert {body[:4] for body in bodies} == {b"\0\0\0\xc8"}
    assert pack_for("tls", data) == data
    for upgrade in ("snappy", "deflate"):
        assert 0.45 < len(pack_for(upgrade, data)) / len(data) < 0.65, upgrade


@each("upgrade, codec, begin", [("snappy", Snappy(), b"\xff\x06\x00\x00sNaPpY"), ("deflate", Deflate(), b"")])
def test_what_is_packed_once_can_be_sent_again_and_again(upgrade: str, codec: Snappy | Deflate, begin: bytes) -> None:
    request = b"MPUB t\n" + varied_body()
    packed = pack_for(upgrade, request)
    codec.feed(begin + packed + packed + pack_for(upgrade, b"FIN 1\n") + packed)
    received = b""
    while codec.has_more:
        received += codec.read(1 << 20)
    assert received == request + request + b"FIN 1\n" + request


def test_a_flush_without_data_is_neither_data_nor_the_end() -> None:
    empty_flush = pack_for("deflate", b"")
    wire = Upgraded(
        Arriving(empty_flush, pack_for("deflate", OK), empty_flush, pack_for("deflate", HEARTBEAT)), "deflate"
    )
    with pytest.raises(BlockingIOError):
        wire.recv(100)
    assert wire.recv(100) == HEARTBEAT
    assert wire.recv(100) == b""


# statistics


def test_times_become_quantiles_and_figures() -> None:
    assert timed(Outcome(0, 1.0), []).p50 is None
    outcome = timed(Outcome(101, 1.0), list(range(100, -1, -1)))
    assert (outcome.p50, outcome.p99, outcome.worst) == (50, 99, 100)
    sample = Sample(Outcome(1000, 2.0, cpu=1_000_000_000), server_cpu=1_500_000_000, rss_before=1000, rss=301_000)
    got = stats_of(sample)
    assert (got.rate, got.cpu, got.growth) == (500.0, 1_500_000.0, 300.0)
    assert (got.server_share, got.load_share) == (0.75, 0.5)
    runs = [row_stats(rate=1.0, cpu=9.0), row_stats(rate=3.0, cpu=7.0), row_stats(rate=2.0, cpu=8.0)]
    assert medians(runs) == row_stats(rate=2.0, cpu=8.0)


# the table


def test_a_table_has_its_columns_in_line_and_short_numbers() -> None:
    short = ["0", "789", "1.23k", "45.6k", "456k", "1.23M"]
    assert [number(n) for n in (0, 789, 1234, 45_600, 456_000, 1_234_567)] == short
    assert [duration(ns) for ns in (None, 12_345, 1_234_567, 2.5e9)] == ["-", "12 us", "1.2 ms", "2.5 s"]
    assert [share(part) for part in (0.0, 0.034, 0.98, 1.74)] == ["0.0%", "3.4%", "98%", "174%"]
    assert [megabytes(size) for size in (None, 57_200_000)] == ["-", "57"]
    assert table(["row", "server", "n"], [["writer", "ours", "1"], ["r", "Go nsqd", "23"]]) == (
        "row     server    n\n"
        "------  -------  --\n"
        "writer  ours      1\n"
        "r       Go nsqd  23"
    )  # fmt: skip
    assert cells("writer", "ours", row_stats(), None, "fast") == [
        "writer", "ours", "1.00k", "700", "-", "-", "100", "300", "90%", "50%", "", "fast",
    ]  # fmt: skip


def test_a_ratio_of_throughputs_needs_servers_that_are_busier_than_their_loads() -> None:
    own, original = row_stats(rate=900, cpu=500), row_stats(rate=1000, cpu=1000)
    assert versus(own, original) == "0.90x, 0.50 CPU"
    assert versus(row_stats(server=0.4, load=0.5, cpu=500), original) == "client-bound, 0.50 CPU"
    assert versus(own, row_stats(server=0.4, load=0.5, cpu=1000)) == "client-bound, 0.50 CPU"
    assert versus(own, None) == ""
    assert versus(row_stats(server=0.4), None) == "client-bound"


# whole runs


def quick_bench(rows: str) -> list[list[str]]:
    """Return the words of each line that a quick bench of these rows prints. It must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", rows],
        capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [re.split(" {2,}", line) for line in done.stdout.splitlines()]


ONE_OF_EACH_KIND = "snappy-reader,log-topics,queues-memory,job-turns-disque-1,turns-delete-jobs,lake-commit"
ALL = [
    "writer,reader", "tls-,snappy-,deflate-", "nodes-always,job-turns",
    "queues-pipelined,queues-copies,queues-memory,queues-remote",
    "admin-listing,admin-watched", "turns-delete-jobs,turns-empty-deferred,turns-start",
    "lake",
    ",".join(size.name for size in log_sizes()),
]  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("rows", [ONE_OF_EACH_KIND, *(pytest.param(rows, marks=pytest.mark.campaign) for rows in ALL)])
def test_every_row_that_was_asked_for_is_printed_with_its_figures(rows: str) -> None:
    printed = quick_bench(rows)
    for row in rows.split(","):
        lines = [words for words in printed if words[0].startswith(row)]
        assert lines, row
        assert all(len(words) > 2 and "WRONG" not in words for words in lines), row
    assert [words[0] for words in printed if words[0] == "row"]


@pytest.mark.process
def test_a_row_that_does_not_exist_is_a_mistake() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--only", "nothing"], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT
    )
    assert done.returncode == 2
    assert done.stderr == "bench: --only nothing: no such row; see --help\n"
