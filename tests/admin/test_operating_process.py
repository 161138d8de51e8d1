"""What operators do on real daemons: logged in, by the forms of the pages; in a campaign everything with the keyboard alone."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Error, Page

from tests.admin.asking import PASSWORD, users_file, with_password
from tests.admin.conftest import Cluster, a_cluster, nsqadmin, told, upstream
from tests.admin.scriptless import Visitor
from tests.daemons import eventually, nsqd

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for which one has to log in."""
    directory = tmp_path_factory.mktemp("guarded")
    users = [with_password("ann", "admin"), with_password("vic", "viewer"), with_password("eu", "operator", "eu.*")]
    audit = ("-audit-file", str(directory / "audit"), "-audit-topic", "audit")
    with a_cluster(directory, "-users-file", users_file(directory, *users), *audit) as found:
        for topic in ("eu.orders", "us.orders"):
            found.channel(topic, "c")
        yield found


@pytest.fixture
def ann(guarded: Cluster) -> Visitor:
    """An administrator, logged in."""
    return Visitor(guarded.url).log_in("ann", PASSWORD)


def test_logging_in_leads_back_and_logging_out_ends_it(guarded: Cluster) -> None:
    ann = Visitor(guarded.url).log_in("ann", "wrong", "/topics/eu.orders")
    assert "Incorrect user name or password" in ann.text
    assert ann.press("Log in", user="ann", password=PASSWORD).url.endswith("/topics/eu.orders")
    assert "Paused: eu.orders by ann since" in ann.press("Pause topic").text
    ann.press("Unpause topic")
    assert "ann, admin" in ann.open("/audit?q=pause+eu.orders").text
    ann.press("Log out")
    assert "Password" in ann.open("/topics/eu.orders").text


def test_others_see_what_they_may(guarded: Cluster) -> None:
    guarded.publish("eu.orders", "secret body")
    vic = Visitor(guarded.url).log_in("vic", PASSWORD, "/topics/eu.orders/c")
    assert [list(form.buttons) for form in vic.page.forms] == [["Log out"]]
    vic.open("/messages/eu.orders/c?state=ready")
    assert "1 ready" in vic.text
    assert "secret body" not in vic.text
    eu = Visitor(guarded.url).log_in("eu", PASSWORD)
    assert "eu.orders" in eu.text
    assert "us.orders" not in eu.text
    assert "Access denied" in eu.open("/topics/us.orders").text


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
    """Return how many messages the task on the page has processed."""
    found = re.search(r"(\d+) of 300 processed", visitor.text)
    assert found is not None, visitor.text
    return int(found[1])


def test_selected_messages_of_all_nodes_are_moved_where_the_user_may_publish(guarded: Cluster) -> None:
    guarded.channel("eu.from", "c")
    guarded.channel("eu.to", "c")
    for place in (0, 1):
        guarded.publish("eu.from", "one", "two", "three", node=place)
    eu = Visitor(guarded.url).log_in("eu", PASSWORD, "/messages/eu.from/c")
    assert "6 ready on 2 nodes" in eu.text
    eu.press("Bury selected", "pick-1", "pick-4")
    assert "Buried 2" in eu.text
    assert "4 ready on 2 nodes" in eu.text
    eu.follow("buried").press("Move selected", "pick-2", to="us.elsewhere")
    assert "Access denied" in eu.text
    eu.open("/messages/eu.from/c?state=ready&many=move&count=3&per_second=100").press("Preview", to="eu.to")
    assert "Move 3 of 4 ready messages to topic eu.to?" in eu.text
    eu.press("Move 3")
    eventually(lambda: "3 of 3 processed" in eu.open(eu.url).text)
    assert "3 ready on 2 nodes" in eu.open("/messages/eu.to/c").text


