"""The responses of an nsqlookupd about the nodes of a cluster, also malicious ones."""

import json
from typing import Any

import httpx
import pytest

from nsqd.discovery import queries
from nsqd.discovery.queries import MOST_PEERS, cluster_peers_of, contact_ages_of
from shared.http.bounded import AnswerError

REAL = httpx.AsyncClient


def answering(monkeypatch: pytest.MonkeyPatch, content: Any, status: int = 200) -> None:
    """Let every request have this answer."""
    body = json.dumps(content).encode()
    transport = httpx.MockTransport(lambda request: httpx.Response(status, stream=httpx.ByteStream(body)))
    monkeypatch.setattr(queries.httpx, "AsyncClient", lambda **given: REAL(transport=transport))


def node(cluster: Any, address: Any) -> dict[str, Any]:
    return {"cluster": cluster, "cluster_address": address}


async def ask() -> list[str]:
    return await cluster_peers_of("http://lookup/nodes", "c", (1.0, 1.0))


async def test_the_nodes_of_the_cluster_are_found_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("c", "a:1"), node("d", "b:1"), {"hostname": "nsq"}, node("c", "[::1]:2")]
    answering(monkeypatch, {"producers": nodes})
    assert await ask() == ["a:1", "[::1]:2"]


@pytest.mark.parametrize(
    "content",
    [{}, {"producers": None}, {"producers": "c"}, {"producers": [None, 1, [], node("c", None), node("c", 5)]},
     {"producers": [node("c", "a"), node("c", "a:0"), node("c", "a b:1"), node("c", "x" * 400 + ":1"), node(["c"], "a:1")]}],
)  # fmt: skip
async def test_a_malicious_response_names_no_node(monkeypatch: pytest.MonkeyPatch, content: Any) -> None:
    answering(monkeypatch, content)
    assert await ask() == []


async def test_no_more_than_a_few_nodes_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {"producers": [node("c", f"a:{port}") for port in range(1, 1000)]})
    assert len(await ask()) == MOST_PEERS


async def test_an_error_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {}, 500)
    with pytest.raises(AnswerError):
        await ask()


def contact(cluster: Any, number: Any, ago: Any, connected: Any = True) -> dict[str, Any]:
    return {"cluster": cluster, "node_id": number, "last_contact": ago, "connected": connected}


async def contact_ages() -> dict[int, float]:
    return await contact_ages_of("http://lookup/nodes", "c", (1.0, 1.0))


async def test_the_latest_word_about_each_node_of_the_cluster_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(
        monkeypatch,
        {
            "cluster_nodes": [
                contact("c", 1, 7.5), contact("c", 1, 2), contact("d", 2, 1), contact("c", 0, 0),
                contact("c", 1, 1, connected=False), contact("c", 3, 1, connected=False), contact("c", 4, 1, connected="yes"),
            ]
        },
    )  # fmt: skip
    assert await contact_ages() == {1: 2.0, 0: 0.0}


@pytest.mark.parametrize(
    "content",
    [{}, {"cluster_nodes": None}, {"cluster_nodes": "c"}, {"cluster_nodes": [None, 1, [], {"cluster": "c"}]},
     {"cluster_nodes": [contact("c", number, 1.0) for number in (-1, 1024, 1.0, "1", None, True)]},
     {"cluster_nodes": [contact("c", 1, ago) for ago in (-1, 1e7, "1", None, [])]}],
)  # fmt: skip
async def test_a_word_about_a_node_that_lies_says_nothing(monkeypatch: pytest.MonkeyPatch, content: Any) -> None:
    answering(monkeypatch, content)
    assert await contact_ages() == {}
