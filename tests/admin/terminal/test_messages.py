"""`penstock messages`, `show`, `peek` and what acts on messages and jobs, over two nodes in the test's process."""

import json

import pytest

from admin.terminal import messages
from tests.admin.terminal.program import Terminal, post
from tests.cases import each
from tests.disque_client import Client as Disque
from tests.local_node import LocalNode

FIRST, SECOND = "127.0.0.1:4151", "127.0.0.1:4251"
MOMENT = 10_000_000  # ns, in which all bytes arrive


@pytest.fixture
def channel(nodes: list[LocalNode]) -> list[LocalNode]:
    """t/c with a, b, c on the first node and d on the second."""
    for node, bodies in zip(nodes, ((b"a", b"b", b"c"), (b"d",)), strict=True):
        post(node, "/topic/create", topic="t", retention="1h")
        post(node, "/channel/create", topic="t", channel="c")
        for body in bodies:
            post(node, "/pub", body, topic="t")
    return nodes


def test_peek_prints_the_bodies_of_all_nodes(channel: list[LocalNode], terminal: Terminal) -> None:
    code, out, error = terminal("peek", "t", "c")
    assert (code, sorted(out.split()), error) == (0, ["a", "b", "c", "d"], "")
    assert len(terminal("peek", "t", "c", "-n", "2")[1].split()) == 2
    assert terminal("peek", "t", "c", "--node", SECOND)[1] == "d\n"
    assert terminal("peek", "t", "c", "--grep", "b")[1] == "b\n"
    assert {row["node"] for row in terminal.rows("peek", "t", "c")} == {FIRST, SECOND}


def test_messages_are_a_table_and_one_is_shown(channel: list[LocalNode], terminal: Terminal) -> None:
    code, out, _ = terminal("messages", "t", "c", "--grep", "c")
    head, row = out.splitlines()
    assert (code, head.split()) == (0, ["OFFSET", "ID", "AGE", "ATTEMPTS", "SIZE", "NODE", "BODY", "REASON"])
    offset, message_id, *_ = row.split()
    assert (offset, FIRST in row, " c " in row) == ("2", True, True)
    for name in (message_id, "2"):
        code, out, error = terminal("show", "t", "c", name)
        assert (code, error) == (0, "")
    assert out.startswith("ID:         ")
    assert out.endswith("Body:       1 B\n\nc\n")
    assert [one["body"] for one in terminal.rows("show", "t", "c", message_id)] == ["c"]
    assert terminal("show", "t", "c", "00000000000000ff")[0] == 1
    assert terminal("show", "t", "c", "x")[0] == 2


def test_an_action_on_a_state_takes_the_first_of_all_nodes(channel: list[LocalNode], terminal: Terminal) -> None:
    assert terminal("bury", "t", "c", "--state", "ready")[:2] == (0, "1 buried\n")
    code, out, error = terminal("bury", "t", "c", "--state", "ready", "--all", "--dry-run")
    assert (code, out, error) == (0, "", "would bury 3 of 3 ready in t/c on 2 nodes\n")
    code, out, error = terminal("bury", "t", "c", "--state", "ready", "--all")
    assert (code, out, "would bury 3 of 3 ready in t/c on 2 nodes: give --yes" in error) == (2, "", True)
    assert terminal("bury", "t", "c", "--state", "ready", "--all", "--yes", "--reason", "odd")[:2] == (0, "3 buried\n")
    code, _, error = terminal("finish", "t", "c", "--state", "buried", "--count", "2")
    assert (code, "would finish 2 of 4 buried in t/c on 2 nodes: give --yes" in error) == (2, True)
    code, _, error = terminal("finish", "t", "c", "--offset", "0", "--node", FIRST, "--dry-run")
    assert (code, error) == (0, f"would finish 1 of t/c on {FIRST}\n")
    assert terminal("kick", "t", "c", "--state", "buried", "--count", "2", "--json")[1] == '{"kicked": 2}\n'
    assert terminal("move", "t", "c", "--state", "buried", "--all", "--yes", "--to", "u")[:2] == (0, "2 moved\n")
    assert [row["messages"] for row in terminal.rows("topics", "u")] == [2]
    assert terminal("finish", "t", "c", "--state", "ready", "--all", "--yes")[1] == "2 finished\n"
    assert terminal("peek", "t", "c") == (0, "", "")


