"""/stats as text, line for line as the original writes it."""

import re

from tests.daemons import OK, Conversation
from tests.local_node import SECOND, LocalNode
from tests.nsqd.http.raw import TEXT, ask, busy_node


def text_of(node: LocalNode, query: str = "") -> str:
    answer = ask(node, "GET", f"/stats?{query}")
    assert (answer.status, answer.headers["content-type"]) == (200, TEXT)
    return answer.body.decode()


def test_a_busy_node() -> None:
    head, _, rest = text_of(busy_node(), "format=text&include_mem=0").partition("\n\n")
    version, start_time, uptime = head.split("\n")
    assert re.fullmatch(r"nsqd v1\.3\.0 \(built w/python[0-9.]+\) penstock [0-9.]+", version)
    assert re.fullmatch(r"start_time \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", start_time)
    assert re.fullmatch(r"uptime [\d.]+ms", uptime)
    lines = rest.split("\n")
    assert lines[:6] == [
        "Health: OK", "", "Topics:", "*P [alpha          ] depth: 1     be-depth: 0     msgs: 1        e2e%: ", "",
        "   [beta           ] depth: 0     be-depth: 0     msgs: 2        e2e%: ",
    ]  # fmt: skip
    assert lines[6] == (
        "      [a                        ] depth: 0     be-depth: 0     inflt: 1    def: 1    re-q: 0     timeout: 0     "
        "msgs: 2        e2e%: "
    )
    assert re.match(r"        \[V2 h&1:\d+ ua/1 +\] ", lines[7])
    assert lines[8] == (
        "   *P [z                        ] depth: 1     be-depth: 0     inflt: 0    def: 1    re-q: 0     timeout: 0     "
        "msgs: 2        e2e%: "
    )
    assert lines[9:11] == ["", "Producers:"]
    assert re.fullmatch(r"   \[V2 h&1:\d+ ua/1 +\] msgs: 2        topics: beta=2 connected: 0s", lines[11])
    assert re.fullmatch(r"   \[V2 127\.0\.0\.1:\d+ +\] msgs: 1        topics: alpha=1 connected: 0s", lines[12])
    assert lines[13:] == [""]


def test_memory_and_a_consumer() -> None:
    node = LocalNode()
    with Conversation(node, b"  V2SUB t c\nRDY 7\n") as consumer:
        assert consumer.frame() == OK
        node.advance(5 * SECOND)
        text = text_of(node)
        assert re.search(
            r"\n\nMemory:\n   heap_objects             \t\d+\n(   \S+ +\t\d+\n){8}\nTopics:\n   \[t  ", text
        )
        numbers = "state: 3 inflt: 0    rdy: 7    fin: 0        re-q: 0        msgs: 0        "
        assert re.search(rf"\n        \[V2 127\.0\.0\.1:\d+ +\] {numbers}connected: 5s\n", text)
        assert re.search(r"^uptime 5\.\d+s$", text, re.MULTILINE)
