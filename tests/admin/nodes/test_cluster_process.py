"""The page Cluster and /api/cluster of real nodes that copy their logs, one of which is killed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.admin.asking import PASSWORD, csrf_in, file_of, with_password
from tests.admin.conftest import nsqadmin
from tests.admin.usable import obstacles
from tests.daemons import Daemon, eventually, nsqd

pytestmark = pytest.mark.process
SLOW_CHECK = 300.0  # s until an alarm: the monitor seldom asks a node that answers slowly, as on a machine under load
NAVIGATION = '<a href="/cluster"'
IN_SYNC = {(leader, at, "in sync") for leader in range(3) for at in range(3) if leader != at}


@contextmanager
def three_nodes(directory: Path) -> Iterator[tuple[list[Daemon], Daemon]]:
    """Three nodes that have each other's logs, and nsqadmin."""
    secret = directory / "secret"
    secret.write_text("the secret of this cluster")
    with ExitStack() as stack:
        lookupd, nodes = stack.enter_context(Daemon("nsqlookupd")), list[Daemon]()
        for number in range(3):
            flags = ["-node-id", str(number), "-lookupd-tcp-address", lookupd.tcp, f"-cluster-secret-file={secret}",
                     "-cluster-address=127.0.0.1:0", "-failover-after=3s", "-failover-quorum=none"]  # fmt: skip
            flags += ["-cluster-peer", nodes[0].addresses["CLUSTER"]] if nodes else []
            node = nsqd(directory / str(number), *flags, listens=("TCP", "HTTP", "CLUSTER"))
            nodes.append(stack.enter_context(node))
        flags = ["-lookupd-http-address", lookupd.http, "-auth-file", file_of(directory), "-anonymous-role", "viewer"]
        admin = stack.enter_context(nsqadmin(*flags))
        eventually(lambda: len(httpx.get(f"http://{lookupd.http}/nodes").json()["producers"]) == 3)
        yield nodes, admin


def state(admin: Daemon) -> dict[str, Any]:
    """The only cluster; {} if none is known."""
    clusters = httpx.get(f"http://{admin.http}/api/cluster", timeout=20).json()["clusters"]
    return dict(clusters[0]) if clusters else {}


def states(admin: Daemon) -> dict[int, str]:
    return {one["node"]: one["state"] for one in state(admin).get("nodes", ())}


def copies(admin: Daemon) -> set[tuple[int, int, str]]:
    return {(one["leader"], one["follower"], one["state"]) for one in state(admin).get("copies", ())}


def page(admin: Daemon, path: str = "/cluster") -> str:
    answer = httpx.get(f"http://{admin.http}{path}", timeout=20)
    assert answer.status_code == 200
    return answer.text


def known(node: Daemon) -> list[dict[str, Any]]:
    return list(httpx.get(f"http://{node.http}/cluster").json()["nodes"])


def test_a_lost_node_is_promoted_and_forgotten(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as (nodes, admin), httpx.Client(base_url=f"http://{admin.http}", timeout=20) as client:
        file_of(tmp_path, with_password("ann", "admin"))
        origin = {"Origin": f"http://{admin.http}"}

        def send(action: str, node: str = "2", **form: str) -> httpx.Response:
            csrf = csrf_in(client.get("/cluster").text)
            given = {"action": action, "cluster": "penstock", "node": node, "confirm": node, "log": log_id, "by": "0"}
            return client.post("/cluster", data=given | {"csrf": csrf} | form, headers=origin)

        def leader() -> tuple[int, str]:
            logs = state(admin).get("logs", ())
            return next(((one["leader"], one["state"]) for one in logs if one["node"] == 2), (-1, ""))

        eventually(lambda: copies(admin) == IN_SYNC)
        assert states(admin) == {0: "up", 1: "up", 2: "up"}
        assert page(admin).count(">in sync</span>") == 6
        eventually(lambda: leader() == (2, "serving"))
        (log_id,) = [one["log_id"] for one in state(admin)["logs"] if one["node"] == 2]
        for action in ("promote", "forget"):
            assert send(action).status_code in (401, 403), "a viewer may not"
        login = {"user": "ann", "password": PASSWORD, "next": ""}
        eventually(lambda: client.post("/login", data=login, headers=origin).status_code == 303)
        assert send("promote").status_code == 409, "its leader is there"
        assert (send("forget").status_code, "Node 2 is not down" in unescape(send("forget").text)) == (409, True)
        buttons = ("Promote the log", "Forget node")
        assert not [words for words in buttons if words in client.get("/cluster").text]

        nodes[2].kill()
        eventually(lambda: leader() == (2, "leader lost"))
        eventually(lambda: states(admin) == {0: "up", 1: "up", 2: "down"})
        eventually(lambda: {(0, 2, "away"), (1, 2, "away"), (2, 0, "complete"), (2, 1, "complete")} < copies(admin))
        eventually(lambda: "only 2 copies possible now" in unescape(page(admin)))
        for words in ("Promote the log of node 2 in cluster penstock", "Forget node 2 of cluster penstock"):
            eventually(lambda words=words: words in client.get("/cluster").text)
        text = page(admin)
        assert not [words for words in buttons if words in text], "a viewer has no button"
        assert "waits: -failover-quorum is none" in text
        assert "penstock recover DATA-PATH --node 2 --from" in text
        assert obstacles(text) == []
        eventually(lambda: "it is not served: leader lost" in page(admin, "/alarms"), SLOW_CHECK)
        assert send("promote", confirm="1").status_code == 400
        for wrong in ({"by": "2"}, {"log": "00" * 16}, {"node": "1"}):
            assert send("promote", **wrong).status_code == 409
        refused = send("forget", confirm="1")
        assert (refused.status_code, "Type 2 to confirm" in refused.text) == (400, True)
        assert 'aria-invalid="true" autofocus value="1"' in refused.text
        assert send("forget", cluster="other").status_code == 404
        assert send("forget", "9").status_code == 409

        eventually(lambda: all(known(one)[2]["suspected"] for one in nodes[:2]))
        done = send("promote")
        assert (done.status_code, done.headers["location"]) == (303, "/cluster"), done.text
        assert "The node is a candidate for the log." in client.get("/cluster").text
        eventually(lambda: leader() in ((0, "serving"), (1, "serving")))  # 1: if its copy is longer
        eventually(lambda: "leads its log now, and delivers its messages." in page(admin))
        assert next(one for one in state(admin)["nodes"] if one["node"] == 2)["led_by"] == leader()[0]

        done = send("forget")
        assert (done.status_code, done.headers["location"]) == (303, "/cluster"), done.text
        eventually(lambda: states(admin) == {0: "up", 1: "up", 2: "forgotten"})
        assert "The node is forgotten." in client.get("/cluster").text
        audit = client.get("/audit").text
        assert all(words in audit for words in ("promote", "forget", "ann", nodes[0].http, log_id))
        for node in nodes[:2]:
            eventually(lambda node=node: {one["node"]: one["standing"] for one in known(node)}[2] == "forgotten")

        nodes[0].kill()
        nodes[1].kill()
        eventually(lambda: not state(admin))
        eventually(lambda: "No responding node is in a cluster." in page(admin))
        assert NAVIGATION in page(admin)  # it was there, and who looks for it has a reason
