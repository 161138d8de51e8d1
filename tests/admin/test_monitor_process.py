"""What nsqadmin shows and tells when something is broken, while no page is open."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import daemons
from tests.admin.conftest import Cluster, a_cluster, nsqadmin
from tests.daemons import Daemon, nsqd

pytestmark = pytest.mark.process

FAST = ("-alarm-interval", "1s")
PAGES = ("/", "/nodes", "/topics/orders", "/topics/orders/mail", "/storage", "/tubes", "/counter", "/lookup", "/alarms")


def page(admin: Daemon, path: str) -> str:
    return httpx.get(f"http://{admin.http}{path}", timeout=20).text


def alarms(admin: Daemon) -> dict[str, list[dict[str, Any]]]:
    """The alarms by rule."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in httpx.get(f"http://{admin.http}/api/alarms", timeout=20).json()["alarms"]:
        found.setdefault(one["rule"], []).append(one)
    return found


def post(admin: Daemon, path: str, **form: str) -> int:
    """Send a form as a page of nsqadmin does, and return the status of the answer."""
    return httpx.post(f"http://{admin.http}{path}", data=form, headers={"Origin": f"http://{admin.http}"}).status_code


def eventually(done: Callable[[], object]) -> None:
    """Wait for what the monitor finds: it asks a node seldom that answers slowly, as all do on a machine under load."""
    daemons.eventually(done, 300)


@contextmanager
def with_orders(directory: Path, *flags: str) -> Iterator[Cluster]:
    """A cluster whose second node has 30 messages of orders/mail, and the first one 10."""
    with a_cluster(directory, *FAST, *flags) as cluster:
        cluster.channel("orders", "mail")
        cluster.publish("orders", *(f"a{one}" for one in range(10)), node=0)
        cluster.publish("orders", *(f"b{one}" for one in range(30)), node=1)
        yield cluster


def test_a_dead_node_held_what_any_page_has_seen_of_it_and_that_is_told_with_its_time(tmp_path: Path) -> None:
    """The checks of the nodes are an hour apart: only a page has seen the messages."""
    with a_cluster(tmp_path, "-alarm-interval", "1h") as cluster:
        dead, admin = cluster.nodes[1], cluster.admin
        cluster.channel("orders", "mail")
        eventually(lambda: "Checked" in page(admin, "/alarms"))
        cluster.publish("orders", *(f"b{one}" for one in range(100)), node=1)
        eventually(lambda: ">100<" in page(admin, "/topics/orders/mail"))
        dead.kill()
        eventually(lambda: "Node down:" in page(admin, "/"))
        for path in ("/", "/nodes", f"/nodes/{dead.http}", "/topics/orders", "/cluster"):
            text = page(admin, path)
            assert "100 messages are stuck on it: orders (100). That is as of 20" in text, path
            assert "before it was lost" in text
            assert "It held no messages" not in text


def test_the_page_of_a_node_shows_its_own_alarms_and_figures_of_now(tmp_path: Path) -> None:
    flags = ("-alarm-interval", "1h", "-alarm", "disk-low.percent=100", "-alarm", "disk-days=off")
    with a_cluster(tmp_path, *flags) as cluster:
        node, admin = cluster.nodes[0], cluster.admin
        eventually(lambda: "disk-low" in alarms(admin))
        (alarm,) = alarms(admin)["disk-low"]  # both nodes have one disk
        for path in (f"/nodes/{alarm['subject']}", f"/storage?node={alarm['subject']}"):
            text = page(admin, path)
            assert "Disk almost full</a> since" in text, path
            assert "What to do: Free space" in text
        cluster.channel("orders", "mail")
        cluster.publish("orders", *(f"b{one}" for one in range(100)), node=0)
        assert ">100<" in page(admin, "/nodes"), "the check was before"
        rows = {one["node"]: one for one in httpx.get(f"http://{admin.http}/nodes?format=json", timeout=20).json()}
        assert rows[node.http]["depth"] == 100
        assert rows[node.http]["figures_at"] > alarm_time(alarm)
        assert rows[node.http]["disk_at"] > alarm_time(alarm)


def alarm_time(alarm: dict[str, Any]) -> str:
    """When the alarm was seen, as exports have times."""
    return datetime.fromtimestamp(alarm["seen"], UTC).isoformat()


def test_a_node_that_dies_while_no_page_is_open_is_down_on_every_page(tmp_path: Path) -> None:
    state = ("-state-dir", str(tmp_path / "state"))
    with with_orders(tmp_path, *state) as cluster:
        dead, admin = cluster.nodes[1], cluster.admin
        eventually(lambda: ">30<" in page(admin, "/nodes"))  # its figures are known
        dead.kill()
        eventually(lambda: "node-down" in alarms(admin))
        (alarm,) = alarms(admin)["node-down"]
        assert (alarm["severity"], alarm["subject"]) == ("critical", dead.http)
        assert "30 messages are stuck on it: orders (30)." in alarm["text"]
        for path in PAGES:
            text = page(admin, path)
            assert "Node down:" in text, path
            assert dead.http in text
            assert "30 messages are stuck on it" in text
        assert "1 of 2 nodes" in page(admin, "/")
        assert "DOWN" in page(admin, "/nodes")
        last = page(admin, f"/nodes/{dead.http}")
        assert "Last known figures" in last
        assert ">30<" in last
        admin.stop()

        with nsqadmin("-lookupd-http-address", cluster.lookupd.http, *FAST, *state) as again:
            eventually(lambda: "Node down:" in page(again, "/"))
            assert "30 messages are stuck on it" in page(again, "/"), "also after a restart of nsqadmin"
            assert post(again, f"/nodes/{dead.http}", action="dismiss", confirm="x") == 400
            assert post(again, f"/nodes/{dead.http}", action="dismiss", confirm=dead.http) == 303
            assert "Node down:" not in page(again, "/")
            assert dead.http not in page(again, "/nodes")
            eventually(lambda: "node-down" not in alarms(again))