def test_dead_letters_are_redriven_by_filters_at_a_rate(
    channel: list[LocalNode], terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node, bodies in zip(channel, (("x1", "x2", "y1"), ("x3",)), strict=True):
        for body in bodies:
            sent = {"X-Nsq-Header-dead-letter-topic": "t", "X-Nsq-Header-why": body[0]}
            node.client.post("/pub?topic=dead", content=body, headers=sent).raise_for_status()
        post(node, "/pub", "no dead letter", topic="dead")
        post(node, "/channel/create", topic="dead", channel="c")
    redrive = ("redrive", "dead", "c", "--state", "ready", "--all")
    would = "would redrive all that match, of 6 ready in dead/c on 2 nodes"
    for filters, count in (((), 4), (("--grep", "x"), 3), (("--header", "why=y"), 1), (("--older", "1h"), 0)):
        assert terminal(*redrive, *filters, "--dry-run")[2] == f"{would}: {count} match\n"
    for name, count in (("MOST_EXAMINED", 2), ("EXAMINED_AT_ONCE", 1)):
        monkeypatch.setattr(messages, name, count)
    assert terminal(*redrive, "--header", "why=x", "--dry-run")[2] == f"{would}: 2 of the first 2 match\n"
    code, _, error = terminal(*redrive[:-1], "--count", "3")
    assert (code, "would redrive up to 3 that match, of 6" in error) == (2, True)
    assert terminal(*redrive, "--header", "why=x", "--rate", "100", "--yes")[:2] == (0, "3 moved\n")
    assert sorted(terminal("peek", "t", "c", "-n", "20")[1].split()) == ["a", "b", "c", "d", "x1", "x2", "x3"]
    assert sorted(terminal("peek", "dead", "c")[1].split("\n")) == ["", "no dead letter", "no dead letter", "y1"]
    assert terminal(*redrive, "--yes")[:2] == (0, "1 moved\n")


def test_ctrl_c_says_how_many_messages_were_acted_on(channel: list[LocalNode], terminal: Terminal) -> None:
    terminal.network.requests_left = 4  # nsqlookupd, the counts of two nodes, one step
    assert terminal("finish", "t", "c", "--state", "ready", "--all", "--yes", "--rate", "1") == (
        130,
        "1 finished\n",
        "",
    )


def test_an_offset_belongs_to_a_node(channel: list[LocalNode], terminal: Terminal) -> None:
    code, out, error = terminal("finish", "t", "c", "--offset", "0")
    assert (code, out, f"give --node, one of {FIRST}, {SECOND}" in error) == (2, "", True)
    assert terminal("finish", "t", "c", "--offset", "0,2", "--node", "host-4151")[:2] == (0, "2 finished\n")
    assert terminal("requeue", "t", "c", "--offset", "1", "--node", FIRST, "--delay", "90s")[1] == "1 requeued\n"
    assert terminal("peek", "t", "c", "--state", "deferred")[1] == "b\n"
    code, out, error = terminal("finish", "t", "c", "--offset", "0,1", "--node", FIRST)
    assert (code, out) == (1, "1 finished\n")
    assert f"1 of 2 are not in t/c on {FIRST}" in error
    code, _, error = terminal("peek", "t", "c", "--node", "nowhere")
    assert (code, "no nodes are named nowhere" in error) == (1, True)


def test_jobs_of_a_queue(nodes: list[LocalNode], terminal: Terminal) -> None:
    disque = Disque(nodes[0].connect("DISQUE"))
    ids = [
        disque.do("ADDJOB", "mail", body, 0, *more)
        for body, more in ((b"a", ()), (b"\xff", ()), (b"c", ("DELAY", 900)))
    ]
    nodes[0].advance(MOMENT)
    queue = ("--queue", "mail", "--node", FIRST)
    assert (
        terminal("peek", "--state", "delayed", *queue)[1] == terminal("peek", "--state", "deferred", *queue)[1] == "c\n"
    )
    listed = [json.loads(line) for line in terminal("peek", "--json", *queue)[1].splitlines()]
    assert [job["disque_id"] for job in listed] == ids[:2]
    assert terminal("bury", "--id", f"{ids[0]},{listed[1]['id']}", *queue)[:2] == (0, "2 buried\n")
    assert terminal("kick", "--state", "buried", "--count", "9", *queue)[:2] == (0, "2 kicked\n")
    assert disque.get("mail", 1) == [b"a"]
    assert terminal("peek", "--state", "active", *queue)[1] == "a\n"
    assert terminal("requeue", "--id", ids[0], *queue)[:2] == (0, "1 released\n")
    assert terminal("finish", "--id", ids[0], *queue)[:2] == (0, "1 deleted\n")
    assert terminal("kick", "--id", ids[2], "--json", *queue)[1] == '{"kicked": 1}\n'


@each("words, code, why", [
    (("peek",), 2, "name TOPIC and CHANNEL, or --queue"), (("peek", "t"), 2, "name TOPIC and CHANNEL, or --queue"),
    (("peek", "t", "c", "--queue", "q"), 2, "name either TOPIC and CHANNEL, or --queue"),
    (("peek", "t", "c", "--state", "gone"), 2, "expected ready, in_flight, deferred or buried"),
    (("move", "--queue", "q", "--to", "t", "--state", "ready"), 2, "only messages of a channel"),
    (("redrive", "--queue", "q", "--state", "ready"), 2, "penstock redrive: only messages of a channel"),
    (("kick", "--queue", "q", "--state", "buried", "--grep", "x"), 2, "filters are for messages of a channel"),
    (("kick", "t", "c", "--offset", "1", "--grep", "x"), 2, "filters are for messages of a channel"),
    (("kick", "t", "c", "--state", "buried", "--older", "soon"), 2, "Invalid time 'soon'"),
    (("finish", "--queue", "q", "--offset", "1"), 2, "--offset names messages of a channel, and --id jobs"),
    (("finish", "t", "c", "--id", "1"), 2, "--offset names messages of a channel, and --id jobs"),
    (("finish", "--queue", "q"), 2, "give either --id or --state"),
    (("finish", "t", "c"), 2, "give either --offset or --state"),
    (("requeue", "--queue", "q", "--id", "1", "--delay", "5s"), 2, "--delay is for messages of a channel"),
    (("kick", "t", "none", "--state", "buried"), 1, "t/none was not found"),
    (("messages", "t", "none"), 1, "channel t/none was not found: see penstock channels"),
    (("peek", "--queue", "none"), 1, "queue none was not found: see penstock queues"),
    (("kick", "nowhere", "c", "--state", "buried"), 1, "topic nowhere was not found"),
])  # fmt: skip
def test_what_a_command_cannot_act_on(
    channel: list[LocalNode], terminal: Terminal, words: tuple[str, ...], code: int, why: str
) -> None:
    found = terminal(*words)
    assert found[:2] == (code, "")
    assert why in " ".join(found[2].split())
    assert found[2].count(f"{words[0]}: ") == 1
