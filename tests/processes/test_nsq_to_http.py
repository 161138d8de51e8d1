"""nsq_to_http as a process: kills, hostile endpoints, and the requests of the original."""

from __future__ import annotations

import signal
import threading

import pytest

from tests.daemons import Daemon, eventually, publish
from tests.forwarding import SOON, Tool, drained, make_channel, original, state
from tests.http_endpoint import OK, Answer, Endpoint, Request, always, status

pytestmark = pytest.mark.process

CHANNEL = "nsq_to_http"


def words(program: str, source: Daemon, topic: str, *flags: str) -> list[str]:
    return [program, f"-topic={topic}", f"-nsqd-tcp-address={source.tcp}", *SOON, *flags]


def prepared(source: Daemon, topic: str, *bodies: bytes) -> None:
    make_channel(source, topic, CHANNEL)
    publish(source, topic, *bodies)


# others are in tests/apps/test_http_sending.py
HOSTILE: dict[str, tuple[Answer, str]] = {
    "500": (always(status(500)), "got status code 500"),
    "hang": (always(b""), "no answer in 0.5 s"),
    "endless": (always(b"HTTP/1.1 200 OK\r\n" + b"A: " + b"x" * 80_000), "LineTooLong"),
}


@pytest.mark.parametrize(
    ("name", "number"), [*((name, signal.SIGTERM) for name in HOSTILE), ("hang", signal.SIGINT)], ids=str
)
def test_a_hostile_endpoint_takes_nothing_and_ends_nothing(shared: Daemon, name: str, number: int) -> None:
    answer, text = HOSTILE[name]
    topic = f"{name}{int(number)}"
    prepared(shared, topic, *[b"%d" % i for i in range(300)])
    with Endpoint(answer) as endpoint:
        flags = (
            f"-post={endpoint.url}",
            "-http-client-request-timeout=500ms",
            "-consumer-opt=default_requeue_delay,30s",
        )
        with Tool(*words("nsq_to_http", shared, topic, *flags)) as running:
            assert endpoint.url in running.wait_for_line(text)
            assert running.stop(number) == 0
        assert len([line for line in running.lines if text in line]) <= 22
    assert sum(state(shared, topic, CHANNEL)) == 300
    assert state(shared, topic, CHANNEL)[1] == 0, "no message waits for its timeout"


def test_a_long_request_is_touched_and_ends_after_the_signal(shared: Daemon) -> None:
    prepared(shared, "long", b"a", b"b")
    resume = threading.Event()

    def answer(request: Request, peer: object) -> bool:
        resume.wait(30)
        return always(OK)(request, peer)  # type: ignore[arg-type]

    with Endpoint(answer) as endpoint:
        flags = (f"-post={endpoint.url}", "-consumer-opt=msg_timeout,1s", "-n=1")
        with Tool(*words("nsq_to_http", shared, "long", *flags)) as running:
            eventually(lambda: endpoint.bodies)
            with pytest.raises(
                AssertionError
            ):  # three times the timeout: both are still in flight, one waits for a thread
                eventually(lambda: state(shared, "long", CHANNEL)[1] < 2, timeout=3.0)
            running.process.send_signal(signal.SIGTERM)
            eventually(lambda: state(shared, "long", CHANNEL)[1] == 1)  # the one that waited was given back
            resume.set()
            assert running.process.wait(30) == 0
        assert len(endpoint.bodies) == 1
    assert sum(state(shared, "long", CHANNEL)) == 1


MATTER = ("user-agent", "content-type", "content-length", "accept-encoding", "x-a", "transfer-encoding")
BODIES = (b"plain", b"a b&c=\xff\x00/%s", "grün ~-._*!'()".encode(), b'{"a": 1}', b"x" * 10_000)


@pytest.mark.parametrize(
    "flags",
    [
        ("-post=http://{}/in?a=1",),
        ("-post=http://{}", "-content-type=application/json", "-header=X-A:  b ", "-header=user-agent: me"),
        ("-get=http://{}/in?m=%s", "-header=x-a:1"),
        ("-get=http://{}/%%41/%s", "-mode=round-robin"),
        ("-post=http://u:p@{}/in", "-mode=epsilon-greedy"),
    ],
    ids=["post", "headers", "get", "path", "password"],
)
def test_the_original_sends_the_same_requests(shared: Daemon, request: pytest.FixtureRequest, flags: list[str]) -> None:
    found = {}
    for name, program in (("ours", "nsq_to_http"), ("theirs", original("nsq_to_http"))):
        topic = f"{name}-{request.node.callspec.id}"
        prepared(shared, topic, *BODIES)
        with Endpoint() as endpoint:
            with Tool(*words(program, shared, topic, *(flag.format(endpoint.address) for flag in flags))):
                eventually(lambda topic=topic: drained(shared, topic, CHANNEL))  # type: ignore[misc]
            assert all(one.headers["host"] == endpoint.address for one in endpoint.requests)
            found[name] = sorted(map(_essence, endpoint.requests), key=str)
    assert found["ours"] == found["theirs"]
    assert len(found["ours"]) == len(BODIES)


def _essence(request: Request) -> tuple[object, ...]:
    headers = {name: request.headers.get(name) for name in (*MATTER, "authorization")}
    return request.method, request.target, headers, request.body


@pytest.mark.parametrize(
    ("method", "code"), [("get", code) for code in (301, 302, 303, 307)] + [("post", 303), ("post", 307)]
)
def test_the_original_follows_the_same_redirects(shared: Daemon, method: str, code: int) -> None:
    found = {}
    for name, program in (("ours", "nsq_to_http"), ("theirs", original("nsq_to_http"))):
        topic = f"{name}-{method}-{code}"
        prepared(shared, topic, b"a")
        with Endpoint() as there, Endpoint(always(status(code, f"Location: {there.url}?to=1"))) as here:
            flag = f"-get={here.url}?m=%s" if method == "get" else f"-post={here.url}"
            with Tool(*words(program, shared, topic, flag)):
                eventually(lambda topic=topic: drained(shared, topic, CHANNEL))  # type: ignore[misc]
            found[name] = [(one.method, one.target, one.body) for one in (*here.requests, *there.requests)]
    assert found["ours"] == found["theirs"]
