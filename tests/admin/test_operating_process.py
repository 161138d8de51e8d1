"""What operators do on real daemons: logged in, by the forms of the pages."""

import asyncio
import gzip
import re
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from penstock.client import Consumer
from tests.admin.asking import PASSWORD, csrf_in, file_of, visiting, with_password
from tests.admin.conftest import Cluster, a_cluster, a_node, json_answer
from tests.admin.scriptless import Visitor
from tests.async_tests import on_asyncio
from tests.daemons import eventually, post

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for which one has to log in."""
    directory = tmp_path_factory.mktemp("guarded")
    users = [with_password("ann", "admin"), with_password("eu", "operator", "eu.*")]
    audit = ("-audit-file", str(directory / "audit"), "-audit-topic", "audit")
    with a_cluster(directory, "-auth-file", file_of(directory, *users), *audit) as found:
        found.channel("eu.orders", "c")
        yield found


@pytest.fixture
def ann(guarded: Cluster) -> Visitor:
    return Visitor(guarded.url).log_in("ann", PASSWORD)


def test_many_with_preview_progress_and_cancel(ann: Visitor, guarded: Cluster) -> None:
    guarded.channel("many", "c")
    node = guarded.nodes[0].http
    guarded.publish("many", *map(str, range(500)))
    at = f"http://{node}/channel/messages/bury?topic=many&channel=c&state=ready&count=500"
    eventually(lambda: httpx.post(at).json()["buried"] == 0)
    assert "500 buried" in ann.open(f"/messages/many/c?node={node}&state=buried").text
    ann.press("Preview", many="kick", count="300", per_second="20")
    assert "Kick 300 of 500 buried messages?" in ann.text
    assert "Running: " in ann.press("Kick 300").text
    eventually(lambda: progress(ann.open(ann.url)) > 0)
    assert "Cancelled by ann: " in ann.press("Cancel task").text
    done = progress(ann)
    assert 0 < done < 300
    stats = httpx.get(f"http://{node}/stats?format=json&topic=many").json()["topics"][0]["channels"][0]
    assert (stats["depth"], stats["buried_count"]) == (done, 500 - done)
    assert "cancelled_by: ann" in ann.open("/audit?q=many").text


def progress(visitor: Visitor) -> int:
    found = re.search(r"(\d+) of 300 processed", visitor.text)
    assert found is not None, visitor.text
    return int(found[1])


def test_selected_messages_of_all_nodes_are_moved_where_the_user_may_publish(guarded: Cluster) -> None:
    guarded.channel("eu.from", "c")
    guarded.channel("eu.to", "c")
    for place in (0, 1):
        guarded.publish("eu.from", "one", "two", "three", node=place)
    eu = Visitor(guarded.url).log_in("eu", PASSWORD, "/messages/eu.from/c")
    eventually(lambda: "6 ready on 2 nodes" in eu.open(eu.url).text)
    assert "Select 1 to 300 messages" in eu.press("Bury selected").text
    eu.open("/messages/eu.from/c").press("Bury selected", "pick-1", "pick-4")
    assert "Buried 2" in eu.text
    assert "4 ready on 2 nodes" in eu.text
    eu.follow("buried").press("Move selected", "pick-2", to="us.elsewhere")
    assert "Access denied" in eu.text
    eu.open("/messages/eu.from/c?state=ready&many=move&count=3&per_second=100")
    assert '<option value="eu.to">' in eu.html
    eu.press("Preview", to="eu.to")
    assert "Move 3 of 4 ready messages to topic eu.to?" in eu.text
    eu.press("Move 3")
    eventually(lambda: "3 of 3 processed" in eu.open(eu.url).text)
    assert "3 ready on 2 nodes" in eu.open("/messages/eu.to/c").text


def spread(cluster: Cluster, topic: str, count: int) -> None:
    """Publish `count` messages to each node, alternately, so that their order is known."""
    cluster.channel(topic, "c")
    for number in range(count):
        for place in (0, 1):
            cluster.publish(topic, f"body {number}.{place}", node=place)


def test_the_messages_of_both_nodes_in_one_list_page_by_page(ann: Visitor, guarded: Cluster) -> None:
    spread(guarded, "merged", 25)
    bodies: list[str] = []
    ann.open("/messages/merged/c")
    while True:
        assert "50 ready on 2 nodes" in ann.text
        bodies += re.findall(r"<pre>(body [0-9.]+)</pre>", ann.html)
        if "Next page" not in ann.page.links:
            break
        ann.follow("Next page")
    assert bodies == [f"body {number}.{place}" for number in range(25) for place in (0, 1)]
    assert "body 0.0" not in ann.open(f"/messages/merged/c?node={guarded.nodes[1].http}").text
    assert ann.open("/messages/merged/nobody").status == 404
    assert ann.open("/messages/merged/c?after=x").status == 400


def test_filters_are_in_the_address_and_act_on_both_nodes(ann: Visitor, guarded: Cluster) -> None:
    spread(guarded, "filtered", 12)
    for node in guarded.nodes:
        url = f"http://{node.http}/pub?topic=filtered"
        httpx.post(url, content=b"traced", headers={"X-Nsq-Header-Trace": "7f"}).raise_for_status()
    page = "/messages/filtered/c"
    for query, matches in (("header=trace=7f", 2), ("search=BODY 1&since=1h", 6), ("before=1h", 0)):
        assert f"{matches} matches in 26 scanned messages" in ann.open(f"{page}?{query}").text
    assert "Invalid time" in ann.open(f"{page}?before=soon").text
    ann.open(f"{page}?search=body 1&many=bury&count=26")
    assert "Bury up to 6 ready messages that match the filters?" in ann.text
    ann.press("Bury matching messages")
    eventually(lambda: "6 of 6 processed" in ann.open(ann.url).text)
    assert "6 buried on 2 nodes" in ann.open(f"{page}?state=buried&reason=by hand").text
    assert "20 ready on 2 nodes" in ann.open(page).text


def test_the_owner_of_a_message_is_shown_and_can_be_disconnected(ann: Visitor, guarded: Cluster) -> None:
    spread(guarded, "owned", 1)
    node = guarded.nodes[0]
    with Consumer("owned", "c", [node.tcp], max_in_flight=5) as consumer:
        while not consumer.poll(10):
            pass
        (button,) = [one for form in ann.open("/messages/owned/c?state=in_flight").page.forms for one in form.buttons
                     if one.startswith("Disconnect ")]  # fmt: skip
        post(node, "/channel/pause", topic="owned", channel="c")
        assert "The client is disconnected" in ann.press(button).text
        assert "2 ready on 2 nodes" in ann.open("/messages/owned/c").text
        wrong = {"action": "disconnect", "client": "10.0.0.1:1", "csrf": csrf_in(ann.html)}
        for address, status in ((node.http, 502), ("127.0.0.1:1", 404)):
            assert ann.client.post("/messages/owned/c", data=wrong | {"node": address}).status_code == status


def test_a_message_is_edited_and_published_again(ann: Visitor, guarded: Cluster) -> None:
    guarded.channel("edited", "c")
    node = guarded.nodes[0].http
    url = f"http://{node}/pub?topic=edited"
    httpx.post(url, content=b"\nline 1\nline 2", headers={"X-Nsq-Header-Trace": "7f"}).raise_for_status()
    httpx.post(url, content=gzip.compress(b'{"a": 1}')).raise_for_status()
    assert "gzip > JSON" in ann.open(f"/messages/edited/c?node={node}").text
    path = f"/republish/edited/c?node={node}&offset="
    assert 'name="encoding" value="base64"' in ann.open(f"{path}1").html
    assert '<textarea name="body" rows="12" required>\n\nline 1\nline 2</textarea>' in ann.open(f"{path}0").html
    assert "trace: 7f</textarea>" in ann.html
    for wrong in ({"body": ""}, {"headers": "nonsense"}, {"encoding": "base64", "body": "%"}):
        assert ann.press("Publish", **{"body": "x"} | wrong).status == 400
        ann.open(f"{path}0")
    assert "Published." in ann.press("Publish", "finish", body="line 1\r\nline 3", headers="trace: 8a").text
    listed = httpx.get(f"http://{node}/channel/messages?topic=edited&channel=c&state=ready").json()["messages"]
    assert [one["offset"] for one in listed] == [1, 2]
    assert (listed[1]["body"], listed[1]["headers"]) == ("line 1\nline 3", {"trace": "8a"})
    assert {one["action"] for one in ann.client.get("/audit?format=json&q=edited").json()} == {"republish", "finish"}
    assert ann.open(f"{path}77").status == 404


def test_a_channel_is_paused_for_a_while_and_a_node_is_drained(ann: Visitor, guarded: Cluster) -> None:
    guarded.channel("while", "c")
    ann.open("/topics/while/c").press("Pause channel", minutes="90")
    assert "while/c by ann for" in ann.open("/nodes").text  # on every page
    pauses = httpx.get(f"http://{guarded.nodes[0].http}/pauses").json()["pauses"]
    assert 5300 < next(one["until"] for one in pauses if one["topic"] == "while") - time.time() < 5500
    ann.open("/topics/while/c").press("Unpause channel")
    node = guarded.nodes[1].http
    ann.open(f"/nodes/{node}").press("Drain node", confirm=node)
    assert re.search("Drain(ing|ed) since", ann.text)
    assert httpx.post(f"http://{node}/pub?topic=eu.orders", content="x").status_code == 503
    ann.press("Stop draining")
    assert httpx.post(f"http://{node}/pub?topic=eu.orders", content="x").status_code == 200


def test_jobs_of_a_tube(ann: Visitor, guarded: Cluster) -> None:
    node = guarded.nodes[0].http
    with guarded.worker("jobs/x") as worker:  # a name that no topic has
        ids = [worker.put(f"<b>{number}</b>", priority=number) for number in range(3)]
        worker.put("later", delay=900)
    eventually(lambda: "jobs/x" in ann.open("/tubes").page.links)  # an answer of the node may be a second old
    ann.follow("jobs/x")
    assert "3 ready" in ann.text
    assert "<b>0</b>" in ann.text
    ann.press(f"Bury {ids[0]}").follow("buried").press(f"Kick {ids[0]}")
    assert "0 buried" in ann.text
    ann.follow("ready").press(f"Delete {ids[1]}")
    assert "2 ready" in ann.text
    ann.press("Pause tube", seconds="600")
    assert "paused for" in ann.open("/tubes").text
    stats = httpx.get(f"http://{node}/tubes").json()["tubes"]
    mine = next(one for one in stats if one["tube_name"] == "jobs/x")
    assert (mine["ready_count"], mine["delayed_count"], mine["buried_count"]) == (2, 1, 0)


def test_queues_of_disque(ann: Visitor, guarded: Cluster) -> None:
    with guarded.disque() as disque, guarded.disque() as waiting, guarded.worker("queued") as worker:
        first = disque.do("ADDJOB", "queued", "one", 0, "TTL", 900)
        disque.do("ADDJOB", "queued", "two", 0, "RETRY", 0)
        assert len(disque.do("GETJOB", "FROM", "queued")) == disque.do("NACK", first) == 1
        waiting.send("GETJOB", "FROM", "idle")
        worker.put("of beanstalkd", priority=1 << 31)
        eventually(lambda: disque.do("QSTAT", "idle"))
        eventually(lambda: {"idle", "queued"} <= ann.open("/tubes").page.links.keys())  # an answer may be a second old
        idle = next(row for row in ann.client.get("/tubes?format=json").json() if row["tube_name"] == "idle")
        counts = [idle[f"{kind}_count"] for kind in ("watching", "waiting", "disque_waiting", "node_waiting")]
        assert counts == [0, 0, 1, 0]
        ann.open("/tubes").follow("queued")
        once, ttr = ("delivered once at most", "time to run 90 s")
        for words in (first, "releases (nacks): 1", once, "gone in", "1 watch it", ttr):
            assert words in ann.text, words
        assert "Queue paused: in" in ann.press("Pause queue", queue="in").text
        assert disque.do("ADDJOB", "queued", "x", 0).startswith("-PAUSED")
        assert "queue paused: in" in ann.open("/tubes").text
        assert "Queue paused" not in ann.follow("queued").press("Resume queue").text
        assert disque.do("PAUSE", "queued", "state") == "none"
        assert "A queue is paused for jobs that are delivered" in ann.press("Pause queue", queue="state").text
    assert "unpause" in ann.open("/audit").text


def test_every_other_action_is_done_by_its_form_and_in_the_trail(ann: Visitor, guarded: Cluster) -> None:
    guarded.channel("acted", "c")
    node, at = guarded.nodes[0].http, "/topics/acted"
    guarded.publish("acted", "one", "two", "three")
    ann.open(at).press("Pause topic").press("Unpause topic")
    messages = f"/messages/acted/c?node={node}"
    eventually(lambda: "3 ready" in ann.open(f"{messages}&state=ready").text)
    ann.press("Bury 0").press("Finish 2")
    ann.open(f"{messages}&state=buried").press("Kick 0")
    httpx.post(f"http://{node}/pub?topic=acted&defer=3600000", content="later").raise_for_status()
    eventually(lambda: "1 deferred" in ann.open(f"{messages}&state=deferred").text)
    ann.press("Requeue 3")
    ann.open(f"{at}/c").press("Empty channel", confirm="c")
    assert ann.press("Delete channel", confirm="c").url.endswith(at)
    ann.open("/lookup").press("Create", topic="made")
    assert "Remove made" not in ann.press("Remove made").html
    with guarded.worker("acted") as worker:
        job = worker.put("x")
        eventually(lambda: worker.stats_tube("acted")["current-jobs-ready"])  # nsqlookupd is asked for channels first
    tube = f"/tube?name=acted&node={node}&state=ready"
    ann.open(tube).press("Pause tube", seconds="600").press("Unpause tube").press(f"Delete {job}")
    ann.open(f"/nodes/{node}?q=acted").press("Tombstone topic", topic="acted", confirm="acted")
    ann.open(at).press("Delete topic", confirm="acted")
    done = {one["action"] for one in ann.client.get("/audit?format=json&q=acted").json()}
    wanted = "pause", "unpause", "bury", "finish", "kick", "requeue", "empty", "delete", "tombstone"
    assert done >= {*wanted}
    assert {one["action"] for one in ann.client.get("/audit?format=json&q=made").json()} == {"create", "delete"}


def test_the_trail_has_losses_and_failures(ann: Visitor, guarded: Cluster) -> None:
    guarded.channel("gone", "c")
    guarded.publish("gone", *"abc")
    eventually(lambda: ann.client.get("/api/topics/gone/c").json()["depth"] == 3)
    ann.open("/topics/gone/c").press("Empty channel", confirm="c")
    form = {"action": "kick", "node": guarded.nodes[0].http, "state": "buried", "offset": "1"}
    assert ann.client.post("/messages/gone/other", data=form | {"csrf": csrf_in(ann.html)}).status_code == 502
    failed, emptied = ann.client.get("/audit?q=gone&format=json").json()
    assert (emptied["action"], emptied["target"], emptied["detail"]) == ("empty", "gone/c", {"messages": "3"})
    assert (emptied["outcome"], emptied["role"]) == ("done", "admin")
    assert failed["outcome"].startswith("failed: ")

    def count() -> int:
        stats = [httpx.get(f"http://{node.http}/stats?format=json&topic=audit").json() for node in guarded.nodes]
        return sum(topic["message_count"] for one in stats for topic in one["topics"] or ())

    eventually(lambda: count() == len(ann.client.get("/audit?format=json").json()))  # each is exported to the topic


# without daemons


@on_asyncio
async def test_a_node_that_hangs_freezes_no_page() -> None:
    asked: list[str] = []

    async def answer(path: str) -> tuple[int, bytes]:
        if not path.startswith("/info"):
            return json_answer({"topics": []})
        asked.append(path)
        if len(asked) > 1:
            await asyncio.Event().wait()
        own = {"hostname": "h", "broadcast_address": "127.0.0.1", "http_port": 1, "tcp_port": 2, "version": "1"}
        return json_answer(own)

    with a_node() as node, a_node(answer) as hangs:
        client = visiting(node, hangs, http_client_request_timeout=60 * 10**9)
        assert "127.0.0.1:1" in (await client.get("/nodes")).text
        while "Stale: " not in (await client.get("/nodes")).text:  # and not after a minute
            await asyncio.sleep(0.1)
        for path in ("/", "/nodes", "/storage", "/counter", "/tubes", "/readers"):
            page = await client.get(path)
            assert page.status_code == 200
            assert "127.0.0.1:1" in page.text or hangs in page.text


@on_asyncio
async def test_two_clusters() -> None:
    def carries(topic: str) -> Callable[[str], object]:
        topics = {"topics": [{"topic_name": topic, "channels": [{"channel_name": "c"}]}]}
        own = {"/topics": {"topics": [topic]}, "/topics/figures": {"names": [topic], "totals": {}}}
        for_lookups = ("/info", "/nodes", "/lookup")
        return lambda path: None if path.startswith(for_lookups) else own.get(path.partition("?")[0], topics)

    with a_node(carries("sunrise")) as east, a_node(carries("sunset")) as west:
        client = visiting(west, cluster=(f"east={east}",), cluster_name="west")
        first, second = (await client.get("/")).text, (await client.get("/clusters/east")).text
        assert ("sunset" in first, "sunrise" in first) == ("sunrise" in second, "sunset" in second) == (True, False)
        assert '/clusters/east/topics/sunrise"' in second
        assert (await client.get("/clusters/east/topics/sunrise/c")).status_code == 200
        assert (await client.get("/clusters/east/api/topics")).json()["topics"] == ["sunrise"]
        assert (await client.get("/clusters/east/static/keys.js")).status_code == 200
