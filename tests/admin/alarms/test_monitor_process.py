"""Alarms, pages and webhooks when something is broken while no page is open."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import daemons
from tests.admin.conftest import a_cluster, nsqadmin
from tests.daemons import Daemon
from tests.http_endpoint import OK, Endpoint, always, status

pytestmark = pytest.mark.process

FAST = ("-alarm-interval", "1s")
PAGES = ("/", "/nodes", "/topics/orders", "/topics/orders/mail", "/storage", "/tubes", "/counter", "/lookup", "/alarms")


def page(admin: Daemon, path: str) -> str:
    return httpx.get(f"http://{admin.http}{path}", timeout=20).text


def node_down(admin: Daemon) -> list[dict[str, Any]]:
    """Return the alarms about nodes that are down."""
    found = httpx.get(f"http://{admin.http}/api/alarms", timeout=20).json()["alarms"]
    return [one for one in found if one["rule"] == "node-down"]


def post(admin: Daemon, path: str, **form: str) -> int:
    """Send a form as a page of nsqadmin does, and return the status of the answer."""
    return httpx.post(f"http://{admin.http}{path}", data=form, headers={"Origin": f"http://{admin.http}"}).status_code


def eventually(done: Callable[[], object]) -> None:
    """Wait for what the monitor finds: it asks a node seldom that answers slowly, as all do on a machine under load."""
    daemons.eventually(done, 300)


def test_a_node_that_dies_while_no_page_is_open_is_down_on_every_page_and_webhooks_are_notified(tmp_path: Path) -> None:
    refuses_once = iter([status(503)])
    with Endpoint(lambda request, peer: always(next(refuses_once, OK))(request, peer)) as endpoint:
        flags = ("-state-dir", str(tmp_path / "state"), "-alarm-webhook", endpoint.url)
        with a_cluster(tmp_path, *FAST, *flags) as cluster:
            cluster.channel("orders", "mail")
            cluster.publish("orders", *(f"b{one}" for one in range(30)), node=1)
            dead, admin = cluster.nodes[1], cluster.admin
            eventually(lambda: ">30<" in page(admin, "/nodes"))  # its figures are known
            dead.kill()
            eventually(lambda: node_down(admin))
            (alarm,) = node_down(admin)
            assert (alarm["severity"], alarm["subject"]) == ("critical", dead.http)
            assert "30 messages stuck on it: orders (30)." in alarm["text"]
            for path in PAGES:
                text = page(admin, path)
                assert "Node down:" in text, path
                assert dead.http in text
                assert "30 messages stuck on it" in text
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
                assert "30 messages stuck on it" in page(again, "/"), "also after a restart of nsqadmin"
                assert post(again, f"/nodes/{dead.http}", action="dismiss", confirm="x") == 400
                assert post(again, f"/nodes/{dead.http}", action="dismiss", confirm=dead.http) == 303
                assert "Node down:" not in page(again, "/")
                assert dead.http not in page(again, "/nodes")
                eventually(lambda: not node_down(again))
                eventually(lambda: notified(endpoint, "ended") == ["ended"])
            assert notified(endpoint, "raised") == ["raised"], "the other nsqadmin knew of it"


def notified(endpoint: Endpoint, what: str) -> list[str]:
    """The notifications about the node; the first body was refused, and sent again."""
    every = [one for body in endpoint.bodies[1:] for one in json.loads(body)["alarms"] if one["rule"] == "node-down"]
    return [one["status"] for one in every if one["status"] == what]
