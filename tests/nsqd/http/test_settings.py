"""The table of docs/reference/settings.md: each setting, as each of its columns says, on a whole node.

A case is a setting, with others that it needs; its effect is tried by consumers of NSQ's kind, and by workers of beanstalkd and
of Disque on the jobs of the same topic. One who does not know a setting behaves as without it.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.protocol.headers import GROUP
from penstock.protocol.nsq import pub, with_headers
from shared.topic_config import OF_CHANNELS, SETTINGS, TopicConfig
from tests.cases import each
from tests.daemons import OK, Conversation, sized
from tests.local_node import SECOND, LocalNode
from tests.nsqd.http.asking import post
from tests.nsqd.protocols.disque.wire import read_reply, request

TABLE = Path("docs/reference/settings.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| `")]
STARRED = set(re.findall(r"`(\w+)[^`]*`\*", " ".join(row[0] for row in ROWS)))


class Client:
    """A client of one protocol: NSQ's words to publish and HTTP's to consume."""

    column = 1  # of the table

    def __init__(self, node: LocalNode) -> None:
        self.node = node
        post(node, "/topic/create", topic="t")
        post(node, "/channel/create", topic="t", channel="c")

    def cell(self, setting: str) -> str:
        """Return the first cell of the table about a setting, or one value of it, such as overflow=bury."""
        return next(row[self.column] for row in ROWS if re.search(f"`{setting}[`=]", row[0]))

    def has(self, setting: str) -> bool:
        """Return False if the table says that the protocol does not have the setting."""
        return not self.cell(setting).startswith("no: ")

    def configure(self, **settings: str | int) -> None:
        post(self.node, "/topic/config", topic="t", **settings)

    def publish_with(self, body: bytes, **attributes: str) -> None:
        """Publish a message over HTTP, which may be a job."""
        post(self.node, "/pub", body, topic="t", **attributes)

    def publish(self, body: bytes) -> str:
        """Publish in the protocol's own words. Return the first word of the answer."""
        with Conversation(self.node, b"  V2PUB t\n" + sized(body)) as client:
            frame = client.frame()
        return "" if frame == OK else (frame or (0, b"closed"))[1].decode().split()[0]

    def receive(self, most: int = 1) -> list[tuple[Any, str]]:
        """Return messages with what names each delivery."""
        found = post(self.node, "/channel/receive", topic="t", channel="c", max=most, timeout="1m").json()["messages"]
        return [(one["receipt"], one["body"]) for one in found]

    def bodies(self, most: int = 1) -> list[str]:
        return [body for _, body in self.receive(most)]

    def fail(self, delivery: Any) -> None:
        post(self.node, "/channel/requeue", topic="t", channel="c", receipt=delivery)

    def lose(self) -> None:
        """Receive a message, and lose the connection."""
        with Conversation(self.node, b"  V2SUB t c\nRDY 1\n") as consumer:
            assert consumer.frame() == OK
            consumer.message()

    def finish(self, delivery: Any) -> None:
        post(self.node, "/channel/finish", topic="t", channel="c", receipt=delivery)

    def buried(self) -> int:
        return len(self.reasons())

    def reasons(self) -> list[str]:
        return [one.reason for one in self.node.broker.topics["t"].channels["c"].buried.values()]


class OfChannel(Client):
    """A client whose settings are those of the one channel."""

    def configure(self, **settings: str | int) -> None:
        super().configure(channel="c", **settings)


class Beanstalk(Client):
    """A worker of beanstalkd."""

    column = 2

    def __init__(self, node: LocalNode) -> None:
        self.node, self._socket = node, node.connect("BEANSTALK")
        self._answers = self._socket.makefile("rb")
        self._do(b"use t\r\n")
        self._do(b"watch t\r\n")
        post(node, "/topic/create", topic="t")

    def _do(self, command: bytes) -> list[str]:
        self._socket.sendall(command)
        return self._answers.readline().decode().split()

    def put(self, verb: bytes, body: bytes, pri: int = 65536) -> str:
        return self._do(b"%s %d 0 60 %d\r\n%s\r\n" % (verb, pri, len(body), body))[0]

    def publish(self, body: bytes) -> str:
        word = self.put(b"put", body)
        return "" if word == "INSERTED" else word

    def receive(self, most: int = 1) -> list[tuple[Any, str]]:
        found = []
        for _ in range(most):
            word, *rest = self._do(b"reserve-with-timeout 0\r\n")
            if word == "TIMED_OUT":
                break
            found.append((rest[0], self._answers.readline().decode().rstrip()))
        return found

    def fail(self, delivery: Any) -> None:
        assert self._do(b"release %s 65536 0\r\n" % delivery.encode())[0] in ("RELEASED", "BURIED")

    def stats(self, delivery: Any) -> list[str]:
        _, size = self._do(b"stats-job %s\r\n" % delivery.encode())
        return self._answers.read(int(size) + 2).decode().splitlines()

    def lose(self) -> None:
        worker = type(self)(self.node)
        assert worker.receive()
        worker._answers.close()
        worker._socket.close()

    def finish(self, delivery: Any) -> None:
        assert self._do(b"delete %s\r\n" % delivery.encode()) == ["DELETED"]

    def buried(self) -> int:
        tube = self.node.broker.tubes.tube("t")
        assert tube is not None
        return tube.counts().buried


