"""What requests over HTTP make: topics up to the limit of an identity, and tubes only with the right. No socket."""

from types import SimpleNamespace
from typing import cast

import pytest
from starlette.requests import Request

from nsqd.http.arguments import made_topic, made_tube, topic_to_publish_to
from nsqd.http.node import Node as HttpNode
from nsqd.http.parts import parts_of_tube
from nsqd.protocols.account import Accounts
from shared.auth.auth_file import parse
from shared.http.errors import HttpError
from tests.nsqd.core.node import Node
from tests.nsqd.http.test_parts import Http
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire

ENTRY = """
[[role]]
name = "acting"
rules = [{{ verbs = ["act"] }}]
[[user]]
name = "a"
roles = ["{}"]
limits = {{ topics = {} }}
"""


def request_of(role: str, topics: int = 1) -> Request:
    (identity,) = parse(ENTRY.format(role, topics)).identities()
    return Request({"type": "http", "state": {"identity": identity}})


def http_of(node: Node, accounts: Accounts | None = None) -> HttpNode:
    return cast(HttpNode, SimpleNamespace(broker=node.broker, accounts=accounts))


def using(node: Node, tube: str) -> None:
    BeanstalkWire(node).ask(b"use %s\r\n" % tube.encode())


def test_a_topic_too_many_is_forbidden_and_existing_ones_are_not() -> None:
    node = Node()
    http, request = http_of(node, Accounts()), request_of("producer")
    assert made_topic(http, request, "t") is node.broker.topics["t"]
    for make in (made_topic, topic_to_publish_to):
        with pytest.raises(HttpError) as raised:
            make(http, request, "u")
        assert (raised.value.status, raised.value.text) == (403, "TOO_MANY_TOPICS")
    assert topic_to_publish_to(http, request, "t") is made_topic(http, request, "t")
    node.broker.delete_topic("t")
    assert made_topic(http, request, "u").name == "u"
    assert made_topic(http_of(node), Request({"type": "http", "state": {}}), "v").name == "v"


def test_a_pause_makes_a_tube_only_for_who_may_make_one() -> None:
    node = Node()
    using(node, "used")
    http = http_of(node, Accounts())
    with pytest.raises(HttpError, match="FORBIDDEN"):
        made_tube(http, request_of("acting"), "used")
    assert not node.broker.topics
    with pytest.raises(HttpError, match="TUBE_NOT_FOUND"):
        made_tube(http, request_of("operator"), "nowhere")
    assert made_tube(http, request_of("operator"), "used") is node.broker.tubes.tube("used")
    assert node.broker.topics["used"].is_tubes_own
    using(node, "more")
    with pytest.raises(HttpError, match="TOO_MANY_TOPICS"):
        made_tube(http, request_of("operator"), "more")
    assert made_tube(http, request_of("acting"), "used") is node.broker.tubes.tube("used")


def test_who_looks_at_a_tube_that_is_merely_used_makes_nothing() -> None:
    node = Node()
    using(node, "used")
    http = Http(node)
    found = http("/tube/jobs", tube="used", state="ready")
    assert (found["total"], found["jobs"], found["tube"]["using_count"]) == (0, [], 1)
    for action, done in (("kick", "kicked"), ("bury", "buried"), ("delete", "deleted"), ("release", "released")):
        assert http(f"/tube/jobs/{action}", tube="used", id=1) == {done: 0}
    assert parts_of_tube(node.broker, "used") == []
    assert not node.broker.topics
