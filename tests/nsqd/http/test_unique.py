"""/pub with unique=pending: a key is refused while its message is pending, in any state, also after kills and checkpoints."""

from shared.values import SECOND
from tests.cases import each
from tests.daemons import OK, Conversation
from tests.local_node import LocalNode
from tests.nsqd.http.asking import post

FLAGS = ("-durability", "interval")


def pub(node: LocalNode, key: str = "k", **arguments: str) -> tuple[bool, str]:
    """Publish a message. Return whether it is a duplicate, and the id in the answer; "": none."""
    query = {"topic": "t", "unique": "pending", "key": key, **arguments}
    answer = node.client.post("/pub", params=query, content=b"x")
    assert (answer.status_code, answer.text) == (200, "OK")
    return answer.headers.get("X-Nsq-Duplicates") == "1", answer.headers.get("X-Nsq-Message-Id", "")


def with_channels(*flags: str, channels: str = "c") -> LocalNode:
    node = LocalNode(*flags)
    post(node, "/topic/create", topic="t")
    for channel in channels.split():
        post(node, "/channel/create", topic="t", channel=channel)
    return node


def in_flight(node: LocalNode) -> Conversation:
    client = Conversation(node, b"  V2SUB t c\nRDY 1\n")
    assert (client.frame(), client.frame()[1][26:]) == (OK, b"x")
    return client


def test_a_key_is_refused_until_every_channel_has_finished_its_message() -> None:
    node = with_channels(*FLAGS, channels="c other")
    post(node, "/topic/pause", topic="t")
    is_duplicate, first = pub(node, id="true")
    assert not is_duplicate
    assert pub(node, id="true") == pub(node) == (True, first)  # no channel has it yet
    post(node, "/topic/unpause", topic="t")
    chosen = {"topic": "t", "channel": "c", "offset": 0}
    for action, more in (
        ("", {}), ("requeue", {"delay": 3_600_000}), ("bury", {}), ("kick", {"id": first}), ("finish", {}),
    ):  # fmt: skip
        if action == "kick":
            post(node, "/channel/buried/kick", topic="t", channel="c", **more)
        elif action:
            post(node, f"/channel/messages/{action}", **chosen, **more)
        assert pub(node) == (True, first), action
        node = node.killed(*FLAGS)
        assert pub(node) == (True, first), action
    post(node, "/channel/delete", topic="t", channel="other")
    assert pub(node) == (False, "")
    with in_flight(node):
        assert pub(node)[0]
    assert pub(node, "other") == (False, "")
    post(node, "/channel/empty", topic="t", channel="c")
    node = node.killed(*FLAGS)
    assert pub(node) == (False, "")


def test_a_checkpoint_has_the_keys() -> None:
    node = with_channels(*FLAGS)
    ids = {key: pub(node, key, id="true")[1] for key in ("a", "b", "c")}
    post(node, "/channel/messages/finish", topic="t", channel="c", offset=1)
    for _ in "12":
        node.log.checkpoints._begin()
        node.advance(SECOND)
    assert "nsqd_log_checkpoints_total 2.0" in node.client.get("/metrics").text
    node = node.killed(*FLAGS)
    assert [pub(node, key) for key in ("a", "b", "c")] == [(True, ids["a"]), (False, ""), (True, ids["c"])]


@each("more", [{}, {"defer": "900000"}, {"channel": "c"}, {"X-Nsq-Header-A": "b"}, {"group": "g"}])
def test_with_everything_else_that_a_publish_takes(more: dict[str, str]) -> None:
    node = with_channels()
    _, first = pub(node, id="true", **more)
    assert [pub(node, **more), pub(node)] == [(True, first)] * 2
    assert "nsqd_duplicates_total 2.0" in node.client.get("/metrics").text
    duplicates = [node.client.post("/pub?topic=t&key=k", content=b"x").headers.get("X-Nsq-Duplicates") for _ in "12"]
    assert duplicates == [None, "1"]  # the window's keys are others


def test_an_ephemeral_topic_without_room_remembers_no_key() -> None:
    node = LocalNode("-mem-queue-size", "1")
    assert [pub(node, key, topic="t#ephemeral", id="true")[0] for key in "abb"] == [False] * 3
    assert pub(node, "a", topic="t#ephemeral")[0]


def test_keys_are_bounded_and_finished_ones_are_forgotten_first() -> None:
    node = with_channels("-dedup-keys", "4")
    for number in range(4):
        pub(node, f"k{number}")
    post(node, "/channel/messages/finish", topic="t", channel="c", offset="0,2")
    for number in (4, 5):
        pub(node, f"k{number}")
    assert [pub(node, f"k{number}")[0] for number in (1, 3, 4, 5)] == [True] * 4
    pub(node, "k6")
    dedup = node.broker.topics["t"].intake.dedup
    assert len(dedup.pending) == dedup._total.keys == 4
    post(node, "/topic/delete", topic="t")
    assert dedup._total.keys == 0


@each(
    "path, error",
    [
        ("/pub?topic=t&unique=pending", "MISSING_ARG_KEY"),
        ("/pub?topic=t&unique=pending&producer=p&sequence=1", "MISSING_ARG_KEY"),
        ("/pub?topic=t&unique=1&key=k", "INVALID_ARG_UNIQUE"),
        ("/mpub?topic=t&unique=pending&key=k", "INVALID_ARG_UNIQUE"),
    ],
)
def test_bad_requests(path: str, error: str) -> None:
    answer = LocalNode().client.post(path, content=b"x")
    assert (answer.status_code, answer.json()) == (400, {"message": error})