class Disque(Beanstalk):
    """A worker of Disque."""

    column = 3

    def __init__(self, node: LocalNode) -> None:
        self.node, self._socket = node, node.connect("DISQUE")
        node.broker.tubes.made("t")

    def _ask(self, *words: bytes | str | int) -> Any:
        self._socket.sendall(request(*words))
        said = b""
        while True:
            said += self._socket.recv(1 << 16)
            with suppress(ValueError, AssertionError):  # a part of it
                return read_reply(said)[0]

    def publish(self, body: bytes, *more: str | int) -> str:
        reply = self._ask("ADDJOB", "t", body, 0, *more)
        return str(reply)[1:].split()[0] if str(reply).startswith("-") else ""

    def receive(self, most: int = 1) -> list[tuple[Any, str]]:
        found = self._ask("GETJOB", "NOHANG", "COUNT", most, "FROM", "t") or []
        return [(job_id, body.decode()) for _, job_id, body in found]

    def fail(self, delivery: Any) -> None:
        assert self._ask("NACK", delivery) == 1

    def finish(self, delivery: Any) -> None:
        assert self._ask("ACKJOB", delivery) == 1


COLUMNS: tuple[type[Client], ...] = (Client, Beanstalk, Disque, OfChannel)


def durability(client: Client) -> None:
    store = client.node.store
    for mode, is_synced in (("os", False), ("always", True)):
        client.configure(durability=mode)
        assert client.publish(b"x") == ""
        assert (store.durable.position == store.written.position) == is_synced


def replicate(client: Client) -> None:
    topic = client.node.broker.topics["t"]
    if isinstance(client, Disque):
        assert client.publish(b"x", "REPLICATE", 2) == "NOREPL"
    topic.configure(TopicConfig(replicate=2))  # HTTP refuses what a node alone cannot have
    assert client.publish(b"x") == ["E_PUB_FAILED", "DRAINING", "NOREPL"][client.column - 1]


def retention(client: Client, **settings: str) -> None:
    client.configure(**settings or {"retention": "1h"})
    client.publish(b"x")
    client.finish(client.receive()[0][0])
    client.node.advance(SECOND)
    (found,) = client.node.client.get("/topic/read?topic=t").text.splitlines()
    assert '"body":"x"' in found.replace(" ", "")


def retention_bytes(client: Client) -> None:
    retention(client, retention_bytes="100000")


def max_attempts(client: Client, **settings: str) -> None:
    client.configure(max_attempts=2, **settings)
    client.publish(b"x")
    for failures in (1, 2):
        assert client.buried() == 0
        ((delivery, _),) = client.receive()
        client.fail(delivery)
        assert client.buried() == failures - 1
    if type(client) is Beanstalk:
        assert "state: buried" in client.stats(delivery)


def forwarded(client: Client) -> int:
    client.node.advance(2 * SECOND)
    return client.node.broker.topics["dead"].offsets.end


def dead_letter(client: Client) -> None:
    post(client.node, "/topic/create", topic="dead")
    max_attempts(client, dead_letter="dead")
    assert (forwarded(client), client.buried()) == ((1, 0) if client.has("dead_letter") else (0, 1))
    if client.has("dead_letter"):
        post(client.node, "/topic/config", topic="t", max_length=1, overflow="bury")
        client.publish(b"1")
        client.publish(b"2")
        assert (forwarded(client), client.buried()) == (2, 0)


def retry(client: Client) -> None:
    client.configure(retry="fixed(5s)")
    client.publish(b"x")
    client.fail(client.receive()[0][0])
    client.node.advance(4 * SECOND)
    assert client.receive() == []
    client.node.advance(2 * SECOND)
    assert client.bodies() == ["x"]
    client.configure(retry="fixed(10m)")
    client.node.advance(310 * SECOND)  # times out
    assert client.receive() == []
    client.node.advance(600 * SECOND)
    if "lost connection" in client.cell("retry"):
        client.lose()
        client.node.advance(SECOND)
        assert client.receive() == []
        client.node.advance(601 * SECOND)
    assert client.bodies() == ["x"]


