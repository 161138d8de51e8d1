"""pydisque, redis-py and disqueue-node, clients of Disque, run unchanged against our nsqd.

redis-py 8 speaks RESP3 unless it is told otherwise. With `protocol=2` it opens as redis-py 7 does, which cannot be installed
beside it.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pydisque.client
import pytest
import redis

from tests.clients.node_client import NodeClient, Refused
from tests.daemons import Daemon, nsqd
from tests.requirements import require

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated:DeprecationWarning"),  # of pydisque
]

UNKNOWN = "D-aaaaaaaa-" + "b" * 24 + "-05a1"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with nsqd(
        tmp_path_factory.mktemp("node"), "-disque-address", "127.0.0.1:0", listens=("TCP", "HTTP", "DISQUE")
    ) as daemon:
        yield daemon


@pytest.fixture(params=[3, 2], ids=["RESP3", "RESP2"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The version of RESP that redis-py asks for; also that inside pydisque."""
    if request.param == 2:
        monkeypatch.setattr(pydisque.client.redis, "Redis", partial(redis.Redis, protocol=2))
    return int(request.param)


def connected(*nodes: Daemon) -> pydisque.client.Client:
    client = pydisque.client.Client([node.addresses["DISQUE"] for node in nodes])
    client.connect()
    return client


def raw(node: Daemon, **options: Any) -> redis.Redis:
    host, _, port = node.addresses["DISQUE"].rpartition(":")
    return redis.Redis(host, int(port), **options)


def test_each_method_of_pydisque(node: Daemon, version: int) -> None:
    client, queue = connected(node), f"methods{version}"
    name = queue.encode()
    first = client.add_job(queue, "first")
    second = client.add_job(
        queue, "second", timeout=100, replicate=1, delay=0, retry=7, ttl=100, maxlen=10, asynchronous=True
    )
    late = client.add_job(queue, "late", delay=100)
    once = client.add_job(queue, "once", retry=0)
    assert second.endswith(b"-0001")
    assert once.endswith(b"-05a0")
    with pytest.raises(redis.ResponseError, match="MAXLEN Queue is already longer"):
        client.add_job(queue, "no", maxlen=1)
    assert client.qlen(queue) == 3
    assert client.qpeek(queue, 1) == [[name, first, b"first"]]
    assert client.qpeek(queue, -1) == [[name, once, b"once"]]
    assert client.get_job([queue], count=2, withcounters=True) == [
        (name, first, b"first", 0, 0), (name, second, b"second", 0, 0),
    ]  # fmt: skip
    client.nack_job(first)
    shown = client.show(first, return_dict=True)
    assert (shown[b"state"], shown[b"nacks"], shown[b"body"]) == (b"queued", 1, b"first")
    assert client.show(UNKNOWN) is None
    assert client.working(second) == 7
    with pytest.raises(redis.ResponseError, match="NOJOB Job not known"):
        client.working(UNKNOWN)
    assert client.enqueue(second) == 1
    assert client.dequeue(second) == 1
    assert client.show(second, return_dict=True)[b"additional-deliveries"] == 1
    assert client.get_job([queue, "other"], nohang=True) == [(name, first, b"first")]
    client.ack_job(first)
    assert client.show(first) is None
    client.fast_ack(second, UNKNOWN)
    assert client.show(second) is None
    assert client.del_job(late) == 1
    assert client.get_job([queue]) == [(name, once, b"once")]
    assert client.get_job([queue], nohang=True) == []
    assert client.get_job([queue], timeout=50) == []
    stat = client.qstat(queue, return_dict=True)
    assert (stat[b"len"], stat[b"jobs-in"], stat[b"pause"]) == (0, 4, b"none")
    assert not client.qstat("nosuch")
    assert client.pause(queue, kw_in=True, kw_state=True) == b"in"
    with pytest.raises(redis.ResponseError, match="PAUSED Queue paused in input"):
        client.add_job(queue, "no")
    assert client.pause(queue, kw_out=True, kw_bcast=True) == b"out"
    assert client.pause(queue, kw_all=True) == b"all"
    assert client.pause(queue, kw_none=True) == b"none"
    assert name in client.qscan(count=1000, busyloop=True, maxlen=5)[1]
    last = client.add_job(queue, "last")
    assert client.jscan(queue=queue, state=["active", "queued"])[1] == [last]
    (everything,) = client.jscan(count=5, queue=queue, reply="all")[1]
    assert dict(zip(everything[::2], everything[1::2], strict=True))[b"body"] == b"last"
    assert client.info()["disque_version"] == "1.0-rc1"
    form, own, (node_id, ip, port, priority) = client.hello()
    assert (form, node_id, priority) == (1, own, b"1")
    assert (ip, port) in ((b"", port), (b"127.0.0.1", port))
    assert port.decode() == node.addresses["DISQUE"].rpartition(":")[2]
    client.ack_job(last)


