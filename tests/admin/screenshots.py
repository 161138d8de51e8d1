"""Pictures of every page of nsqadmin, of a cluster with something in it: `python -m tests.admin.screenshots DIRECTORY`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from penstock.client import Consumer
from tests.admin.conftest import Cluster, a_cluster
from tests.requirements import chromium

WIDTHS, SCHEMES = (1280, 375), ("light", "dark")


@contextmanager
def browser() -> Iterator[Browser]:
    """The machine's own."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()


def fill(cluster: Cluster) -> None:
    """Something of everything."""
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


def paths(cluster: Cluster) -> dict[str, str]:
    """Every page, by a name for its pictures."""
    node = cluster.nodes[0].http
    return {
        "topics": "/",
        "topic": "/topics/orders",
        "channel": "/topics/orders/mail",
        "messages": f"/messages/orders/mail?node={node}&state=ready",
        "nodes": "/nodes",
        "node": f"/nodes/{node}",
        "lookup": "/lookup",
        "counter": "/counter",
        "wrong": "/topics/orders/nobody",
    }


def main(directory: Path) -> None:
    """Take them."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, a_cluster(Path(data)) as cluster, browser() as chrome:
        fill(cluster)
        for scheme in SCHEMES:
            for width in WIDTHS:
                context = chrome.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
                page = context.new_page()
                for name, path in paths(cluster).items():
                    page.goto(cluster.url + path)
                    page.screenshot(path=directory / f"{name}-{width}-{scheme}.png")
                    print(f"{name}-{width}-{scheme}.png")
                context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