def concurrency(client: Client) -> None:
    client.configure(concurrency=1)
    client.publish(b"1")
    client.publish(b"2")
    ((delivery, _),) = client.receive(2)
    assert client.receive(2) == []
    client.finish(delivery)
    assert client.bodies(2) == ["2"]


def rate(client: Client) -> None:
    client.configure(rate=1)
    for body in (b"1", b"2", b"3"):
        client.publish(body)
    client.node.advance(2 * SECOND)
    assert client.bodies(3) == ["1"]
    client.node.advance(SECOND)
    assert client.bodies(3) == ["2"]


def group_concurrency(client: Client, **settings: str | int) -> None:
    settings = settings or {"group_concurrency": 1}
    client.configure(**settings)
    for group in ("a", "a", "b"):
        client.publish_with(group.encode(), group=group)
    assert client.bodies(3) == (["a", "b"] if client.has(next(iter(settings))) else ["a", "a", "b"])


def group_rate(client: Client) -> None:
    group_concurrency(client, group_rate=1)


def fair(client: Client) -> None:
    client.configure(fair="on")
    for _ in range(40):
        client.publish_with(b"a", group="a")
    client.publish_with(b"b", group="b")
    assert ("b" in client.bodies(35)) == client.has("fair")


def ttl(client: Client, **settings: str) -> None:
    client.configure(ttl="2s", **settings)
    client.publish(b"x")
    client.node.advance(4 * SECOND)
    assert client.bodies() == ([] if client.has("ttl") else ["x"])
    client.configure(ttl="0s")
    client.publish_with(b"y", ttl="2s")
    client.publish_with(b"z", ttl="9s")
    client.node.advance(4 * SECOND)
    assert client.bodies(9) == ["z"]


def on_expire(client: Client) -> None:
    post(client.node, "/topic/create", topic="dead")
    ttl(client, on_expire="bury")
    if client.has("on_expire"):
        assert client.reasons() == ["expired"] * 2
        client.configure(ttl="2s", on_expire="forward", dead_letter="dead")
        client.publish(b"x")
        client.node.advance(4 * SECOND)
        assert (client.bodies(), forwarded(client)) == ([], 3)
    assert client.buried() == 0


