"""/channel/messages/finish, requeue, kick, bury and move: in every state, by offset and by state, and what is refused."""

from typing import Any, cast

from nsqd.core.channel.actions import ChosenMessage
from nsqd.http.inspection import FrameLookup
from nsqd.http.message_actions import _in_turns
from tests.cases import each
from tests.local_node import LocalNode
from tests.nsqd.http.asking import drained, get, post
from tests.nsqd.http.test_messages import STATES, act, in_every_state, look, publish


def counts(node: LocalNode, topic: str) -> tuple[int, ...]:
    """Return the numbers of messages that are ready, in flight, deferred and buried."""
    return tuple(look(node, topic, "ready")["counts"][state] for state in STATES)


@each("state", STATES)
@each(
    "what, done, after",
    [("finish", "finished", -1), ("requeue", "requeued", 0), ("kick", "kicked", 0), ("bury", "buried", 3)],
)
def test_every_action_in_every_state(node: LocalNode, state: str, what: str, done: str, after: int) -> None:
    topic = f"{what}-{state}"
    client, offsets = in_every_state(node, topic)
    with client:
        assert act(node, what, topic, offset=offsets[state]) == {done: 1}
        wanted = [1, 1, 1, 1]
        wanted[STATES.index(state)] -= 1
        if after >= 0:
            wanted[after] += 1
        assert counts(node, topic) == tuple(wanted)
        if what == "finish":
            assert act(node, what, topic, offset=offsets[state]) == {done: 0}
        if after == 0:
            attempts = {one["body"]: one["attempts"] for one in look(node, topic, "ready")["messages"]}
            assert attempts[state] == (0 if what == "kick" or state == "ready" else 1)
        (stats,) = get(node, "/stats", format="json", topic=topic)["topics"]
        assert stats["channels"][0]["in_flight_count"] == wanted[1]


def test_they_are_moved_and_survive_a_kill() -> None:
    node = LocalNode()
    client, offsets = in_every_state(node, "from")
    with client:
        assert act(node, "move", "from", offset=",".join(map(str, offsets.values())), to="to") == {"moved": 4}
        assert counts(node, "from") == (0, 0, 0, 0)
    publish(node, "from", b"late", b"held", b"gone")
    listed = {one["body"]: one["offset"] for one in look(node, "from", "ready")["messages"]}
    assert act(node, "requeue", "from", offset=listed["late"], delay=3_000_000) == {"requeued": 1}
    assert act(node, "bury", "from", offset=listed["held"], reason="poison") == {"buried": 1}
    assert act(node, "finish", "from", state="ready", count=10) == {"finished": 1}
    node = node.killed()
    assert counts(node, "from") == (0, 0, 1, 1)
    (held,) = look(node, "from", "buried")["messages"]
    assert (held["body"], held["reason"], held["attempts"]) == ("held", "poison", 0)
    publish(node, "to")
    assert sorted(drained(node, "to", "c", 4)) == [b"buried", b"deferred", b"in_flight", b"ready"]


def test_dead_letters_go_back_to_where_they_come_from_and_begin_afresh(node: LocalNode) -> None:
    publish(node, "origin")
    headers = {"dead-letter-topic": "before,origin", "dead-letter-reason": "timed out", "own": "x"}
    for changed in ({}, {"dead-letter-topic": "gone"}, {"dead-letter-topic": "before"}, {"dead-letter-topic": ""}, {}):
        sent = {f"X-Nsq-Header-{name}": value for name, value in (headers | changed).items()}
        node.client.post("/pub?topic=failed", content=b"m", headers=sent).raise_for_status()
    publish(node, "failed", b"no headers")
    assert act(node, "move", "failed", state="ready", count=1000) == {"moved": 2}
    assert [one["headers"] for one in look(node, "origin", "ready")["messages"]] == [{"own": "x"}] * 2
    assert act(node, "move", "failed", state="ready", count=1, to="elsewhere") == {"moved": 1}
    publish(node, "elsewhere")
    (found,) = look(node, "elsewhere", "ready")["messages"]
    assert found["headers"] == headers | {"dead-letter-topic": "gone"}
    assert counts(node, "failed") == (3, 0, 0, 0)


def test_messages_are_moved_some_in_each_turn_and_as_many_as_the_target_takes(node: LocalNode) -> None:
    publish(node, "many", *[b"x"] * 250)
    publish(node, "small")
    post(node, "/topic/config", topic="small", max_length=150)
    assert act(node, "move", "many", state="ready", count=1000, to="small") == {"moved": 200}
    assert act(node, "move", "many", state="ready", count=1000, to="small") == (429, "TOPIC_FULL")
    assert act(node, "move", "many", state="ready", count=1000, to="other") == {"moved": 50}
    assert counts(node, "many") == (0, 0, 0, 0)


@each("sizes, parts", [([1] * 250, [100, 100, 50]), ([400_000] * 4, [3, 1]), ([3_000_000, 1, 1], [1, 2]), ([], [])])
def test_a_turn_acts_on_a_bounded_number_of_messages_and_bytes(sizes: list[int], parts: list[int]) -> None:
    look = FrameLookup(cast(Any, None))
    look.frames = dict(enumerate(map(bytes, sizes)))
    chosen = [ChosenMessage(ordinal, b"") for ordinal in look.frames]
    assert list(map(len, _in_turns(chosen, look))) == parts


@each("what, arguments, error", [
    ("finish", {}, (400, "MISSING_ARG_OFFSET")),
    ("finish", {"state": "ready"}, (400, "MISSING_ARG_COUNT")),
    ("finish", {"state": "ready", "count": 0}, (400, "MISSING_ARG_COUNT")),
    ("finish", {"offset": "77", "topic": "nowhere"}, (404, "TOPIC_NOT_FOUND")),
    ("bury", {"offset": "77,10000000000"}, {"buried": 0}),
])  # fmt: skip
def test_what_cannot_be_done(node: LocalNode, what: str, arguments: dict[str, Any], error: Any) -> None:
    publish(node, "bad")
    assert act(node, what, **({"topic": "bad"} | arguments)) == error
