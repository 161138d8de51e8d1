"""Pictures of every page of nsqadmin, of a cluster with something in it: `python -m tests.admin.screenshots ALL CHOSEN`.

All go into the one directory, those of the documents into the other, too.
"""

import math
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from penstock.client import Consumer
from tests.admin.asking import file_of, with_password
from tests.admin.browsers import browser
from tests.admin.conftest import Cluster, a_cluster

WIDTHS, SCHEMES = (1280, 768, 375), ("light", "dark")
CHOSEN = ("topics", "topic", "channel", "messages", "node", "storage", "login")
BUSY = 40.0  # s: four steps of a chart


@contextmanager
def a_full_cluster(directory: Path) -> Iterator[Cluster]:
    """With something of everything in it, and users."""
    users = file_of(directory, with_password("ann", "admin"), with_password("vic", "viewer"))
    flags = ("-auth-file", users, "-anonymous-role", "admin", "-audit-file", str(directory / "audit"))
    with a_cluster(directory, *flags) as cluster:
        fill(cluster)
        yield cluster


def fill(cluster: Cluster) -> None:
    """Publish and consume until every page has something to show."""
    for topic, channel in (("orders", "mail"), ("orders", "billing"), ("clicks", "archive")):
        cluster.channel(topic, channel)
    for number in range(30):
        cluster.publish(
            "orders", f'{{"order": {number}, "customer": "c{number % 7}", "total": {number * 9.5}}}', node=number % 2
        )
        cluster.publish("clicks", *[f"/page/{one}" for one in range(20)])
    with Consumer("orders", "billing", [cluster.nodes[0].tcp], max_in_flight=5) as consumer:
        for message in consumer.poll(5):
            message.finish()
    at = f"http://{cluster.nodes[0].http}"
    httpx.post(
        f"{at}/channel/messages/bury?topic=orders&channel=mail&state=ready&count=3&reason=bad"
    ).raise_for_status()
    httpx.post(f"{at}/topic/cursor?topic=orders&name=archive&owner=spark&hold=24h").raise_for_status()
    with cluster.worker("resize") as worker:
        for number in range(5):
            worker.put(f'{{"image": {number}, "width": 640}}', priority=number * 500)
        worker.bury(worker.reserve(timeout=5))
        worker.put("later", delay=3600)
    form = {"action": "kick", "node": cluster.nodes[0].http, "state": "buried", "count": "1", "per_second": "10"}
    httpx.post(f"{cluster.url}/messages/orders/mail", data=form, headers={"Origin": cluster.url}, follow_redirects=True)


def paths(cluster: Cluster) -> dict[str, str]:
    node = cluster.nodes[0].http
    mail, resize = f"/messages/orders/mail?node={node}", f"/tube?name=resize&node={node}"
    return {
        "login": "/login?next=%2F", "storage": f"/storage?node={node}", "readers": "/readers", "tubes": "/tubes",
        "tube": f"{resize}&state=ready", "tube-many": f"{resize}&state=buried&many=kick&count=1", "tasks": "/tasks",
        "task": "/tasks/1", "audit": "/audit", "buried": f"{mail}&state=buried&many=finish",
        "search": f"{mail}&state=ready&search=c3", "forbidden": "/messages/orders/mail?node=x", "topics": "/",
        "topic": "/topics/orders", "channel": "/topics/orders/mail", "messages": "/messages/orders/mail?state=ready",
        "filtered": "/messages/orders/mail?state=buried&reason=bad&since=1d",
        "move": "/messages/orders/mail?state=ready&many=move",
        "moving": "/messages/orders/mail?state=ready&many=move&to=repair&count=7",
        "edit": f"/republish/orders/mail?node={node}&offset=5", "nodes": "/nodes", "node": f"/nodes/{node}",
        "lookup": "/lookup", "counter": "/counter", "health": "/health", "configuration": "/configuration/orders",
        "preview": "/configuration/orders?durability=os&retention=5m",
        "refused": "/configuration/orders?retention=2+days", "unknown": "/nosuch", "wrong": "/topics/orders/nobody",
        "alarms": "/alarms", "alarm": "/alarms?rule=buried", "alarm-rules": "/alarms/rules",
    }  # fmt: skip


def busy(cluster: Cluster, seconds: float) -> None:
    """Publish and consume for a while, so that charts and rates have something to show."""
    httpx.get(f"{cluster.url}/series/orders").raise_for_status()
    until = time.monotonic() + seconds
    with Consumer("orders", "billing", [cluster.nodes[0].tcp], max_in_flight=20) as consumer:
        while time.monotonic() < until:
            for number in range(int(10 + 8 * math.sin(until - time.monotonic()))):
                cluster.publish("orders", f'{{"order": {number}, "customer": "c{number % 7}"}}', node=number % 2)
            cluster.publish("clicks", *[f"/page/{one}" for one in range(20)])
            for message in consumer.poll(0.2):
                message.finish()


def main(directory: Path, chosen: Path) -> None:
    """Take them: all, and CHOSEN again for the documents."""
    for one in (directory, chosen):
        one.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, a_full_cluster(Path(data)) as cluster, browser() as chrome:
        busy(cluster, BUSY)
        for scheme in SCHEMES:
            for width in WIDTHS:
                context = chrome.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
                page = context.new_page()
                for name, path in paths(cluster).items():
                    page.goto(cluster.url + path)
                    if name in ("topic", "channel"):
                        page.wait_for_selector("figure canvas")
                    file = f"{name}-{width}-{scheme}.png"
                    page.screenshot(path=directory / file, full_page=name in ("topic", "channel"))
                    if name in CHOSEN:
                        shutil.copy(directory / file, chosen / file)
                    print(file)
                context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