@pytest.mark.parametrize("protocol", [2, 3, None])
def test_redis_py_sends_commands_as_they_are(node: Daemon, protocol: int | None) -> None:
    queue = f"raw{protocol}"
    with raw(node, protocol=protocol, client_name="worker") as client:
        assert client.ping()
        job_id = client.execute_command("ADDJOB", queue, b"\0\r\n\xff", 0, "TTL", 120)
        assert client.execute_command("GETJOB", "FROM", queue) == [[queue.encode(), job_id, b"\0\r\n\xff"]]
        assert client.execute_command("GETJOB", "NOHANG", "FROM", queue) is None
        assert client.execute_command("SHOW", UNKNOWN) is None
        assert client.execute_command("ACKJOB", job_id, UNKNOWN) == 1
        assert client.client_getname() in ("worker", b"worker")
        assert isinstance(client.client_id(), int)
        assert client.config_get("hz") == {"hz": "10"}
        assert client.info("jobs")["registered_jobs"] >= 0
        with pytest.raises(redis.ResponseError, match="unknown command 'SET'"):
            client.set("a", "b")
        with client.pipeline(transaction=False) as pipeline:
            for number in range(500):
                pipeline.execute_command("ADDJOB", queue, f"body {number}", 0)
            ids = pipeline.execute()
        assert len(set(ids)) == 500
        found = client.execute_command("GETJOB", "COUNT", 500, "FROM", queue)
        assert [body for _, _, body in found] == [b"body %d" % number for number in range(500)]
        assert client.execute_command("ACKJOB", *ids) == 500


class Disqueue(NodeClient):
    """A Node process that runs one client of disqueue-node."""

    def call(self, method: str, argument: object) -> Any:
        """What the callback was given. Raises Refused."""
        return self.send({"call": method, "arg": argument})


def test_each_method_of_disqueue_node(node: Daemon) -> None:
    require("node")
    with Disqueue("disqueue", node.addresses["DISQUE"]) as client:
        options = {"timeout": 100, "replicate": 1, "retry": 5, "ttl": 100, "maxlen": 50, "async": True}
        first = client.call("addJob", {"queue": "js", "job": "schön", **options})
        second = client.call("addJob", {"queue": "js", "job": "x"})
        assert client.call("getJob", {"queue": "js", "count": 1}) == [{"queue": "js", "jobId": first, "body": "schön"}]
        assert client.call("getJob", {"queue": ["js", "js2"], "withcounters": True, "nohang": True}) == [
            {"queue": "js", "jobId": second, "body": "x", "nacks": 0, "additionalDeliveries": 0}
        ]
        assert client.call("getJob", {"queue": "js", "nohang": True}) == []
        assert client.call("nack", [first]) == 1
        assert client.call("working", first) == 5
        shown = client.call("show", first)
        assert (shown["state"], shown["nacks"], shown["body"], shown["retry"]) == ("active", 1, "schön", 5)
        assert client.call("show", UNKNOWN) is None
        assert client.call("enqueue", first) == 1
        assert client.call("dequeue", first) == 1
        assert client.call("qlen", "js") == 0
        scanned = client.call("qscan", {"count": 1000, "busyloop": True, "maxlen": 9})
        assert "js" in scanned["queues"]
        response = client.call("hello", {})
        assert (response["version"], response["nodeIds"][0]) == (1, response["nodeId"])
        assert client.call("info", {})["server"]["disque_version"] == "1.0-rc1"
        assert client.call("ackJob", first) == 1
        assert client.call("fastAck", [second]) == 1
        assert client.call("delJob", first) == 0
        with pytest.raises(Refused, match="BADID"):
            client.call("working", "bad")
        with pytest.raises(Refused, match="no password is set"):
            client.call("auth", {"password": "x"})