def test_what_is_lost_wants_the_number(ann: Visitor, guarded: Cluster) -> None:
    guarded.channel("lost", "c")
    messages = f"/messages/lost/c?node={guarded.nodes[0].http}&state=ready"
    guarded.publish("lost", *"abc")
    ann.open(f"{messages}&many=finish&count=2").press("Finish 2", confirm="3")
    assert "Nothing was changed" in ann.text
    ann.open(f"{messages}&many=finish&count=2").press("Finish 2", confirm="2")
    eventually(lambda: "Done: 2 of 2 processed" in ann.open(ann.url).text)
    assert "1 ready" in ann.open(messages).text


def test_a_message_with_a_delay_headers_and_a_key_and_searching_for_it(ann: Visitor, guarded: Cluster) -> None:
    guarded.channel("found", "c")
    node = guarded.nodes[0].http
    guarded.publish("found", *(f"hay {number}" for number in range(1000)))
    ann.open("/topics/found")
    needle = {"body": "a Needle", "node": node, "key": "once", "headers": "Trace: 7f\nKind: test"}
    for words in ("Published", "Not published"):
        assert words in ann.press("Publish", **needle).text
    assert "1 match in" in ann.follow("Search for it in c").text  # the first one, by its key
    ann.open("/topics/found").press("Publish", body="later", node=node, delay="3600000")
    published = re.search(r"Published ([0-9a-f]{16}) at", ann.text)
    assert published is not None
    assert published[1] in ann.open(f"/messages/found/c?node={node}&state=deferred").text
    for words in ("needle", "trace: 7f"):
        ann.open(f"/messages/found/c?node={node}&state=ready").press("Search", contains=words)
        assert "1 match in 1,001 scanned messages" in ann.text
        assert "a Needle" in ann.text


def test_a_message_is_published_looked_at_and_buried(ann: Visitor, guarded: Cluster) -> None:
    guarded.channel("looked", "c")
    node = guarded.nodes[1].http
    body = '{"a": "<script>alert(1)</script>\N{SNOWMAN}"}'
    ann.open("/topics/looked").press("Publish", body=body, node=node)
    eventually(lambda: "1 ready" in ann.open(f"/messages/looked/c?node={node}&state=ready").text)
    assert body in ann.text
    stats = httpx.get(f"http://{node}/stats?format=json&topic=looked").json()["topics"][0]["channels"][0]
    assert (stats["depth"], stats["in_flight_count"], stats["message_count"]) == (1, 0, 1)
    assert "0 ready" in ann.press("Bury 0").text
    assert "1 buried" in ann.follow("buried").text


def test_pausing_for_a_while(ann: Visitor, guarded: Cluster) -> None:
    guarded.channel("while", "c")
    ann.open("/topics/while/c").press("Pause channel", minutes="90")
    assert "while/c by ann since" in ann.open("/nodes").text  # on every page
    pauses = httpx.get(f"http://{guarded.nodes[0].http}/pauses").json()["pauses"]
    mine = next(one for one in pauses if one["topic"] == "while")
    assert 5300 < mine["until"] - time.time() < 5500
    ann.open("/topics/while/c").press("Unpause channel")


def test_a_node_is_drained(ann: Visitor, guarded: Cluster) -> None:
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
        for words in (
            first,
            "releases (nacks): 1",
            "delivered once at most",
            "gone in",
            "1 watch it",
            "time to run 90 s",
        ):
            assert words in ann.text, words
        assert "Queue paused: in" in ann.press("Pause queue", queue="in").text
        assert disque.do("ADDJOB", "queued", "x", 0).startswith("-PAUSED")
        assert "queue paused: in" in ann.open("/tubes").text
        assert "Queue paused" not in ann.follow("queued").press("Resume queue").text
        assert disque.do("PAUSE", "queued", "state") == "none"
        assert "A queue is paused for jobs that go out" in ann.press("Pause queue", queue="state").text
    assert "unpause" in ann.open("/audit").text


# in a browser


@pytest.fixture
def page(chrome: Browser) -> Iterator[Page]:
    context = chrome.new_context()
    complaints: list[str] = []
    found = context.new_page()
    found.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
    found.on("pageerror", lambda error: complaints.append(str(error)))
    yield found
    context.close()
    assert [one for one in complaints if "status of 4" not in one] == []


