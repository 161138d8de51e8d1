"""Messages and jobs of several logs, as operators list them and act on them: by offsets that mean one message."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nsqd.core.limits import Limits
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.http.dead_letters import DeadLetters
from nsqd.http.jobs import Jobs
from nsqd.http.message_actions import MessageActions
from nsqd.http.messages import Messages
from nsqd.protocols.disque.ids import JobIds
from shared.http.errors import HttpError
from shared.http.route import handlers
from tests.nsqd.core.node import Node
from tests.nsqd.core.promoted import PromotedLog, promote
from tests.nsqd.http.asking import handled, http_node

SHARD = 1 << 48  # the offset of the first message of the first promoted log


class Http:
    """The routes for messages and jobs of a node, called without a server."""

    def __init__(self, node: Node) -> None:
        options = SimpleNamespace(max_req_timeout=10**12)
        inner = http_node(node.broker, options=options, job_ids=JobIds(b"c"))
        parts = (Messages(inner), MessageActions(inner), DeadLetters(inner), Jobs(inner))
        self._routes = handlers(route.parsing() for part in parts for route in part.routes())
        self._node = node

    def raw(self, path: str, **arguments: Any) -> bytes:
        (handler,) = self._routes[path].values()
        answer = handled(handler, **arguments)
        self._node.turn()
        return answer

    def __call__(self, path: str, **arguments: Any) -> dict[str, Any]:
        return json.loads(self.raw(path, **arguments))

    def pages(self, path: str, key: str, **arguments: Any) -> list[dict[str, Any]]:
        found, page = [], self(path, **arguments)
        while True:
            assert len(page[key]) <= arguments["limit"]
            found += page[key]
            if "next" not in page:
                return found
            page = self(path, after=page["next"], **arguments)


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.broker.check()


CHANNEL = {"topic": "t", "channel": "c"}


@pytest.fixture
def http(node: Node) -> Http:
    node.channel("t", "c")
    node.publish("t", b"own0", b"own1", b"own2")
    promote(node, 8, "t", "c", b"a0", b"a1", b"a2")
    promote(node, 9, "t", "c", b"b0", b"b1")
    return Http(node)


def counts(node: Node) -> list[tuple[int, ...]]:
    channel = node.channel("t", "c")
    return [tuple(one.counts()) for one in channel.shards]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_have_the_messages_of_all_logs(http: Http, limit: int) -> None:
    found = http.pages("/channel/messages", "messages", **CHANNEL, state="ready", limit=limit)
    assert [one["body"] for one in found] == ["own0", "own1", "own2", "a0", "a1", "a2", "b0", "b1"]
    assert [one["offset"] for one in found] == [0, 1, 2, SHARD, SHARD + 1, SHARD + 2, 2 * SHARD, 2 * SHARD + 1]
    assert http("/channel/messages", **CHANNEL, state="ready", limit=limit)["total"] == 8
    for one in found:
        assert http.raw("/channel/message", **CHANNEL, offset=one["offset"]).decode() == one["body"]


def test_an_offset_or_a_page_of_a_log_that_is_not_there(http: Http) -> None:
    with pytest.raises(HttpError, match="MESSAGE_NOT_FOUND"):
        http("/channel/message", **CHANNEL, offset=9 * SHARD)
    for after in ("@9:", "@1", "@x:1", "@"):
        with pytest.raises(HttpError, match="INVALID_ARG_AFTER"):
            http("/channel/messages", **CHANNEL, state="ready", after=after)
    assert http("/channel/messages/finish", **CHANNEL, offset=9 * SHARD) == {"finished": 0}


def test_actions_take_the_messages_of_the_log_that_the_offset_names(node: Node, http: Http) -> None:
    assert http("/channel/messages/finish", **CHANNEL, offset=f"1,{SHARD},{SHARD + 2}") == {"finished": 3}
    assert counts(node) == [(2, 0, 0, 0), (1, 0, 0, 0), (2, 0, 0, 0)]
    assert http("/channel/messages/requeue", **CHANNEL, offset=SHARD + 1, delay=1000) == {"requeued": 1}
    assert http("/channel/messages/bury", **CHANNEL, offset=2 * SHARD) == {"buried": 1}
    assert counts(node) == [(2, 0, 0, 0), (0, 0, 1, 0), (1, 0, 0, 1)]
    assert http("/channel/messages/move", **CHANNEL, offset=2 * SHARD + 1, to="u") == {"moved": 1}
    assert node.broker.topics["u"].depth == 1
    assert http("/channel/messages/kick", **CHANNEL, offset=2 * SHARD) == {"kicked": 1}
    assert counts(node) == [(2, 0, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0)]


def test_the_first_n_are_taken_from_one_log_after_the_other(node: Node, http: Http) -> None:
    assert http("/channel/messages/bury", **CHANNEL, state="ready", count=5) == {"buried": 5}
    assert counts(node) == [(0, 0, 0, 3), (1, 0, 0, 2), (2, 0, 0, 0)]
    found = http("/channel/buried", **CHANNEL, limit=4, body="true")
    assert (found["buried_count"], len(found["messages"])) == (5, 4)
    last = found["messages"][-1]["id"]
    (rest,) = http("/channel/buried", **CHANNEL, after=last)["messages"]
    assert http("/channel/buried/finish", **CHANNEL, id=rest["id"]) == {"finished": 1}
    assert counts(node) == [(0, 0, 0, 3), (1, 0, 0, 1), (2, 0, 0, 0)]
    assert http("/channel/buried/kick", **CHANNEL, count=4) == {"kicked": 4}
    assert counts(node) == [(3, 0, 0, 0), (2, 0, 0, 0), (2, 0, 0, 0)]


def test_jobs_of_all_logs() -> None:
    node = Node(Limits(whole_job_ids=True))
    node.broker.tubes.put_to("t", b"own", JobOptions(0, 60, 0, 0, True))
    log = PromotedLog(node, 8)
    for body in (b"a", b"b"):
        log.broker.tubes.put_to("t", body, JobOptions(0, 60, 0, 0, True))
    log.attach()
    http = Http(node)
    found = http.pages("/tube/jobs", "jobs", tube="t", state="ready", limit=2)
    assert [one["body"] for one in found] == ["own", "a", "b"]
    assert http("/tube/jobs", tube="t", state="ready")["total"] == 3
    assert http("/tube/jobs/bury", tube="t", id=f"{found[0]['id']},{found[2]['id']}") == {"buried": 2}
    assert http("/tube/jobs/kick", tube="t", state="buried", count=1) == {"kicked": 1}
    assert http("/tube/jobs/delete", tube="t", id=",".join(str(one["id"]) for one in found)) == {"deleted": 3}
    node.broker.check()


def test_a_page_passes_over_logs_that_have_nothing_to_list(node: Node, http: Http) -> None:
    assert http("/channel/messages/bury", **CHANNEL, offset=2 * SHARD) == {"buried": 1}
    page = http("/channel/messages", **CHANNEL, state="buried", limit=1)
    assert [one["offset"] for one in page["messages"]] == [2 * SHARD]
    assert "next" not in page