def max_length(client: Client, **settings: str | int) -> None:
    client.configure(**settings or {"max_length": 1})
    assert client.publish(b"1") == ""
    client.node.advance(SECOND // 10)
    word = client.publish(b"2")
    assert word
    assert word in client.cell("overflow=refuse")
    assert client.node.client.post("/pub?topic=t", content=b"2").json() == {"message": "TOPIC_FULL"}


def max_bytes(client: Client) -> None:
    max_length(client, max_bytes=10)


def overflow(client: Client) -> None:
    client.configure(max_length=1, overflow="drop-oldest")
    assert [client.publish(b"1"), client.publish(b"2")] == ["", ""]
    assert client.bodies(2) == (["2"] if client.has("overflow=drop-oldest") else ["1", "2"])
    client.configure(overflow="bury")
    assert client.publish(b"3") == ["", "BURIED", "MAXLEN"][client.column - 1]
    assert client.buried() == (0 if isinstance(client, Disque) else 1)
    if client.column == 1:
        assert client.reasons() == ["overflow"]
    post(client.node, "/topic/pause", topic="t")
    assert client.publish(b"4") == ["", "OUT_OF_MEMORY", "MAXLEN"][client.column - 1]


def ordering(client: Client) -> None:
    group_concurrency(client, ordering="group")
    client.configure(ordering="priority")
    client.publish_with(b"usual")
    for _ in range(20):
        client.publish_with(b"urgent", priority="0")
    found = client.bodies(40)
    assert (found.index("urgent") < found.index("usual")) == client.has("ordering=priority")
    assert {*found[:16]} != {"urgent"}, "one in 16 is the oldest"


def on_bury(client: Client) -> None:
    client.configure(ordering="group", on_bury="hold", max_attempts=1)
    for body in (b"1", b"2"):
        client.publish_with(body, group="a")
    client.fail(client.receive()[0][0])
    assert client.bodies() == ([] if client.has("on_bury") else ["2"])
    assert client.buried() == 1


CELLS: tuple[Callable[[Client], None], ...] = (
    durability, retention, retention_bytes, replicate, max_attempts, retry, concurrency, rate, group_concurrency,
    group_rate, fair, ttl, on_expire, max_length, max_bytes, overflow, ordering, on_bury, dead_letter,
)  # fmt: skip


@each("column", COLUMNS)
@each("cell", CELLS)
def test_a_cell_of_the_table(column: type[Client], cell: Callable[[Client], None]) -> None:
    if column is OfChannel and cell.__name__ not in STARRED:
        return
    node = LocalNode("-requeue-on-disconnect")
    cell(column(node))
    node.broker.check()


def test_an_ephemeral_topic_has_no_settings() -> None:
    node = LocalNode()
    post(node, "/topic/create", topic="t#ephemeral")
    for name in SETTINGS:
        assert node.client.post(f"/topic/config?topic=t%23ephemeral&{name}=1").status_code == 400, name


def test_jobs_reach_a_channel_by_their_pri() -> None:
    node = LocalNode()
    client, worker = Client(node), Beanstalk(node)
    client.configure(ordering="priority")
    for pri in (65536, 1 << 31, 0):
        worker.put(b"put", b"%d" % pri, pri)
    assert client.bodies(9) == ["0", "65536", str(1 << 31)]


def test_a_message_has_a_group_in_the_words_of_each_protocol_that_has_room_for_one() -> None:
    node = LocalNode()
    client, worker = Client(node), Beanstalk(node)
    client.configure(ordering="group")
    client.publish_with(b"over HTTP", group="a")
    asked = b"  V2IDENTIFY\n" + sized(b'{"feature_negotiation": true, "headers": true}')
    with Conversation(node, asked + with_headers(pub("t", b"as a message"), ((GROUP, "a"),))) as talk:
        assert [talk.frame(), talk.frame()][1] == OK
    assert worker.put(b"put-grouped a", b"as a job") == "INSERTED"
    for body in ("over HTTP", "as a message", "as a job"):
        ((receipt, found),) = client.receive(9)
        assert found == body
        client.finish(receipt)
    assert worker.put(b"put-grouped", b"x") == "BAD_FORMAT"


@each("settings, expected", [
    ({"ordering": "priority", "group_concurrency": 1, "group_rate": 1, "fair": "on"}, ["a0", "a", "b"]),
    ({"ordering": "group", "group_concurrency": 9}, ["a", "b"]),
    ({"ordering": "group", "concurrency": 1}, ["a"]),
    ({"ordering": "priority", "max_length": 1, "overflow": "drop-oldest"}, ["a0"]),
    ({"ttl": "1ms", "retry": "fixed(1h)", "max_attempts": 1, "on_expire": "drop", "max_length": 1}, []),
])  # fmt: skip
def test_settings_that_contradict_each_other(settings: dict[str, str | int], expected: list[str]) -> None:
    """They are set while there is a backlog, and none that holds for the messages is lost."""
    client = Client(LocalNode())
    for body, more in (("a", {}), ("a0", {"priority": "0"}), ("b", {"group": "b"})):
        client.publish_with(body.encode(), **{"group": "a", **more})
    client.configure(**settings)
    client.node.advance(SECOND // 10)
    assert client.bodies(9) == expected
    client.node.broker.check()


def test_a_change_holds_at_once_except_for_messages_in_flight() -> None:
    client = Client(LocalNode())
    for body in ("a1", "a2", "a3", "a4", "b"):
        client.publish_with(body.encode(), group=body[0])
    first, second = client.receive(2)
    client.configure(concurrency=1, ordering="group")
    client.finish(first[0])
    assert client.bodies(9) == []
    client.configure(concurrency=0)
    assert client.bodies(9) == ["b"]
    client.finish(second[0])
    assert client.bodies(9) == ["a3"]
    client.configure(ordering="none", ttl="2s")
    assert client.bodies(9) == ["a4"]
    client.publish_with(b"late", defer="3000")
    client.node.advance(4 * SECOND)
    assert client.bodies(9) == []


@each("size", [0, 1, 8 * 1024 - len("group")])
def test_a_group_has_a_name_of_any_size_up_to_the_bytes_of_headers(size: int) -> None:
    client, header = Client(LocalNode()), {"X-Nsq-Header-Group": "g" * size}
    client.configure(ordering="group")
    for _ in range(2):
        client.node.client.post("/pub?topic=t", content=b"x", headers=header).raise_for_status()
    assert len(client.bodies(9)) == (1 if size else 2)  # an empty name is that of no group


@each("size", [8 * 1024, 64 * 1024])
def test_a_longer_name_is_refused(size: int) -> None:
    client = Client(LocalNode())
    refused = client.node.client.post("/pub?topic=t", content=b"x", headers={"X-Nsq-Header-Group": "g" * size})
    assert (refused.status_code, client.bodies(9)) == (400, [])


def test_each_setting_has_a_row_and_cells() -> None:
    assert {cell.__name__ for cell in CELLS} == SETTINGS.keys(), "CELLS of this module tries each setting"
    assert {len(row) for row in ROWS} == {1 + len({column.column for column in COLUMNS})}
    without = [name for name in SETTINGS if not any(re.search(f"`{name}[`=]", row[0]) for row in ROWS)]
    assert without == [], "each setting has a row in docs/reference/settings.md"
    assert set(OF_CHANNELS) == STARRED, "a star marks each setting that a channel may have"