def main(page: Page) -> str:
    return page.inner_text("main")


def published(node: str, topic: str) -> int:
    count: int = httpx.get(f"http://{node}/stats?format=json&topic={topic}").json()["topics"][0]["message_count"]
    return count


def reach(page: Page, name: str) -> None:
    """By Tab alone: the control that is called so. A page that failed for a moment loads itself anew meanwhile."""
    try:
        tab_to(page, name)
    except Error as error:
        if "context was destroyed" not in str(error):
            raise
        page.wait_for_load_state()
        tab_to(page, name)


def tab_to(page: Page, name: str) -> None:
    """What is called so may be within something that the keyboard opens."""
    for opener in ("", "Actions", "Publish a test message"):
        if opener and tab_from_the_one_before(page, opener, is_closed=True):
            page.keyboard.press("Enter")
        if tab_from_the_one_before(page, name):
            return
    raise AssertionError(f"nobody comes to {name} by Tab: {main(page)}")


def tab_from_the_one_before(page: Page, name: str, is_closed: bool = False) -> bool:
    """Press Tab on what stands before the control, which must lead to it. Return False if there is no such control."""
    for _ in range(20):  # the live part may come again meanwhile, with the focus in it
        if not page.evaluate(_BEFORE, [name, is_closed]):
            return False
        page.keyboard.press("Tab")
        if page.evaluate(f"({_CALLED})(document.activeElement)") == name:
            return True
    raise AssertionError(f"Tab does not lead to {name}: {main(page)}")


_CALLED = """e => (e.getAttribute('aria-label') || (e.tagName !== 'SELECT' && e.innerText) || e.name || '')
  .trim().replace('\u2026', '')"""
_BEFORE = f"""([name, isClosed]) => {{
  const called = {_CALLED};
  const stops = [...document.querySelectorAll("a[href], button, input, select, textarea, summary")].filter(
    one => one.tabIndex >= 0 && !one.disabled && one.checkVisibility({{visibilityProperty: true}}));
  const at = stops.findIndex(one => called(one) === name && !(isClosed && one.parentNode.open));
  document.activeElement.blur();
  if (at > 0) stops[at - 1].focus();
  return at >= 0;
}}"""


def press(page: Page, name: str) -> None:
    """What leads to another page, or to this one anew."""
    reach(page, name)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def write(page: Page, name: str, text: str) -> None:
    reach(page, name)
    page.keyboard.type(text)


def confirm(page: Page, action: str, word: str) -> None:
    """What is dangerous: open it, type the name, and Enter."""
    reach(page, action)
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type(word)
    with page.expect_navigation():
        page.keyboard.press("Enter")