def test_trouble_with_consumers(tmp_path: Path) -> None:
    with with_orders(tmp_path, "-alarm", "buried-growing=off") as cluster:
        admin, node = cluster.admin, cluster.nodes[0]
        cluster.publish("lonely", "x")
        with cluster.worker("emails") as worker:
            worker.put("job")
            worker.bury(worker.reserve())
            worker.pause_tube("emails", 600)
        asked = {"topic": "orders", "channel": "mail", "state": "ready", "count": "7"}
        httpx.post(f"http://{node.http}/channel/messages/bury", params=asked).raise_for_status()
        wanted = {"buried", "channel-without-consumer", "topic-without-channel", "tube-buried"}
        eventually(lambda: wanted <= alarms(admin).keys())
        found = alarms(admin)
        assert [(one["subject"], one["text"]) for one in found["buried"]] == [("orders/mail", "7 buried")]
        assert found["buried"][0]["path"] == "messages/orders/mail?state=buried"
        assert found["topic-without-channel"][0]["subject"] == "lonely"
        text = page(admin, "/")
        assert re.search("Paused:.*tube <a[^>]*>emails</a> at", text, re.DOTALL)
        assert re.search(r"<dt>Buried jobs</dt>\s*<dd>1</dd>", text)
        assert text.index('id="t-lonely"') < text.index('id="t-orders"')
        assert "Buried messages" in text
        assert "Topic without channel" in text
        metrics = httpx.get(f"http://{admin.http}/metrics").text
        assert 'nsqadmin_alarm_subjects{cluster="main",rule="buried",severity="warning"} 1.0' in metrics
        assert 'nsqadmin_nodes{cluster="main",state="up"} 2.0' in metrics


def test_snoozes_and_thresholds(tmp_path: Path) -> None:
    state = ("-state-dir", str(tmp_path / "state"))
    alarms_set = ("channel-without-consumer=off", "buried.messages=5", "buried-growing=off")
    flags = [word for setting in alarms_set for word in ("-alarm", setting)]
    with with_orders(tmp_path, *state, *flags) as cluster:
        admin, node = cluster.admin, cluster.nodes[0]
        asked = {"topic": "orders", "channel": "mail", "state": "ready", "count": "7"}
        httpx.post(f"http://{node.http}/channel/messages/bury", params=asked).raise_for_status()
        eventually(lambda: "buried" in alarms(admin))
        assert "channel-without-consumer" not in alarms(admin)
        snooze = {"action": "snooze", "rule": "buried", "subject": "orders/mail", "minutes": "5", "reason": ""}
        assert post(admin, "/alarms", **snooze) == 400, "without a reason"
        refused = httpx.post(
            f"http://{admin.http}/alarms", data=snooze, headers={"Origin": f"http://{admin.http}"}
        ).text
        assert '<option value="buried" selected>' in refused
        assert 'name="subject" value="orders/mail"' in refused
        assert post(admin, "/alarms", **snooze | {"reason": "known"}) == 303
        assert alarms(admin)["buried"][0]["snoozed"]["reason"] == "known"
        assert "Buried messages" not in page(admin, "/")
        assert "known" in page(admin, "/alarms")
        assert "snooze" in page(admin, "/audit")
        wake = {"action": "wake", "rule": "buried", "subject": "orders/mail"}
        assert post(admin, "/alarms", **wake) == 303
        assert alarms(admin)["buried"][0]["snoozed"] is None
        wrong = {"rule": "buried", "action": "set", "messages": "many"}
        assert post(admin, "/alarms/rules", **wrong) == 400
        assert post(admin, "/alarms/rules", **wrong | {"messages": "8"}) == 303
        eventually(lambda: "buried" not in alarms(admin))
        assert "5 -&gt; 8" in page(admin, "/audit")
        admin.stop()
        with nsqadmin("-lookupd-http-address", cluster.lookupd.http, *FAST, *state) as again:
            assert 'value="8"' in page(again, "/alarms/rules"), "it is kept over a restart"


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An endpoint that refuses the first POST, and keeps the bodies of the others."""
    bodies: list[dict[str, Any]] = []
    tries: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            tries.append(len(body))
            if len(tries) > 1:
                bodies.append(json.loads(body))
            self.send_response(200 if len(tries) > 1 else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hook", bodies
    server.shutdown()
    server.server_close()


def test_a_webhook_is_told_when_alarms_begin_and_end(tmp_path: Path) -> None:
    with receiver() as (url, bodies), with_orders(tmp_path, "-alarm-webhook", url) as cluster:
        eventually(lambda: cluster.nodes[1].http in page(cluster.admin, "/nodes"))
        cluster.nodes[1].kill()
        told = lambda status: [  # noqa: E731
            one for body in bodies for one in body["alarms"] if (one["rule"], one["status"]) == ("node-down", status)
        ]
        eventually(lambda: len(told("raised")) == 1)
        assert "Critical: Node down" in next(body["text"] for body in bodies if "Node down" in body["text"])
        flags = ("-lookupd-tcp-address", cluster.lookupd.tcp, "-http-address", cluster.nodes[1].http, "-node-id", "2")
        with nsqd(tmp_path / "2", *flags):
            eventually(lambda: len(told("ended")) == 1)
