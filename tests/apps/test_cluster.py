"""Requests to other daemons: names and addresses out of answers that may lie."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.cluster import Cluster, Timeouts, _over_https, node_addresses, topic_names, url
from penstock.protocol import is_valid_name
from shared.http.bounded import AnswerError

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
PRODUCER = st.fixed_dictionaries({}, optional={"broadcast_address": ANY, "http_port": ANY | st.integers(1, 65535)})


def test_an_address_becomes_a_url_and_a_node_that_wants_https_says_where() -> None:
    assert url("127.0.0.1:4161") == "http://127.0.0.1:4161"
    assert url("https://host:1/") == "https://host:1"
    assert _over_https("http://host:4151/stats", {"https_port": 4152}) == "https://host:4152/stats"
    for lie in (None, 0, "4152", 70000, True):
        with pytest.raises(AnswerError):
            _over_https("http://host:4151/stats", {"https_port": lie})


@given(st.dictionaries(st.text(max_size=5), st.dictionaries(st.sampled_from(["topics"]), ANY), max_size=3))
def test_no_answer_brings_a_name_that_is_not_valid(answers: dict[str, dict[str, Any]]) -> None:
    assert all(map(is_valid_name, topic_names(answers)))


def test_nodes_are_asked_at_their_broadcast_addresses() -> None:
    producers = [
        {"broadcast_address": "host", "http_port": 4151, "tcp_port": 4150},
        {"broadcast_address": "::1", "http_port": 1}, {"broadcast_address": "host/path?", "http_port": 1},
        {"broadcast_address": "host", "http_port": 65536}, {"broadcast_address": "", "http_port": 1}, 7,
    ]  # fmt: skip
    answers = {"a": {"producers": producers}, "b": {"producers": producers[:1]}, "c": {"producers": None}}
    assert node_addresses(answers) == ["host:4151", "[::1]:1"]


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.dictionaries(st.sampled_from(["producers"]), ANY | st.lists(PRODUCER, max_size=3)),
        max_size=3,
    )
)
def test_any_answer_brings_addresses_or_none(answers: dict[str, dict[str, Any]]) -> None:
    for address in node_addresses(answers):
        assert address.rpartition(":")[2].isdigit()


async def test_answers_are_bounded_and_one_that_cannot_be_used_is_left_out() -> None:
    def reply(status: int, content: object) -> httpx.Response:
        return httpx.Response(status, stream=httpx.ByteStream(json.dumps(content).encode()))

    def answer(request: httpx.Request) -> httpx.Response:
        match request.url.host:
            case "secure" if request.url.scheme == "http":
                return reply(403, {"https_port": 4152})
            case "secure" | "good":
                return reply(200, {"port": request.url.port, "query": request.url.params["topic"]})
            case "large":
                return httpx.Response(200, headers={"Content-Length": str(9 << 20)}, stream=httpx.ByteStream(b""))
            case "list":
                return reply(200, [])
            case "circle":
                return reply(403, {"https_port": "4152"})
            case _:
                return reply(404, {"message": "TOPIC_NOT_FOUND"})

    async with Cluster(Timeouts(10**9, 10**9)) as cluster:
        cluster._client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        addresses = ["good:1", "secure:4151", "large:1", "list:1", "circle:1", "missing:1", "not an address"]
        answers = await cluster.ask(addresses, "/lookup", {"topic": "t"})
    assert answers == {"good:1": {"port": 1, "query": "t"}, "secure:4151": {"port": 4152, "query": "t"}}
