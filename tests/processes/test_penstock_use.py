"""`penstock pub`, `sub`, `put`, `reserve`, `bench`: the commands run in this process, the node in one of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from apps.load import Result, lines_of
from apps.penstock import main
from penstock.client import Consumer, Producer
from tests.cases import each
from tests.daemons import Daemon, Tool, eventually, nsqd, our_command, post

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with nsqd(tmp_path_factory.mktemp("node"), "-beanstalk-address=127.0.0.1:0") as node:
        yield node


class User:
    """Runs commands on the node."""

    def __init__(self, node: Daemon, monkeypatch: pytest.MonkeyPatch, output: pytest.CaptureFixture[str]) -> None:
        self.node, self._monkeypatch, self._output = node, monkeypatch, output
        sock = node.connect("BEANSTALK")
        self.jobs = "{}:{}".format(*sock.getpeername())
        sock.close()

    def __call__(self, *words: str, stdin: bytes = b"", code: int = 0) -> tuple[str, str]:
        """Return standard output and standard error."""
        reading, writing = os.pipe()
        os.write(writing, stdin)
        os.close(writing)
        is_about_jobs = words[0] in ("put", "reserve") or words[:2] == ("bench", "jobs")
        with open(reading) as file:
            self._monkeypatch.setattr(sys, "stdin", file)
            job_address = ("--job-address", self.jobs) if is_about_jobs else ()
            assert main([*words, "--nsqd-http-address", self.node.http, *job_address]) == code
        return self._output.readouterr()


@pytest.fixture
def user(node: Daemon, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> User:
    return User(node, monkeypatch, capfd)


def channel(user: User, topic: str) -> None:
    post(user.node, "/topic/create", topic=topic)
    post(user.node, "/channel/create", topic=topic, channel="c")


def test_lines_of_standard_input_are_published_and_printed(user: User) -> None:
    channel(user, "lines")
    assert user("pub", "lines", stdin=b"one\ntwo\nthe end of the input cuts this") == ("", "3 published\n")
    assert user("pub", "lines", "four", "five", "--json") == ('{"published": 2}\n', "")
    assert user("pub", "lines", "-0", stdin=b"six\nstill six\0")[1] == "1 published\n"
    assert user("sub", "lines", "c", "-n", "2")[0] == "one\ntwo\n"
    rest = user("sub", "lines", "c", "--until-empty", "-0")[0].split(
        "\0"
    )  # in any order: the first one may have had more
    assert sorted(rest) == ["", "five", "four", "six\nstill six", "the end of the input cuts this"]


def test_a_file_with_headers_a_key_and_a_delay(user: User, tmp_path: object) -> None:
    topic = f"files-{uuid4().hex}"
    channel(user, topic)
    path = f"{tmp_path}/body"
    with open(path, "wb") as file:
        file.write(b"\xff\n")
    for result in ("1 published\n", "1 duplicate: nsqd has the same message already\n0 published\n"):
        assert user("pub", topic, "--file", path, "--key", "K", "--header", "source=import")[1] == result
    out, _ = user("sub", topic, "c", "--until-empty", "--json")
    assert [json.loads(line)["body_base64"] for line in out.splitlines()] == ["/wo="]
    _, why = user("pub", topic, "a", "b", "--key", "L", code=2)
    assert "--key is for one message" in why


def test_an_answer_to_a_message(user: User) -> None:
    def answer() -> None:
        with Consumer("ask", "c", [user.node.tcp]) as consumer, Producer([user.node.tcp]) as producer:
            (request,) = consumer.poll(60)
            producer.publish(request.headers["reply-to"], b"not " + request.body)
            request.finish()
            consumer.flush()

    channel(user, "ask")
    with ThreadPoolExecutor(1) as other:
        answered = other.submit(answer)
        assert user("pub", "ask", "yes", "--reply-within", "60s") == ("not yes\n", "")
        answered.result()
    assert "no answer came within 0.01 s" in user("pub", "ask", "lost", "--reply-within", "10ms", code=1)[1]
    assert "is for one message" in user("pub", "ask", "a", "b", "--reply-within", "1s", code=2)[1]
    (found,) = user("sub", "ask", "c", "-n", "1", "--json")[0].splitlines()
    assert json.loads(found)["headers"]["reply-to"].endswith("#ephemeral")


def test_jobs(user: User) -> None:
    assert user("put", "work", "a", "b") == ("", "2 put\n")
    assert user("put", "work", stdin=b"c\nd")[1] == "2 put\n"
    assert user("reserve", "work", "-n", "1", "--release")[0] == "a\n"
    assert user("reserve", "work", "-n", "1", "--bury")[0] == "a\n"
    out, _ = user("reserve", "work", "--until-empty", "--json")
    assert [json.loads(line)["body"] for line in out.splitlines()] == ["b", "c", "d"]


@each("words, code, why", [
    (("pub", "a b", "x"), 2, "is not a legal name"), (("pub", "t", "x", "--header", "novalue"), 2, "expects NAME=VALUE"),
    (("pub", "t", "--file", "/nonexistent/f"), 1, "/nonexistent/f: No such file"), (("sub", "t", "a b", "-n", "1"), 1, "a b"),
    (("bench", "pub", "--topic", "a b"), 2, "legal name"),
])  # fmt: skip
def test_wrong_arguments(user: User, words: tuple[str, ...], code: int, why: str) -> None:
    _, error = user(*words, code=code)
    assert why in error
    assert error.count("\n") == 1


def test_bench(user: User) -> None:
    channel(user, "load")
    out, _ = user("bench", "pub", "--topic", "load", "--count", "20", "--connections", "2", "--batch", "4", "--json")
    assert {"messages": 20}.items() <= json.loads(out).items()
    out, _ = user("bench", "sub", "--topic", "load", "--channel", "c", "--count", "20")
    assert out.startswith("20 messages in ")
    out, _ = user("bench", "jobs", "--count", "5", "--connections", "2", "--json")
    found = json.loads(out)
    assert found["messages"] == 5
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["max"]


@pytest.mark.parametrize("words", [("sub", "keys", "c"), ("read", "keys", "-f"), ("reserve", "keys")])
def test_ctrl_c_ends_what_waits_for_more(user: User, words: tuple[str, ...]) -> None:
    post(user.node, "/topic/create", topic="keys", retention="1h")
    post(user.node, "/channel/create", topic="keys", channel="c")
    jobs = ("--job-address", user.jobs) if words[0] == "reserve" else ()
    user("put" if jobs else "pub", "keys", "x")
    with Tool(our_command("penstock"), *words, *jobs, "--nsqd-http-address", user.node.http) as tool:
        eventually(lambda: tool.out)
        assert (tool.stop(signal.SIGINT), tool.out[0], tool.lines) == (130, "x\n", [])


def test_what_a_closed_pipe_did_not_take_is_delivered_at_once(user: User) -> None:
    channel(user, "piped")
    user("pub", "piped", "a", "b")
    reading, writing = os.pipe()
    os.close(reading)
    command = [*our_command("penstock"), "sub", "piped", "c", "--nsqd-http-address", user.node.http]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(user("sub", "piped", "c", "-n", "2")[0].split()) == ["a", "b"]


def test_the_histogram_has_a_row_for_each_doubling() -> None:
    result = Result(4, 400, 2.0)
    result.latencies.record_many([15_000, 900_000, 1_000_000, 30_000_000])
    head, latencies, *rows = lines_of(result)
    assert head == "4 messages in 2.00 s: 2 messages/s, 0.000 MB/s"
    assert latencies.endswith("max 30.00")
    assert [row.split()[2:4] for row in rows] == [["ms", "1"], ["ms", "2"], ["ms", "1"]]
    assert [row.count("#") for row in rows] == [20, 40, 20]
    assert len(list(lines_of(Result()))) == 1
