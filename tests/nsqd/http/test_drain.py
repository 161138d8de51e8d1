"""A node that drains: every way in is closed, every way out is open, and it reports when nothing is left."""

import pytest

from nsqd.core.sequence.put_batch import JobOptions
from tests.daemons import ERROR, Conversation, sized
from tests.local_node import LocalNode
from tests.nsqd.http.asking import ask, consumer, get, post, reply_of

MS, SECOND = 1_000_000, 1_000_000_000
LEFT = dict.fromkeys(("depth", "in_flight", "deferred", "buried", "jobs", "schedules", "batches"), 0)
NOT_DRAINING = {"draining": False, "since": 0, "done": False} | LEFT


def healths(node: LocalNode) -> list[tuple[int, str]]:
    answers = [node.client.get(path) for path in ("/readyz", "/livez", "/ping")]
    return [(answer.status_code, answer.text) for answer in answers]


def published_statistics(node: LocalNode) -> int:
    node.advance(2 * SECOND)
    return get(node, "/topic/offsets", topic="_stats")["next"]


@pytest.fixture
def node() -> LocalNode:
    node = LocalNode("-statistics-topic", "_stats")
    post(node, "/topic/create", topic="t", retention="1h")
    post(node, "/channel/create", topic="t", channel="c")
    post(node, "/mpub", "one\ntwo\nthree", topic="t")
    node.broker.tubes.put_to("jobs", b"job", JobOptions())
    return node


def test_a_node_is_drained(node: LocalNode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    begun = NOT_DRAINING | {"depth": 3, "jobs": 1}
    assert get(node, "/node/drain") == post(node, "/node/undrain").json() == begun
    before = published_statistics(node)  # they have no consumer
    assert before > 0
    post(node, "/pub", "later", topic="t", defer=300)
    post(node, "/schedule", "x", topic="t", name="n", at="2100-01-01T00:00:00Z")
    answer, since = post(node, "/node/drain"), node.clock.wall // SECOND
    draining = NOT_DRAINING | {"draining": True, "since": since}
    assert answer.json() == draining | {"depth": 3, "deferred": 1, "jobs": 1, "schedules": 1}
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert healths(node) == [(503, "NOK - DRAINING"), (200, "OK"), (200, "OK")]
    assert get(node, "/stats", format="json")["health"] == "OK"

    (job,) = get(node, "/tube/jobs", tube="jobs", state="ready")["jobs"]
    assert post(node, "/tube/jobs/delete", tube="jobs", id=job["id"]).json() == {"deleted": 1}
    assert get(node, "/node/drain")["jobs"] == 0
    with consumer(node, "t", ready=10) as client:
        bodies = []
        for left in (4, 3, 2, 1):
            message, found = client.message(), get(node, "/node/drain")
            assert (found["in_flight"] + found["deferred"], found["done"]) == (left, False)
            bodies.append(message.body)
            client.send(b"FIN " + message.id + b"\n")
            node.advance(10 * MS)
        assert bodies == [b"one", b"two", b"three", b"later"]
        assert get(node, "/node/drain") == draining | {"schedules": 1}
        post(node, "/schedule/delete", topic="t", name="n")
        assert get(node, "/node/drain") == draining | {"done": True}
    assert (published_statistics(node), post(node, "/node/drain").json()["since"]) == (before, since)

    assert (post(node, "/node/undrain").json(), healths(node)) == (NOT_DRAINING, [(200, "OK")] * 3)
    assert post(node, "/pub", "x", topic="t").text == "OK"
    assert published_statistics(node) > before
    assert sum("DRAIN:" in line for line in caplog.messages) == 2


@pytest.mark.parametrize(("path", "content", "arguments"), [
    ("/pub", "x", {}), ("/pub", "x", {"topic": "new", "defer": 5}), ("/pub", "x", {"key": "k"}),
    ("/pub", "x", {"channel": "c"}), ("/mpub", "x\ny", {}),
    ("/channel/messages/move", "", {"channel": "c", "offset": 0, "to": "u"}),
    ("/channel/create", "", {"channel": "again", "from": "earliest"}),
])  # fmt: skip
def test_what_is_refused_meanwhile(node: LocalNode, path: str, content: str, arguments: dict[str, object]) -> None:
    post(node, "/node/drain")
    assert reply_of(ask(node, "POST", path, content, **{"topic": "t"} | arguments)) == (503, "DRAINING")
    with Conversation(node, b"  V2PUB t\n" + sized(b"x")) as producer:
        assert producer.frames() == [(ERROR, b"E_PUB_FAILED PUB failed DRAINING")]
    assert {name: get(node, "/node/drain")[name] for name in LEFT} == LEFT | {"depth": 3, "jobs": 1}
    assert node.broker.topics.keys() <= {"t", "jobs", "_stats"}
