"""A refused form is shown on its own page with the typed values; a result is shown once and only there."""

import json
import time
from pathlib import Path
from urllib.parse import parse_qs

from tests.admin.asking import visiting
from tests.admin.conftest import a_node
from tests.async_tests import on_asyncio
from tests.cases import each

FINISH = {"action": "finish", "node": "NODE", "state": "ready", "count": "3", "per_second": "5", "confirm": "4"}
REFUSED = [
    ("/topics/t", {"action": "publish", "body": "b", "delay": "soon", "node": "NODE"}, "delay", "Delay must be"),
    ("/topics/t", {"action": "publish", "body": "", "key": "k", "node": "NODE"}, "body", "Body must not be empty"),
    ("/topics/t", {"action": "publish", "body": "b", "headers": "x", "node": "NODE"}, "headers", "Invalid header"),
    ("/topics/t", {"action": "pause", "minutes": "99999"}, "minutes", "30 days"),
    ("/topics/t", {"action": "empty", "confirm": "T"}, "confirm", "Type t to confirm"),
    ("/topics/t/c", {"action": "delete", "confirm": "x"}, "confirm", "Type c to confirm"),
    ("/topics/t/c", {"action": "pause", "minutes": "0"}, "minutes", "30 days"),
    ("/nodes/NODE", {"action": "drain", "confirm": "x"}, "confirm", "The name does not match"),
    ("/messages/t/c", FINISH, "confirm", "Type 3 to confirm"),
    ("/tube", {"action": "pause", "name": "t", "node": "NODE", "state": "ready", "seconds": "-1"}, "seconds", "whole"),
    ("/lookup", {"action": "create", "topic": "a b", "channel": "c"}, "topic", "Invalid name"),
    ("/lookup", {"action": "create", "topic": "t", "channel": "a b"}, "channel", "Invalid name"),
    ("/topics/t", {"action": "create", "channel": "a b"}, "channel", "Invalid name"),
    ("/nodes/NODE", {"action": "tombstone", "topic": "t", "confirm": "T"}, "confirm", "Type t to confirm"),
]
COMMANDS = (
    "/pub", "/topic/pause", "/topic/empty", "/topic/create", "/topic/tombstone", "/channel/create", "/channel/pause",
    "/channel/delete", "/channel/messages/", "/tube/pause",
)  # fmt: skip


@each("path, form, field, words", REFUSED)
@on_asyncio
async def test_a_refused_form_comes_back_filled_in(path: str, form: dict[str, str], field: str, words: str) -> None:
    requests: list[str] = []
    with a_node(requests.append) as node:
        typed = {name: value.replace("NODE", node) for name, value in form.items()}
        by_lookupd = {"nsqd_http_address": (), "lookupd_http_address": (node,)}
        client = visiting(node, **(by_lookupd if form["action"] in ("create", "tombstone") else {}))
        found = await client.post(path.replace("NODE", node.replace(":", "%3A")), data=typed)
    assert (found.status_code, "<h1>Request failed" in found.text) == (400, False), found.text
    begin = found.text.index(f'name="{field}" aria-describedby="problem')
    element = found.text[begin : found.text.index(">", begin)]
    assert 'aria-invalid="true" autofocus' in element
    value = typed[field]
    assert f'value="{value}"' in element or found.text[begin + len(element) :].startswith((f">\n{value}</", "></"))
    assert words in found.text[found.text.index('id="problem">') :]
    assert found.text.count('id="problem"') == 1
    others = typed.keys() & {"body", "key", "minutes", "channel"} - {field}
    assert all(typed[name] in found.text for name in others)
    assert [one for one in requests if one.startswith(COMMANDS)] == []


