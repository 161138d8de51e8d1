"""nsq_to_http as a process: a long request over a signal, and the requests of the original."""

import signal
import threading

import pytest

from tests.daemons import Daemon, Tool, eventually, our_command, post, publish
from tests.forwarding import SOON, drained, make_channel, state
from tests.http_endpoint import OK, Endpoint, Request, always, status
from tests.originals import original

pytestmark = pytest.mark.process

CHANNEL = "nsq_to_http"
OURS = our_command("nsq_to_http")


def words(source: Daemon, topic: str, *flags: str) -> list[str]:
    return [f"-topic={topic}", f"-nsqd-tcp-address={source.tcp}", *SOON, *flags]


def prepared(source: Daemon, topic: str, *bodies: bytes) -> None:
    make_channel(source, topic, CHANNEL)
    publish(source, topic, *bodies)


def test_a_long_request_is_touched_and_ends_after_the_signal(shared: Daemon) -> None:
    prepared(shared, "long", b"a", b"b")
    resume = threading.Event()

    def answer(request: Request, peer: object) -> bool:
        resume.wait(30)
        return always(OK)(request, peer)  # type: ignore[arg-type]

    with Endpoint(answer) as endpoint:
        flags = (f"-post={endpoint.url}", "-consumer-opt=msg_timeout,3s", "-n=1")
        with Tool(OURS, *words(shared, "long", *flags)) as running:
            eventually(lambda: endpoint.bodies and state(shared, "long", CHANNEL)[1] == 2)  # one waits for a thread
            with pytest.raises(AssertionError):  # longer than the timeout: both are still in flight
                eventually(lambda: state(shared, "long", CHANNEL)[1] < 2, timeout=4.0)
            running.process.send_signal(signal.SIGTERM)
            eventually(lambda: state(shared, "long", CHANNEL)[1] == 1)  # the one that waited was given back
            resume.set()
            assert running.wait() == 0
        assert len(endpoint.bodies) == 1
    assert sum(state(shared, "long", CHANNEL)) == 1
    post(shared, "/topic/delete", topic="long")


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
    for name, command in (("ours", OURS), ("theirs", [original("nsq_to_http")])):
        topic = f"{name}-{request.node.callspec.id}"
        prepared(shared, topic, *BODIES)
        with Endpoint() as endpoint:
            with Tool(command, *words(shared, topic, *(flag.format(endpoint.address) for flag in flags))):
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
    for name, command in (("ours", OURS), ("theirs", [original("nsq_to_http")])):
        topic = f"{name}-{method}-{code}"
        prepared(shared, topic, b"a")
        with Endpoint() as there, Endpoint(always(status(code, f"Location: {there.url}?to=1"))) as here:
            flag = f"-get={here.url}?m=%s" if method == "get" else f"-post={here.url}"
            with Tool(command, *words(shared, topic, flag)):
                eventually(lambda topic=topic: drained(shared, topic, CHANNEL))  # type: ignore[misc]
            found[name] = [(one.method, one.target, one.body) for one in (*here.requests, *there.requests)]
    assert found["ours"] == found["theirs"]
