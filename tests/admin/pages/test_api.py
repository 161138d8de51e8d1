"""The original's JSON API: on real daemons, and on upstreams that fail, lie and hang."""

import asyncio
import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from admin.options import AdminOptions
from shared.configuration import read
from tests.admin.asking import visiting
from tests.admin.conftest import Cluster, a_node, json_answer, nsqadmin
from tests.admin.near_nodes import near
from tests.async_tests import on_asyncio
from tests.cases import each
from tests.daemons import Daemon, eventually, nsqd, post, run


def ask(cluster: Cluster, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    content = json.dumps(body) if body is not None else None
    answer = httpx.request(method, cluster.url + path, content=content, headers=headers, timeout=20)
    return answer.status_code, answer.json()


@pytest.mark.process
def test_topics_nodes_and_counts(cluster: Cluster) -> None:
    cluster.channel("counted", "c")
    cluster.publish("counted", "a", "b")
    cluster.publish("counted", "d", node=1)
    status, names = ask(cluster, "GET", "/api/topics")
    assert (status, "counted" in names["topics"]) == (200, True)
    _, topic = ask(cluster, "GET", "/api/topics/counted")
    assert (topic["node"], topic["message_count"], len(topic["nodes"]), topic["message"]) == ("*", 3, 2, "")
    assert [(one["channel_name"], one["depth"]) for one in topic["channels"]] == [("c", 3)]
    _, channel = ask(cluster, "GET", "/api/topics/counted/c")
    assert (channel["depth"], channel["client_count"], channel["clients"]) == (3, 0, None)
    assert sorted(one["depth"] for one in channel["nodes"]) == [1, 2]
    _, nodes = ask(cluster, "GET", "/api/nodes")
    assert {one["http_port"] for one in nodes["nodes"]} == {int(node.http.rpartition(":")[2]) for node in cluster.nodes}
    assert all(len(one["remote_addresses"]) == 1 and not one["out_of_date"] for one in nodes["nodes"])
    address = cluster.nodes[1].http
    _, node = ask(cluster, "GET", f"/api/nodes/{address}")
    counted = [one for one in node["topics"] if one["topic_name"] == "counted"]
    assert (node["node"], counted[0]["message_count"]) == (address, 1)
    _, counter = ask(cluster, "GET", "/api/counter")
    assert counter["stats"][f"counted:c:{address}"]["message_count"] == 1


@pytest.mark.process
def test_what_is_done_is_done_everywhere(cluster: Cluster) -> None:
    cluster.channel("acted", "c")
    cluster.publish("acted", "a", "b")
    done = (200, {"message": ""})
    for path in ("/api/topics/acted", "/api/topics/acted/c"):
        for action in ("pause", "unpause"):
            assert ask(cluster, "POST", path, {"action": action}) == done
            assert ask(cluster, "GET", path)[1]["paused"] is (action == "pause")
    assert ask(cluster, "POST", "/api/topics/acted/c", {"action": "empty"}) == done
    assert ask(cluster, "GET", "/api/topics/acted/c")[1]["depth"] == 0
    assert ask(cluster, "DELETE", "/api/topics/acted/c") == done
    eventually(lambda: ask(cluster, "GET", "/api/topics/acted")[1]["channels"] is None)
    assert ask(cluster, "DELETE", f"/api/nodes/{cluster.nodes[0].http}", {"topic": "acted"}) == done
    eventually(lambda: len(ask(cluster, "GET", "/api/topics/acted")[1]["nodes"]) == 1)
    assert ask(cluster, "DELETE", "/api/topics/acted") == done
    eventually(lambda: "acted" not in ask(cluster, "GET", "/api/topics")[1]["topics"])
    assert ask(cluster, "POST", "/api/topics", {"topic": "made", "channel": "c"}) == done
    assert ask(cluster, "GET", "/api/topics?inactive=true")[1]["topics"]["made"] == ["c"]
    status, answer = ask(cluster, "GET", "/api/topics/made")
    assert (status, answer) == (502, {"message": "UPSTREAM_ERROR: failed to query any nsqd: "})  # the original's quirk


@pytest.mark.process
def test_small_answers_are_compressed_as_in_the_original(cluster: Cluster) -> None:
    for path in ("/ping", "/api/topics", "/api/topics/none"):
        packed, plain = (
            httpx.get(f"{cluster.url}{path}", headers={"Accept-Encoding": kind}, timeout=20)
            for kind in ("gzip", "identity")
        )
        assert (packed.headers["content-encoding"], "content-encoding" in plain.headers) == ("gzip", False)
        assert len(packed.text) < 500
        assert plain.text == packed.text


# without daemons


@each("method, path, body, status, message", [
    ("POST", "/api/topics", {"topic": "a b"}, 400, "INVALID_TOPIC"),
    ("POST", "/api/topics", {"topic": "t", "channel": "a b"}, 400, "INVALID_CHANNEL"),
    ("POST", "/api/topics", [], 400, "expected an object"),
    ("POST", "/api/topics", {"topic": 7}, 400, "topic: expected a string"),
    ("POST", "/api/topics/t", {"action": "dance"}, 400, "INVALID_ACTION"),
    ("DELETE", "/api/nodes/h:1", None, 400, "INVALID_BODY"),
    ("DELETE", "/api/nodes/h:1", {"topic": ""}, 400, "INVALID_TOPIC"),
    ("GET", "/api/nodes/h:1", None, 404, "NODE_NOT_FOUND"), ("GET", "/api/graphite", None, 400, "INVALID_ARG_METRIC"),
    ("GET", "/api/graphite?metric=rate", None, 400, "INVALID_ARG_TARGET"),
    ("GET", "/api/graphite?metric=rate&target=x", None, 500, "INTERNAL_ERROR"),
    ("GET", "/config/nope", None, 400, "INVALID_OPTION"), ("PUT", "/config/base_path", "x", 400, "INVALID_OPTION"),
    ("PUT", "/config/log_level", "loud", 400, "INVALID_VALUE"),
    ("PUT", "/config/nsqlookupd_http_addresses", {"a": 1}, 400, "INVALID_VALUE"),
    ("GET", "/api/nope", None, 404, "NOT_FOUND"), ("PUT", "/api/topics", None, 405, "METHOD_NOT_ALLOWED"),
])  # fmt: skip
@on_asyncio
async def test_mistakes(method: str, path: str, body: object, status: int, message: str) -> None:
    with a_node() as lookupd:
        client = visiting(lookupd_http_address=(lookupd,), nsqd_http_address=())
        answer = await client.request(method, path, content=json.dumps(body) if body is not None else None)
    assert (answer.status_code, answer.json()) == (status, {"message": message})


@on_asyncio
async def test_options_can_be_asked_and_some_changed() -> None:
    lookupds = "/config/nsqlookupd_http_addresses"
    with a_node() as lookupd:
        client = visiting(lookupd_http_address=(lookupd,), nsqd_http_address=())
        await client.put("/config/log_level", content="info")
        assert (await client.get(lookupds)).json() == [lookupd]
        for addresses, status, words in (
            (["127.0.0.1:1"], 502, "UPSTREAM_ERROR: failed to query any nsqlookupd: http://127.0.0.1:1/topics"),
            (["127.0.0.1:1", lookupd], 200, "WARNING: http://127.0.0.1:1/topics"),
        ):
            done = await client.put(lookupds, json=addresses)
            assert (done.status_code, done.json()) == (200, addresses)
            answer = await client.get("/api/topics")
            assert (answer.status_code, answer.json()["message"].startswith(words)) == (status, True)
        assert (await client.get("/config/acl_http_header")).text == "X-Forwarded-User"


@on_asyncio
async def test_admin_users_notifications_and_a_base_path() -> None:
    notified: list[str] = []
    answers = near(lambda path: json_answer({}), on_request=lambda asked: notified.append(asked.url.path))
    with a_node() as lookupd, answers as hook:
        options: dict[str, Any] = {"admin_user": ("ann",), "base_path": "/nsq", "allow_config_from_cidr": "10.0.0.0/8"}
        options |= {"nsqd_http_address": (), "lookupd_http_address": (lookupd,)}
        client = visiting(notification_http_endpoint=f"http://{hook}/hook", **options)
        forbidden = {"message": "FORBIDDEN"}
        ann = {"X-Forwarded-User": "ann", "Authorization": "Basic " + base64.b64encode(b"ann:x").decode()}
        for headers, status in (({}, 403), ({"X-Forwarded-User": "eve"}, 403), (ann, 200)):
            answer = await client.post("/nsq/api/topics", json={"topic": "t"}, headers=headers)
            assert (answer.status_code, answer.json() == forbidden) == (status, status == 403)
        assert (await client.get("/nsq/config/log_level")).json() == forbidden
        assert (await client.get("/api/topics")).status_code == 404
        assert (await client.get("/nsq/ping")).text == "OK"
        assert (await client.get("/nsq/")).headers["location"] == "/nsq"
        while not notified:
            await asyncio.sleep(0.01)
    assert notified == ["/hook"]


@on_asyncio
async def test_graphites_pictures_come_by_way_of_us() -> None:
    asked: list[str] = []
    with near(
        lambda path: json_answer([{"datapoints": [[30, 1]]}]),
        on_request=lambda one: asked.append(one.url.raw_path.decode()),
    ) as address:
        client = visiting(graphite_url=f"http://{address}", proxy_graphite=True)
        answer = await client.get("/render?target=a.b&format=json&target=c")
        assert (answer.status_code, answer.json()) == (200, [{"datapoints": [[30, 1]]}])
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert asked == ["/render?target=a.b&format=json&target=c"]
    assert (await visiting().get("/render?target=a")).status_code == 404


@each("answer, words", [
    ((200, b"{"), "something that is not JSON"), ((200, b"[]"), "answered JSON that is not an object"),
    ((200, b'{"topics": 7}'), ""), ((200, b'{"topics": [1, null, "t"]}'), ""),
    ((500, b"<b>broken</b>"), "answered 500"), ((200, b"[" * 100_000), "something that is not JSON"),
])  # fmt: skip
@on_asyncio
async def test_upstreams_that_lie(answer: tuple[int, bytes], words: str) -> None:
    with near(lambda path: answer) as liar:
        client = visiting(lookupd_http_address=(liar,), nsqd_http_address=())
        got = await client.get("/api/topics")
        assert (got.status_code, words in got.text) == (502 if words else 200, True)
        for path in ("/api/nodes", "/"):
            assert (await client.get(path)).status_code in (200, 502)


@each("flags, words", [
    ((), "--nsqd-http-address or --lookupd-http-address required"),
    (("-nsqd-http-address", "h:1", "-lookupd-http-address", "h:2"), "not both"),
    (("-nsqd-http-address", "nope"), "--nsqd-http-address 'nope'"),
    (("-nsqd-http-address", "h:1", "-base-path", "x"), "expected a path that begins with /"),
    (("-nsqd-http-address", "h:1", "-allow-config-from-cidr", "x"), "failed to parse --allow-config-from-cidr (x)"),
    (("-nsqd-http-address", "h:1", "-http-client-tls-cert", "x"), "must be specified together"),
])  # fmt: skip
def test_wrong_options(flags: tuple[str, ...], words: str) -> None:
    assert words in str(read(AdminOptions, "nsqadmin", flags, {}).errors[0])


@pytest.mark.process
def test_a_start_that_fails_has_the_message_of_the_original() -> None:
    node = "-nsqd-http-address", "127.0.0.1:1"
    for flags, words in (
        ((), "--nsqd-http-address or --lookupd-http-address required"),
        ((*node, "-http-address", "203.0.113.1:1"), "failed to instantiate nsqadmin - listen"),
    ):
        done = run("nsqadmin", *flags)
        assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (1, True, False)


@pytest.mark.process
def test_a_cluster_of_the_originals_shows_what_the_original_nsqadmin_shows(tmp_path: Path) -> None:
    """PENSTOCK_NSQ: a directory with NSQ's nsqlookupd, nsqd and nsqadmin."""
    directory = Path(os.environ.get("PENSTOCK_NSQ", "") or "/nowhere")
    programs = {name: directory / name for name in ("nsqlookupd", "nsqd", "nsqadmin")}
    if not all(program.exists() for program in programs.values()):
        pytest.skip("PENSTOCK_NSQ names no directory with NSQ's daemons")
    local = "-broadcast-address", "127.0.0.1"
    with (
        Daemon("nsqlookupd", command=[str(programs["nsqlookupd"])]) as lookupd,
        nsqd(tmp_path, "-lookupd-tcp-address", lookupd.tcp, *local, command=[str(programs["nsqd"])]) as node,
        nsqadmin("-lookupd-http-address", lookupd.http) as penstock,
    ):
        command = [programs["nsqadmin"], "-http-address", "127.0.0.1:0", "-lookupd-http-address", lookupd.http]
        original = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            address = next(line for line in original.stderr or () if "listening on" in line).split()[-1]
            post(node, "/topic/create", topic="t")
            post(node, "/channel/create", topic="t", channel="c")
            post(node, "/pub", "hello", topic="t")
            eventually(lambda: httpx.get(f"http://{penstock.http}/api/topics").json()["topics"] == ["t"])
            kinds = ("topics", "topics/t", "topics/t/c", "nodes", "counter", "topics?inactive=true")
            for kind in (f"nodes/127.0.0.1:{node.http.rpartition(':')[2]}", *kinds):
                got = [httpx.get(f"http://{admin}/api/{kind}") for admin in (address, penstock.http)]
                assert got[0].status_code == got[1].status_code == 200
                assert got[0].text == got[1].text, kind
        finally:
            original.kill()
            original.communicate()