@on_asyncio
async def test_a_refusal_by_a_node_is_a_sentence_at_the_field() -> None:
    refusal = 400, b'{"message":"INVALID_ARG_UNTIL"}'
    with a_node(lambda path: refusal if path.startswith("/topic/pause") else None) as node:
        found = await visiting(node).post("/topics/t", data={"action": "pause", "minutes": "7"})
    words = f"{node}: a pause must end within 30 days (INVALID_ARG_UNTIL)."
    assert found.status_code == 502
    assert f'<small class="bad" id="problem">{words}</small>' in found.text
    assert 'value="7"' in found.text
    assert f"http://{node}" not in found.text


@on_asyncio
async def test_a_form_whose_page_cannot_be_shown_gets_an_error_with_links() -> None:
    found = await visiting().post("/topics/t/c", data={"action": "empty", "confirm": "c"})
    assert found.status_code == 502
    assert "No nsqd answered. 127.0.0.1:1: " in found.text
    for path, words in (("/topics/t/c", "Back to the page"), ("/topics/t", "Topic t"), ("/", "Topics")):
        assert f'<li><a href="{path}">{words}</a></li>' in found.text


@on_asyncio
async def test_a_result_is_shown_once_and_no_link_can_forge_it() -> None:
    with a_node() as node:
        client = visiting(node)
        for link in ("/?did=delete", "/topics/t?published=free+money", "/topics/t?did=empty&n=5"):
            found = (await client.get(link)).text
            assert not [one for one in ("Deleted.", "free money", "Emptied", "Published <") if one in found], link
        done = await client.post("/topics/t", data={"action": "unpause"})
        assert (done.status_code, done.headers["location"]) == (303, "/topics/t")
        assert {"httponly", "samesite=strict"} <= set(done.headers["set-cookie"].lower().split("; "))
        stolen = client.cookies["nsqadmin_done"]
        assert "Unpaused." not in (await client.get("/nodes")).text
        assert "Unpaused." in (await client.get("/topics/t")).text
        assert "nsqadmin_done" not in client.cookies
        again = await client.get("/topics/t", headers={"Cookie": f"nsqadmin_done={stolen}"})
        assert "Unpaused." not in again.text


@on_asyncio
async def test_a_pause_ends_after_the_minutes_of_the_form() -> None:
    requests: list[str] = []
    with a_node(requests.append) as node:
        begun = int(time.time())
        for minutes in ("7", ""):
            done = await visiting(node).post("/topics/t", data={"action": "pause", "minutes": minutes})
            assert done.status_code == 303
    (until, forever) = (parse_qs(one.partition("?")[2]).get("until") for one in requests if "/topic/pause" in one)
    assert begun + 420 <= int((until or "0")[0]) <= int(time.time()) + 420
    assert forever is None


@on_asyncio
async def test_a_duplicate_links_to_the_first(tmp_path: Path) -> None:
    audit = tmp_path / "audit"

    async def published(headers: dict[str, str], form: dict[str, str]) -> str:
        with a_node(lambda path: (200, b"OK") if path.startswith("/pub") else None, headers=headers) as node:
            client = visiting(node, audit_file=str(audit))
            done = await client.post("/topics/t", data={"action": "publish", "body": "b", "node": node, **form})
            assert done.status_code == 303, done.text
            page = (await client.get(done.headers["location"])).text
            return page.replace(node, "NODE").replace(node.replace(":", "%3A"), "NODE")

    page = await published({"X-Nsq-Duplicates": "1"}, {"key": "once"})
    assert "Not published: NODE has already received a message with this deduplication key." in page
    assert '<a href="/messages/t/c?node=NODE&amp;search=once">Search for it in c</a>' in page
    page = await published({"X-Nsq-Message-Id": "0123456789abcdef"}, {})
    assert "Published <code>0123456789abcdef</code> at NODE." in page
    assert '<a href="/messages/t/c?node=NODE&amp;search=0123456789abcdef">Find it in c</a>' in page
    first, second = map(json.loads, audit.read_text().splitlines())
    assert (first["action"], first["outcome"], first["detail"]) == ("publish", "duplicate", {"key": "once"})
    assert (second["outcome"], second["detail"]) == ("done", {"message_id": "0123456789abcdef"})
