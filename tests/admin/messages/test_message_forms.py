"""The page of messages on two real nodes, by its forms alone: no script, no browser."""

import gzip
import re
import signal
from typing import Any

import httpx
import pytest

from penstock.client import Consumer
from penstock.sansio.message import Message
from tests.admin.conftest import Cluster
from tests.daemons import eventually

pytestmark = pytest.mark.process
PAGE = "/messages/{}/c"


def look(cluster: Cluster, topic: str, **asked: object) -> str:
    answer = httpx.get(cluster.url + PAGE.format(topic), params={name: str(one) for name, one in asked.items()})
    assert answer.status_code == 200, answer.text
    return answer.text


def post(cluster: Cluster, path: str, **form: object) -> httpx.Response:
    return httpx.post(
        cluster.url + path, data={name: str(one) for name, one in form.items()}, headers={"Origin": cluster.url},
        follow_redirects=True, timeout=30,
    )  # fmt: skip


def counts(cluster: Cluster, topic: str) -> list[dict[str, int]]:
    asked = {"topic": topic, "channel": "c", "state": "ready"}
    answers = [httpx.get(f"http://{node.http}/channel/messages", params=asked).json() for node in cluster.nodes]
    return [one["counts"] for one in answers]


def ready(cluster: Cluster, topic: str) -> list[int]:
    return [one["ready"] for one in counts(cluster, topic)]


def spread(cluster: Cluster, topic: str, count: int) -> None:
    """Publish `count` messages to each node, alternately, so that their order is known."""
    cluster.channel(topic, "c")
    for number in range(count):
        for place in (0, 1):
            cluster.publish(topic, f"body {number}.{place}", node=place)


def is_done(cluster: Cluster, answer: httpx.Response, words: str) -> None:
    eventually(lambda: words in httpx.get(answer.url).text)


def test_the_messages_of_both_nodes_in_one_list_page_by_page(cluster: Cluster) -> None:
    spread(cluster, "merged", 25)
    bodies: list[str] = []
    asked = {"state": "ready"}
    while True:
        text = look(cluster, "merged", **asked)
        bodies += re.findall(r"<pre>(body [0-9.]+)</pre>", text)
        following = re.search(r'after=([A-Za-z0-9_-]+)">Next page<', text)
        assert "50 ready on 2 nodes" in text
        if following is None:
            break
        asked["after"] = following[1]
    assert bodies == [f"body {number}.{place}" for number in range(25) for place in (0, 1)]
    one = look(cluster, "merged", node=cluster.nodes[1].http)
    assert f"25 ready on {cluster.nodes[1].http}" in one
    assert "body 0.0" not in one
    assert httpx.get(f"{cluster.url}/messages/merged/nobody").status_code == 404
    assert httpx.get(f"{cluster.url}/messages/merged/c?after=x").status_code == 400


def test_filters_are_in_the_address_and_act_on_both_nodes(cluster: Cluster) -> None:
    spread(cluster, "filtered", 12)
    for node in cluster.nodes:
        url = f"http://{node.http}/pub?topic=filtered"
        httpx.post(url, content=b"traced", headers={"X-Nsq-Header-Trace": "7f"}).raise_for_status()
    assert "2 matches in 26 scanned messages" in look(cluster, "filtered", header="trace=7f")
    assert "6 matches in 26 scanned messages" in look(cluster, "filtered", search="BODY 1", since="1h")
    assert "0 matches in 26 scanned messages" in look(cluster, "filtered", before="1h")
    refused = httpx.get(f"{cluster.url}/messages/filtered/c?before=soon")
    assert (refused.status_code, "Invalid time" in refused.text) == (400, True)
    preview = look(cluster, "filtered", search="body 1", many="bury", count=26)
    assert "Bury up to 6 ready messages that match the filters?" in preview
    assert "Bury matching messages</button>" in preview
    form = {"action": "bury", "state": "ready", "search": "body 1", "count": 26, "per_second": 1000}
    is_done(cluster, post(cluster, "/messages/filtered/c", **form), "</strong>: 6 of 26 processed;")
    assert [(one["ready"], one["buried"]) for one in counts(cluster, "filtered")] == [(10, 3), (10, 3)]
    assert "6 buried on 2 nodes" in look(cluster, "filtered", state="buried", reason="by hand")


def test_bulk_actions_have_one_total_over_both_nodes(cluster: Cluster) -> None:
    spread(cluster, "bulk", 10)
    form = {"state": "ready", "per_second": 1000}
    is_done(cluster, post(cluster, "/messages/bulk/c", action="bury", count=15, **form), "15 of 15 processed")
    assert sum(ready(cluster, "bulk")) == 5
    refused = post(cluster, "/messages/bulk/c", action="finish", count=5, confirm="4", **form)
    assert (refused.status_code, sum(ready(cluster, "bulk"))) == (400, 5)
    refused = post(cluster, "/messages/bulk/c", action="finish", count=5, confirm="4", since="1h", **form)
    assert "that match the filters" in refused.text
    assert 'type="hidden" name="since" value="1h"' in refused.text
    done = post(cluster, "/messages/bulk/c", action="finish", count=5, confirm="5", **form)
    is_done(cluster, done, "5 of 5 processed")
    assert sum(ready(cluster, "bulk")) == 0
    audit = httpx.get(f"{cluster.url}/audit?q=bulk").text
    assert "ready messages of bulk/c at all nodes" in audit


