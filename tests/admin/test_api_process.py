"""The original's JSON API on real daemons, and on upstreams that fail, lie and hang."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.admin.conftest import Cluster, a_cluster, nsqadmin, told, upstream
from tests.daemons import Daemon, eventually, nsqd, run

pytestmark = pytest.mark.process


def ask(cluster: Cluster, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    content = json.dumps(body) if body is not None else None
    answer = httpx.request(method, cluster.url + path, content=content, headers=headers, timeout=20)
    return answer.status_code, answer.json()


def test_topics_nodes_and_counts(cluster: Cluster) -> None:
    cluster.channel("counted", "c")
    cluster.publish("counted", "a", "b")
    cluster.publish("counted", "d", node=1)
    status, names = ask(cluster, "GET", "/api/topics")
    assert status == 200
    assert "counted" in names["topics"]
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


def test_what_is_done_is_done_everywhere(cluster: Cluster) -> None:
    cluster.channel("acted", "c")
    cluster.publish("acted", "a", "b")
    for path in ("/api/topics/acted", "/api/topics/acted/c"):
        assert ask(cluster, "POST", path, {"action": "pause"}) == (200, {"message": ""})
        assert ask(cluster, "GET", path)[1]["paused"] is True
        assert ask(cluster, "POST", path, {"action": "unpause"}) == (200, {"message": ""})
        assert ask(cluster, "GET", path)[1]["paused"] is False
    assert ask(cluster, "POST", "/api/topics/acted/c", {"action": "empty"}) == (200, {"message": ""})
    assert ask(cluster, "GET", "/api/topics/acted/c")[1]["depth"] == 0
    assert ask(cluster, "DELETE", "/api/topics/acted/c") == (200, {"message": ""})
    eventually(lambda: ask(cluster, "GET", "/api/topics/acted")[1]["channels"] is None)
    address = cluster.nodes[0].http
    assert ask(cluster, "DELETE", f"/api/nodes/{address}", {"topic": "acted"}) == (200, {"message": ""})
    eventually(lambda: len(ask(cluster, "GET", "/api/topics/acted")[1]["nodes"]) == 1)
    assert ask(cluster, "DELETE", "/api/topics/acted") == (200, {"message": ""})
    eventually(lambda: "acted" not in ask(cluster, "GET", "/api/topics")[1]["topics"])
    assert ask(cluster, "POST", "/api/topics", {"topic": "made", "channel": "c"}) == (200, {"message": ""})
    assert ask(cluster, "GET", "/api/topics?inactive=true")[1]["topics"]["made"] == ["c"]
    status, answer = ask(cluster, "GET", "/api/topics/made")
    assert (status, answer) == (502, {"message": "UPSTREAM_ERROR: failed to query any nsqd: "})  # the original's quirk


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/api/topics", {"topic": "a b"}, 400, "INVALID_TOPIC"),
        ("POST", "/api/topics", {"topic": "t", "channel": "a b"}, 400, "INVALID_CHANNEL"),
        ("POST", "/api/topics", [], 400, "expected an object"),
        ("POST", "/api/topics", {"topic": 7}, 400, "topic: expected a string"),
        ("POST", "/api/topics/t", {"action": "dance"}, 400, "INVALID_ACTION"),
        ("DELETE", "/api/nodes/h:1", None, 400, "INVALID_BODY"),
        ("DELETE", "/api/nodes/h:1", {"topic": ""}, 400, "INVALID_TOPIC"),
        ("GET", "/api/nodes/h:1", None, 404, "NODE_NOT_FOUND"),
        ("GET", "/api/graphite", None, 400, "INVALID_ARG_METRIC"),
        ("GET", "/api/graphite?metric=rate", None, 400, "INVALID_ARG_TARGET"),
        ("GET", "/api/graphite?metric=rate&target=x", None, 500, "INTERNAL_ERROR"),
        ("GET", "/config/nope", None, 400, "INVALID_OPTION"),
        ("PUT", "/config/base_path", "x", 400, "INVALID_OPTION"),
        ("PUT", "/config/log_level", "loud", 400, "INVALID_VALUE"),
        ("PUT", "/config/nsqlookupd_http_addresses", {"a": 1}, 400, "INVALID_VALUE"),
        ("GET", "/api/nope", None, 404, "NOT_FOUND"),
        ("PUT", "/api/topics", None, 405, "METHOD_NOT_ALLOWED"),
    ],
)
def test_mistakes(cluster: Cluster, method: str, path: str, body: object, status: int, message: str) -> None:
    assert ask(cluster, method, path, body) == (status, {"message": message})


def test_options_can_be_asked_and_some_changed(cluster: Cluster) -> None:
    lookupds = "/config/nsqlookupd_http_addresses"
    before = ask(cluster, "GET", lookupds)[1]
    assert before == [cluster.lookupd.http]
    try:
        assert ask(cluster, "PUT", lookupds, ["127.0.0.1:1"]) == (200, ["127.0.0.1:1"])
        status, answer = ask(cluster, "GET", "/api/topics")
        assert status == 502
        assert answer["message"].startswith("UPSTREAM_ERROR: failed to query any nsqlookupd: http://127.0.0.1:1/topics")
        assert ask(cluster, "PUT", lookupds, ["127.0.0.1:1", *before])[0] == 200
        status, answer = ask(cluster, "GET", "/api/topics")
        assert status == 200
        assert answer["message"].startswith("WARNING: http://127.0.0.1:1/topics")
    finally:
        assert ask(cluster, "PUT", lookupds, before)[0] == 200
    assert httpx.get(f"{cluster.url}/config/acl_http_header").text == "X-Forwarded-User"


def test_admin_users_notifications_and_a_base_path(tmp_path: Path) -> None:
    heard: list[str] = []

    def hear(path: str) -> tuple[int, bytes]:
        heard.append(path)
        return told({})

    with upstream(hear) as hook:
        flags = ("-admin-user", "ann", "-base-path", "/nsq", "-notification-http-endpoint", f"http://{hook}/hook")
        with a_cluster(tmp_path, *flags, "-allow-config-from-cidr", "10.0.0.0/8") as cluster:
            made = {"topic": "t"}
            assert ask(cluster, "POST", "/nsq/api/topics", made) == (403, {"message": "FORBIDDEN"})
            assert ask(cluster, "POST", "/nsq/api/topics", made, **{"X-Forwarded-User": "eve"})[0] == 403
            assert ask(cluster, "GET", "/nsq/api/topics")[1]["topics"] == []
            user = {"X-Forwarded-User": "ann", "Authorization": "Basic " + base64.b64encode(b"ann:x").decode()}
            assert ask(cluster, "POST", "/nsq/api/topics", made, **user)[0] == 200
            eventually(lambda: heard == ["/hook"])
            assert ask(cluster, "GET", "/nsq/config/log_level") == (403, {"message": "FORBIDDEN"})
            assert ask(cluster, "GET", "/api/topics")[0] == 404
            assert httpx.get(f"{cluster.url}/nsq/ping").text == "OK"
            assert httpx.get(f"{cluster.url}/nsq/").headers["location"] == "/nsq"


def test_graphites_pictures_come_by_way_of_us(cluster: Cluster) -> None:
    asked: list[str] = []

    def graphite(path: str) -> tuple[int, bytes]:
        asked.append(path)
        return told([{"datapoints": [[30, 1]]}])

    with upstream(graphite) as address:
        flags = ("-lookupd-http-address", cluster.lookupd.http, "-graphite-url", f"http://{address}", "-proxy-graphite")
        with nsqadmin(*flags) as admin:
            answer = httpx.get(f"http://{admin.http}/render?target=a.b&format=json&target=c")
            assert (answer.status_code, answer.json()) == (200, [{"datapoints": [[30, 1]]}])
            assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
            assert asked == ["/render?target=a.b&format=json&target=c"]
    assert httpx.get(f"{cluster.url}/render?target=a").status_code == 404


def test_pages_of_others_can_do_nothing(cluster: Cluster) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        assert ask(cluster, "POST", "/api/topics", {"topic": "evil"}, **headers)[0] == 403
    assert "evil" not in ask(cluster, "GET", "/api/topics")[1]["topics"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, b"{"), "something that is not JSON"),
        ((200, b"[]"), "answered JSON that is not an object"),
        ((200, b'{"topics": 7}'), ""),
        ((200, b'{"topics": [1, null, "t"]}'), ""),
        ((500, b"<b>broken</b>"), "answered 500"),
        ((200, b"[" * 100_000), "something that is not JSON"),
    ],
)
def test_upstreams_that_lie(answer: tuple[int, bytes], words: str) -> None:
    with upstream(lambda path: answer) as liar, nsqadmin("-lookupd-http-address", liar) as admin:
        got = httpx.get(f"http://{admin.http}/api/topics")
        assert (got.status_code, words in got.text) == (502 if words else 200, True)
        assert httpx.get(f"http://{admin.http}/api/nodes").status_code in (200, 502)
        assert httpx.get(f"http://{admin.http}/").status_code in (200, 502)


def test_a_node_that_hangs_is_not_waited_for_long(tmp_path: Path) -> None:
    over = threading.Event()

    def hang(path: str) -> tuple[int, bytes]:
        over.wait(60)
        return told({})

    with nsqd(tmp_path / "n") as node, upstream(hang) as silent:
        flags = ("-nsqd-http-address", node.http, "-nsqd-http-address", silent, "-http-client-request-timeout", "2s")
        with nsqadmin(*flags) as admin:
            httpx.post(f"http://{node.http}/topic/create?topic=t").raise_for_status()
            answer = httpx.get(f"http://{admin.http}/api/topics", timeout=30).json()
            over.set()  # and not before
            assert answer["topics"] == ["t"]
            assert "did not answer within 2 s" in answer["message"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "--nsqd-http-address or --lookupd-http-address required"),
        (("-nsqd-http-address", "h:1", "-lookupd-http-address", "h:2"), "not both"),
        (("-nsqd-http-address", "nope"), "--nsqd-http-address 'nope'"),
        (("-nsqd-http-address", "h:1", "-base-path", "x"), "expected a path that begins with /"),
        (("-nsqd-http-address", "h:1", "-allow-config-from-cidr", "x"), "failed to parse --allow-config-from-cidr (x)"),
        (("-nsqd-http-address", "h:1", "-http-client-tls-cert", "x"), "must be specified together"),
    ],
)
def test_wrong_options(flags: tuple[str, ...], words: str) -> None:
    done = run("nsqadmin", *flags)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_of_the_originals_shows_what_the_original_nsqadmin_shows(tmp_path: Path) -> None:
    """PENSTOCK_NSQ: a directory with NSQ's nsqlookupd, nsqd and nsqadmin."""
    directory = Path(os.environ.get("PENSTOCK_NSQ", "") or "/nowhere")
    programs = {name: directory / name for name in ("nsqlookupd", "nsqd", "nsqadmin")}
    if not all(program.exists() for program in programs.values()):
        pytest.skip("PENSTOCK_NSQ names no directory with NSQ's daemons")
    with Daemon("nsqlookupd", command=[str(programs["nsqlookupd"])]) as lookupd:
        nodes = ("-lookupd-tcp-address", lookupd.tcp, "-data-path", str(tmp_path), "-broadcast-address", "127.0.0.1")
        with (
            Daemon("nsqd", *nodes, command=[str(programs["nsqd"])]) as node,
            nsqadmin("-lookupd-http-address", lookupd.http) as ours,
        ):
            theirs = subprocess.Popen(
                [programs["nsqadmin"], "-http-address", "127.0.0.1:0", "-lookupd-http-address", lookupd.http],
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert theirs.stderr is not None
            try:
                line = next(line for line in theirs.stderr if "listening on" in line)
                address = line.split()[-1]
                httpx.post(f"http://{node.http}/channel/create?topic=t&channel=c")
                httpx.post(f"http://{node.http}/topic/create?topic=t").raise_for_status()
                httpx.post(f"http://{node.http}/channel/create?topic=t&channel=c").raise_for_status()
                httpx.post(f"http://{node.http}/pub?topic=t", content="hello").raise_for_status()
                eventually(lambda: httpx.get(f"http://{ours.http}/api/topics").json()["topics"] == ["t"])
                one = f"/api/nodes/127.0.0.1:{node.http.rpartition(':')[2]}"
                kinds = ("topics", "topics/t", "topics/t/c", "nodes", "counter", "topics?inactive=true")
                paths = [one, *(f"/api/{kind}" for kind in kinds)]
                for path in paths:
                    got = [httpx.get(f"http://{admin}{path}") for admin in (address, ours.http)]
                    assert got[0].status_code == got[1].status_code == 200
                    assert got[0].text == got[1].text, path
            finally:
                theirs.kill()
                theirs.communicate()


@pytest.mark.parametrize("path", ["/ping", "/api/topics", "/api/topics/none"])
def test_small_answers_are_compressed_as_in_the_original(cluster: Cluster, path: str) -> None:
    answer = httpx.get(f"http://{cluster.admin.http}{path}", headers={"Accept-Encoding": "gzip"}, timeout=20)
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.text) < 500
    plain = httpx.get(f"http://{cluster.admin.http}{path}", headers={"Accept-Encoding": "identity"}, timeout=20)
    assert "content-encoding" not in plain.headers
    assert plain.text == answer.text


def test_a_start_that_fails_says_so_in_the_words_of_the_original() -> None:
    done = run("nsqadmin", "-nsqd-http-address", "127.0.0.1:1", "-http-address", "203.0.113.1:1")
    assert done.returncode == 1
    assert "failed to instantiate nsqadmin - listen" in done.stderr
