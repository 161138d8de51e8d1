"""Names that mean something elsewhere, in paths, markup, labels or terminals, at the doors of nsqd.

An illegal name is refused at every door and leaves no trace; a legal one is itself everywhere.
"""

import re
from urllib.parse import quote_from_bytes

import httpx

from tests.cases import each
from tests.daemons import OK, Conversation, sized
from tests.local_node import LocalNode

LEGAL = [
    "...", "....", "-", "_", ".a", "a.", "-rf", "nsqd.dat", "con", "null", "0", "1e9", "x" * 64, "x" * 54 + "#ephemeral",
    "Case", "case", "CASE", "a#ephemeral",
]  # fmt: skip


def escaped(name: str) -> str:
    return quote_from_bytes(name.encode(), safe="")


# of each kind: which names are valid is tested in tests/penstock/protocol/test_names.py
illegal = each("name", [
    b"..", b"../../x", b"x" * 65, b"#ephemeral", b"%2e%2e", b"a%00", b"a\0b", b"a\rb", b"\x1b[2J", "\u202egpj".encode(),
    b"\xff\xfe", b"<script>alert(1)</script>", b'"><img>', b"{{7*7}}",
])  # fmt: skip


def topics(node: LocalNode) -> dict[str, list[str]]:
    found = node.client.get("/stats?format=json").json()["topics"]
    return {topic["topic_name"]: [one["channel_name"] for one in topic["channels"]] for topic in found}


@illegal
def test_illegal_over_http(node: LocalNode, name: bytes) -> None:
    word = quote_from_bytes(name, safe="")
    for path, status in {
        f"/pub?topic={word}": 400,
        f"/mpub?topic={word}": 400,
        f"/topic/create?topic={word}": 400,
        f"/topic/empty?topic={word}": 400,
        f"/topic/delete?topic={word}": 404,
        f"/topic/pause?topic={word}": 404,
        f"/channel/create?topic={word}&channel=c": 400,
        f"/channel/create?topic=t&channel={word}": 400,
        f"/channel/delete?topic=t&channel={word}": 400,
    }.items():
        shows_nothing(node.client.post(path, content=b"x"), status, name)
    for path in (f"/stats?topic={word}", f"/stats?topic={word}&format=json", f"/stats?topic=t&channel={word}"):
        shows_nothing(node.client.get(path), 200, name)
    for path in (f"/{word}", f"/config/{word}", f"/topic/{word}"):
        answer = node.client.get(path, follow_redirects=False)
        assert answer.status_code in (301, 400, 404)
        assert answer.headers.get("location", "/").startswith("/")
        assert not answer.headers.get("location", "/").startswith("//")
    assert topics(node) == {}


def shows_nothing(answer: httpx.Response, status: int, name: bytes) -> None:
    """The answer has this status, and nothing of the name in it that markup or terminals would understand."""
    assert answer.status_code == status, answer.text
    if len(name) > 3:
        assert name not in answer.content
    assert b"<" not in answer.content


def test_legal_names_are_themselves_everywhere() -> None:
    node, consumers = LocalNode(), []
    for count, name in enumerate(LEGAL, 1):
        word = name.encode()
        consumers.append(Conversation(node, b"  V2SUB %s %s\n" % (word, word)))
        assert consumers[-1].frame() == OK
        with Conversation(node, b"  V2" + (b"PUB %s\n" % word + sized(b"x")) * count) as producer:
            assert [producer.frame() for _ in range(count)] == [OK] * count
    assert topics(node) == {name: [name] for name in LEGAL}
    for count, name in enumerate(LEGAL, 1):  # twins that differ in case only are three topics
        found = node.client.get(f"/stats?format=json&topic={escaped(name)}").json()["topics"]
        assert [(topic["topic_name"], topic["message_count"]) for topic in found] == [(name, count)]
    answer = node.client.get("/stats")
    assert answer.headers["content-type"].startswith("text/plain")
    assert set(re.findall(r"^ +\[(\S+) *\]", answer.text, re.MULTILINE)) >= set(LEGAL)
    text = node.client.get("/metrics").text
    assert set(re.findall(r'^nsqd_topic_depth\{topic="([^"]*)"\}', text, re.MULTILINE)) == set(LEGAL)
    assert set(re.findall(r'^nsqd_channel_depth\{channel="([^"]*)",topic="\1"\}', text, re.MULTILINE)) == set(LEGAL)