def test_a_redrive_of_both_nodes_takes_dead_letters_back(cluster: Cluster) -> None:
    for topic in ("source", "dead"):
        cluster.channel(topic, "c")
    for node in cluster.nodes:
        for headers in (
            {},
            {"X-Nsq-Header-dead-letter-topic": "source", "X-Nsq-Header-dead-letter-reason": "timed out"},
        ):
            httpx.post(f"http://{node.http}/pub?topic=dead", content=b"m", headers=headers).raise_for_status()
    text = look(cluster, "dead", state="ready")
    assert text.count(", dead letter of source: timed out") == text.count('aria-label="Redrive ') == 2
    assert "Each dead letter goes back" in look(cluster, "dead", state="ready", many="redrive")
    answer = post(cluster, PAGE.format("dead"), action="redrive", state="ready", count=4, per_second=1000)
    is_done(cluster, answer, "2 of 4 processed")
    assert (ready(cluster, "dead"), ready(cluster, "source")) == ([1, 1], [1, 1])


def test_the_owner_of_a_message_is_shown_and_can_be_disconnected(cluster: Cluster) -> None:
    spread(cluster, "owned", 1)
    with Consumer("owned", "c", [cluster.nodes[0].tcp], max_in_flight=5) as consumer:
        taken: list[Message] = []
        while not taken:
            taken = consumer.poll(10)
        text = look(cluster, "owned", state="in_flight")
        client = re.search(r'name="client" value="([^"]+)"', text)
        assert f"{client[1]}</header>" in text
        httpx.post(f"http://{cluster.nodes[0].http}/channel/pause?topic=owned&channel=c").raise_for_status()
        form = {"action": "disconnect", "node": cluster.nodes[0].http, "client": client[1]}
        assert "The client is disconnected" in post(cluster, "/messages/owned/c", **form).text
        assert ready(cluster, "owned") == [1, 1]
        assert post(cluster, "/messages/owned/c", **form | {"client": "10.0.0.1:1"}).status_code == 502
        assert post(cluster, "/messages/owned/c", **form | {"node": "127.0.0.1:1"}).status_code == 404
    httpx.post(f"http://{cluster.nodes[0].http}/channel/unpause?topic=owned&channel=c").raise_for_status()


def test_a_message_is_edited_and_published_again(cluster: Cluster) -> None:
    cluster.channel("edited", "c")
    node = cluster.nodes[0].http
    url = f"http://{node}/pub?topic=edited"
    httpx.post(url, content=b"\nline 1\nline 2", headers={"X-Nsq-Header-Trace": "7f"}).raise_for_status()
    httpx.post(url, content=gzip.compress(b'{"a": 1}')).raise_for_status()
    assert "<summary>gzip &gt; JSON" in look(cluster, "edited", node=node)
    path = "/republish/edited/c"
    page = httpx.get(f"{cluster.url}{path}?node={node}&offset=0").text
    assert '<textarea name="body" rows="12" required>\n\nline 1\nline 2</textarea>' in page
    assert "trace: 7f</textarea>" in page
    assert 'name="encoding" value="base64"' in httpx.get(f"{cluster.url}{path}?node={node}&offset=1").text
    form: dict[str, Any] = {"node": node, "offset": 0, "encoding": "text", "headers": "trace: 8a"}
    answer = post(cluster, path, body="line 1\r\nline 3", finish=1, **form)
    assert "Published." in answer.text
    listed = httpx.get(f"http://{node}/channel/messages?topic=edited&channel=c&state=ready").json()["messages"]
    (new,) = [(one["offset"], one.get("body"), one.get("headers")) for one in listed][1:]
    assert new == (2, "line 1\nline 3", {"trace": "8a"})
    assert listed[0]["offset"] == 1
    for wrong in ({"body": ""}, {"headers": "nonsense"}, {"encoding": "base64", "body": "%"}):
        assert post(cluster, path, **({"body": "x"} | form | wrong)).status_code == 400
    audit = httpx.get(f"{cluster.url}/audit?q=edited").text
    assert "republish" in audit
    assert "finish" in audit
    assert httpx.get(f"{cluster.url}{path}?node={node}&offset=77").status_code == 404


def test_a_node_that_is_gone_is_named_and_the_rest_is_listed(cluster: Cluster) -> None:
    spread(cluster, "partly", 2)
    text = look(cluster, "partly")
    assert "4 ready on 2 nodes" in text
    stopped = cluster.nodes[1]
    stopped.process.send_signal(signal.SIGSTOP)
    try:
        text = look(cluster, "partly")
        assert f"{stopped.http} did not answer in time. Its messages are not listed." in text
        assert "2 ready on 1 of 2 nodes" in text
        assert "body 1.0" in text
        assert "body 1.1" not in text
    finally:
        stopped.process.send_signal(signal.SIGCONT)
