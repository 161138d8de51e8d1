"""Alarms, pages and webhooks when something is broken while no page is open."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import daemons
from tests.admin.conftest import Cluster, a_cluster, nsqadmin
from tests.daemons import Daemon
from tests.http_endpoint import OK, Endpoint, always, status

pytestmark = pytest.mark.process

FAST = ("-alarm-interval", "1s")
PAGES = ("/", "/nodes", "/topics/orders", "/topics/orders/mail", "/storage", "/tubes", "/counter", "/lookup", "/alarms")


def page(admin: Daemon, path: str) -> str:
    return httpx.get(f"http://{admin.http}{path}", timeout=20).text


def alarms(admin: Daemon) -> dict[str, list[dict[str, Any]]]:
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


def test_a_page_shows_figures_of_now_and_a_dead_node_held_what_any_page_has_seen_of_it(tmp_path: Path) -> None:
    """The checks of the nodes are an hour apart: only a page has seen the messages."""
    flags = ("-alarm-interval", "1h", "-alarm", "disk-low.percent=100", "-alarm", "disk-days=off")
    with a_cluster(tmp_path, *flags) as cluster:
        node, admin = cluster.nodes[1], cluster.admin
        eventually(lambda: "disk-low" in alarms(admin))
        (alarm,) = alarms(admin)["disk-low"]  # both nodes have one disk
        for path in (f"/nodes/{alarm['subject']}", f"/storage?node={alarm['subject']}"):
            text = page(admin, path)
            assert "Disk almost full</a> for <time" in text, path
            assert "What to do: Free space" in text
        cluster.channel("orders", "mail")
        cluster.publish("orders", *(f"b{one}" for one in range(100)), node=1)
        eventually(lambda: ">100<" in page(admin, "/topics/orders/mail"))
        assert ">100<" in page(admin, "/nodes"), "the check was before"

        def row() -> dict[str, Any]:
            rows = httpx.get(f"http://{admin.http}/nodes?format=json", timeout=20).json()
            return next(one for one in rows if one["node"] == node.http)

        assert row()["depth"] == 100
        eventually(lambda: min(row()["figures_at"], row()["disk_at"]) > alarm_time(alarm))
        node.kill()
        eventually(lambda: "Node down:" in page(admin, "/"))
        for path in ("/", "/nodes", f"/nodes/{node.http}", "/topics/orders", "/cluster"):
            text = page(admin, path)
            assert "100 messages are stuck on it: orders (100). That is as of 20" in text, path
            assert "before it was lost" in text
            assert "It held no messages" not in text


def alarm_time(alarm: dict[str, Any]) -> str:
    """When the alarm was seen, as exports have times."""
    return datetime.fromtimestamp(alarm["seen"], UTC).isoformat()


def test_a_node_that_dies_while_no_page_is_open_is_down_on_every_page_and_webhooks_are_notified(tmp_path: Path) -> None:
    refuses_once = iter([status(503)])
    with Endpoint(lambda request, peer: always(next(refuses_once, OK))(request, peer)) as endpoint:
        flags = ("-state-dir", str(tmp_path / "state"), "-alarm-webhook", endpoint.url)
        with with_orders(tmp_path, *flags) as cluster:
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
            assert "Last known values" in last
            assert ">30<" in last
            eventually(lambda: notified(endpoint, "raised"))
            bodies = map(json.loads, endpoint.bodies)
            assert "Critical: Node down" in next(body["text"] for body in bodies if "Node down" in body["text"])
            admin.stop()

            with nsqadmin("-lookupd-http-address", cluster.lookupd.http, *FAST, *flags) as again:
                eventually(lambda: "Node down:" in page(again, "/"))
                assert "30 messages are stuck on it" in page(again, "/"), "also after a restart of nsqadmin"
                assert post(again, f"/nodes/{dead.http}", action="dismiss", confirm="x") == 400
                assert post(again, f"/nodes/{dead.http}", action="dismiss", confirm=dead.http) == 303
                assert "Node down:" not in page(again, "/")
                assert dead.http not in page(again, "/nodes")
                eventually(lambda: "node-down" not in alarms(again))
                eventually(lambda: notified(endpoint, "ended") == ["ended"])
            assert notified(endpoint, "raised") == ["raised"], "the other nsqadmin knew of it"


def notified(endpoint: Endpoint, what: str) -> list[str]:
    """The notifications about the node; the first body was refused, and sent again."""
    every = [one for body in endpoint.bodies[1:] for one in json.loads(body)["alarms"] if one["rule"] == "node-down"]
    return [one["status"] for one in every if one["status"] == what]


def test_trouble_with_consumers_snoozes_and_thresholds(tmp_path: Path) -> None:
    state = ("-state-dir", str(tmp_path / "state"))
    with with_orders(tmp_path, *state, "-alarm", "buried-growing=off", "-alarm", "buried.messages=5") as cluster:
        admin, node = cluster.admin, cluster.nodes[0]
        cluster.publish("lonely", "x")
        with cluster.worker("emails") as worker:
            worker.put("job")
            worker.bury(worker.reserve())
            worker.pause_tube("emails", 600)
        daemons.post(node, "/channel/messages/bury", topic="orders", channel="mail", state="ready", count="7")
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

        snooze = {"action": "snooze", "rule": "buried", "subject": "orders/mail", "minutes": "5", "reason": ""}
        origin = {"Origin": f"http://{admin.http}"}
        refused = httpx.post(f"http://{admin.http}/alarms", data=snooze, headers=origin)
        assert refused.status_code == 400, "without a reason"
        assert '<option value="buried" selected>' in refused.text
        assert 'name="subject" value="orders/mail"' in refused.text
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
        assert post(admin, "/alarms/rules", rule="channel-without-consumer", action="off") == 303
        eventually(lambda: "channel-without-consumer" not in alarms(admin))
        admin.stop()
        with nsqadmin("-lookupd-http-address", cluster.lookupd.http, *FAST, *state) as again:
            assert 'value="8"' in page(again, "/alarms/rules"), "it is kept over a restart"