@pytest.mark.campaign
def test_every_action_by_keyboard_alone(page: Page, guarded: Cluster) -> None:
    guarded.channel("keys", "c")
    node, url = guarded.nodes[0].http, guarded.url
    page.goto(url)
    write(page, "user", "ann")
    write(page, "password", PASSWORD)
    press(page, "Log in")
    page.wait_for_selector("text=keys")
    reach(page, "Skip to content")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    page.keyboard.type("keys")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=keys**")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/keys")
    for text in ("one", "two", "three"):
        write(page, "body", text)
        press(page, "Publish")
        page.wait_for_selector("text=/Published/")
        page.goto(f"{url}/topics/keys")
    press(page, "Pause topic")
    press(page, "Unpause topic")
    press(page, "Pause topic")
    page.goto(f"{url}/topics/keys/c")
    press(page, "Pause channel")
    press(page, "Unpause channel")
    page.goto(f"{url}/topics/keys")
    press(page, "Unpause topic")
    at = next(one.http for one in guarded.nodes if published(one.http, "keys") == 3)
    messages = f"{url}/messages/keys/c?node={at}"
    page.goto(f"{messages}&state=ready")
    press(page, "Bury 0")
    press(page, "Bury 1")
    page.goto(f"{messages}&state=buried")
    press(page, "Kick 0")
    press(page, "Kick 1")
    page.goto(f"{messages}&state=ready")
    press(page, "Finish 2")
    reach(page, "Bulk action")
    page.keyboard.press("Enter")
    press(page, "Preview")
    press(page, "Bury 2")
    page.wait_for_selector("text=Done: 2 of 2 processed")
    httpx.post(f"http://{at}/pub?topic=keys&defer=3600000", content="later").raise_for_status()
    page.goto(f"{messages}&state=deferred")
    press(page, "Requeue 3")
    # a task of minutes, so that it is there to be cancelled however slow the browser is
    httpx.post(f"http://{at}/mpub?topic=keys", content="\n".join(["more"] * 300)).raise_for_status()
    httpx.post(f"http://{at}/channel/messages/bury?topic=keys&channel=c&state=ready&count=300").raise_for_status()
    page.goto(f"{messages}&state=buried&many=kick&count=300&per_second=1")
    press(page, "Kick 300")
    press(page, "Cancel task")
    page.wait_for_selector("text=/Cancelled by ann: /")
    page.goto(f"{url}/topics/keys/c")
    confirm(page, "Empty channel", "c")
    confirm(page, "Delete channel", "c")
    page.wait_for_url("**/topics/keys")
    page.goto(f"{url}/nodes/{node}")
    confirm(page, "Drain node", node)
    press(page, "Stop draining")
    page.goto(f"{url}/lookup")
    write(page, "topic", "made.by.keys")
    press(page, "Create")
    page.wait_for_selector("text=made.by.keys")
    press(page, "Remove made.by.keys")
    page.wait_for_selector("text=made.by.keys", state="detached")
    with guarded.worker("keyed") as worker:
        job = worker.put("x")
        # nsqlookupd is asked for its channels first
        eventually(lambda: worker.stats_tube("keyed")["current-jobs-ready"])
    tube = f"{url}/tube?name=keyed&node={node}"
    page.goto(f"{tube}&state=ready")
    press(page, f"Bury {job}")
    page.goto(f"{tube}&state=buried")
    press(page, f"Kick {job}")
    page.goto(f"{tube}&state=ready")
    write(page, "seconds", "5")
    press(page, "Pause tube")
    press(page, "Unpause tube")
    press(page, f"Delete {job}")
    page.goto(f"{url}/nodes/{node}?q=keys")
    reach(page, "Tombstone a topic")
    page.keyboard.press("Enter")
    write(page, "topic", "keys")
    write(page, "confirm", "keys")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    page.goto(f"{url}/topics/keys")
    confirm(page, "Delete topic", "keys")
    page.wait_for_selector("#live table")  # a page that failed for a moment loads itself anew, and forgets the g
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/audit")
    text = main(page)  # what was done is what the trail says
    for action in ("publish", "pause", "unpause", "bury", "kick", "requeue", "finish", "empty", "delete", "drain", "undrain",
                   "create", "tombstone", "bury many", "kick many"):  # fmt: skip
        assert action in text, action
    page.keyboard.press("?")
    page.wait_for_selector("#palette[open] li")
    page.keyboard.press("Escape")
    press(page, "Log out")
    page.wait_for_url("**/login")


# without a browser


def test_tables_go_out_as_csv_and_json(tmp_path: Path) -> None:
    with a_cluster(tmp_path) as cluster:
        cluster.channel("out", "c")
        cluster.publish("out", "x")
        node = cluster.nodes[0].http
        for path in ("/", "/topics/out", "/topics/out/c", f"/messages/out/c?node={node}", "/nodes", f"/nodes/{node}",
                     "/storage", "/readers", "/tubes", "/audit"):  # fmt: skip
            mark = "&" if "?" in path else "?"
            told = httpx.get(f"{cluster.url}{path}{mark}format=json")
            assert (told.status_code, type(told.json())) == (200, list), path
            assert "attachment" in told.headers["content-disposition"]
            text = httpx.get(f"{cluster.url}{path}{mark}format=csv")
            assert text.headers["content-type"] == "text/csv; charset=utf-8"
            assert len(list(csv.DictReader(io.StringIO(text.text)))) == len(told.json())
        rows = httpx.get(f"{cluster.url}/?format=json").json()
        assert [(row["name"], row["depth"], row["channels"]) for row in rows] == [("out", 1, 1)]
        assert httpx.get(f"{cluster.url}/?format=xml").status_code == 400
        assert httpx.get(f"{cluster.url}/lookup?format=csv").status_code == 400


def test_the_trail_tells_what_was_lost_and_what_failed(tmp_path: Path) -> None:
    with a_cluster(tmp_path, "-audit-topic", "trail") as cluster:
        cluster.channel("gone", "c")
        cluster.publish("gone", *"abc")
        ours = {"Origin": cluster.url}
        form = {"action": "empty", "confirm": "c"}
        eventually(lambda: httpx.get(f"{cluster.url}/api/topics/gone/c").json()["depth"] == 3)
        assert httpx.post(f"{cluster.url}/topics/gone/c", data=form, headers=ours).status_code == 303
        form = {"action": "kick", "node": cluster.nodes[0].http, "state": "buried", "offset": "1"}
        assert httpx.post(f"{cluster.url}/messages/gone/other", data=form, headers=ours).status_code == 502
        failed, emptied = httpx.get(f"{cluster.url}/audit?format=json").json()
        assert (emptied["action"], emptied["target"], emptied["detail"]) == ("empty", "gone/c", {"messages": "3"})
        assert (emptied["outcome"], emptied["role"]) == ("done", "admin")
        assert failed["outcome"].startswith("failed: ")

        def trail() -> list[int]:
            stats = [httpx.get(f"http://{node.http}/stats?format=json&topic=trail").json() for node in cluster.nodes]
            return [topic["message_count"] for one in stats for topic in one["topics"] or ()]

        eventually(lambda: sum(trail()) == 2)


def test_a_node_that_hangs_freezes_no_page(tmp_path: Path) -> None:
    def answer(path: str) -> tuple[int, bytes]:
        if path.startswith("/info"):
            time.sleep(0 if len(asked) < 1 else 30)
            asked.append(path)
            return told(
                {"hostname": "h", "broadcast_address": "127.0.0.1", "http_port": 1, "tcp_port": 2, "version": "1"}
            )
        return told({"topics": []})

    asked: list[str] = []
    with nsqd(tmp_path) as node, upstream(answer) as hangs:
        flags = ("-nsqd-http-address", node.http, "-nsqd-http-address", hangs, "-http-client-request-timeout", "60s")
        with nsqadmin(*flags) as admin:
            url = f"http://{admin.http}"
            assert "127.0.0.1:1" in httpx.get(f"{url}/nodes").text
            eventually(lambda: "Stale: " in httpx.get(f"{url}/nodes", timeout=20).text)  # and not after a minute
            for path in ("/", "/nodes", "/storage", "/counter", "/tubes", "/readers"):
                answered = httpx.get(url + path, timeout=20)
                assert answered.status_code == 200
                assert "127.0.0.1:1" in answered.text or hangs in answered.text


def test_two_clusters(tmp_path: Path) -> None:
    with a_cluster(tmp_path / "east") as east:
        flags = ("-cluster", f"east={east.lookupd.http}", "-cluster-name", "west")
        with a_cluster(tmp_path / "west", *flags) as west:
            east.channel("sunrise", "c")
            west.channel("sunset", "c")
            first, second = httpx.get(f"{west.url}/"), httpx.get(f"{west.url}/clusters/east")
            assert "sunset" in first.text
            assert "sunrise" not in first.text
            assert "sunrise" in second.text
            assert "sunset" not in second.text
            assert '/clusters/east/topics/sunrise"' in second.text
            page = httpx.get(f"{west.url}/clusters/east/topics/sunrise/c")
            assert page.status_code == 200
            assert httpx.get(f"{west.url}/clusters/east/api/topics").json()["topics"] == ["sunrise"]
            assert httpx.get(f"{west.url}/clusters/east/static/keys.js").status_code == 200
