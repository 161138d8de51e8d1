"""Unknown names, lists in place of numbers, dozens of streams: each is refused cheaply, with a page."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from admin.nodes.history import FAILED, KEPT, MOST_WAITING, History
from admin.output.layout import MOST_STREAMS_OF_ONE
from shared.http.errors import HttpError
from tests.admin.asking import NOWHERE, make, visiting
from tests.admin.conftest import a_node, json_answer
from tests.admin.near_nodes import near
from tests.async_tests import on_asyncio

ODD = ("x", "%00", "%ff", "a" * 3000, "..%2f..", "%0d%0aX: y", "-x", "%E4%B8%AD", "a%20b", "%3Cscript%3E")
ROUTES = (
    "/series/{}", "/body/{}/c", "/body/t/{}", "/body/{}/{}?node=n:1&offset=1", "/history/{}", "/topics/{}", "/topics/{}/c",
    "/topics/t/{}", "/nodes/{}", "/tasks/{}", "/messages/{}/c", "/messages/t/{}", "/messages/t/c?node={}", "/tube?name={}",
    "/tube?name=t&node={}", "/storage?node={}", "/tubes?after={}", "/readers?after={}", "/audit?before={}", "/static/{}",
    "/?q={}&sort={}&page={}", "/messages/t/c?state={}", "/body/t/c?node=n:1&offset={}", "/api/topics/{}", "/api/topics/t/{}",
    "/api/nodes/{}", "/config/{}",
)  # fmt: skip


@pytest.fixture(params=["lookupd", "nsqd", "down"])
def options(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A cluster that has nothing, and one that does not answer."""

    def answer(path: str) -> tuple[int, bytes]:
        name = path.partition("?")[0]
        if name == "/lookup":
            return 404, b'{"message":"TOPIC_NOT_FOUND"}'
        if name == "/info":
            return json_answer({"broadcast_address": "127.0.0.1", "http_port": 1, "hostname": "n"})
        return json_answer({"topics": [], "producers": [], "channels": []})

    if request.param == "down":
        yield {"nsqd_http_address": (), "lookupd_http_address": (NOWHERE,)}
        return
    with near(answer) as address:
        addresses: dict[str, Any] = {"nsqd_http_address": (), "lookupd_http_address": ()}
        yield addresses | {f"{request.param}_http_address": (address,)}


@on_asyncio
async def test_an_unknown_name_is_no_fault(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[str] = []
    for module in ("admin.output.error_pages", "shared.http.api"):
        monkeypatch.setattr(f"{module}.log.critical", lambda words, *rest, **more: faults.append(str(rest)))

    async def reads_nothing(self: History, topic: str, grain: str) -> dict[str, Any]:
        assert topic.isprintable()  # as an argument of a process it must be
        return {}

    monkeypatch.setattr(History, "_read", reads_nothing)
    client = visiting(**options, lake="/nowhere")
    for path in (route.replace("{}", name) for route in ROUTES for name in ODD):
        found = await client.get(path)
        assert found.status_code in (200, 301, 400, 403, 404, 502), (path, found.status_code)
        assert "<script>" not in found.text.replace('<script src="', "")
    assert faults == []


@on_asyncio
async def test_a_series_or_body_of_nothing_is_not_found(options: dict[str, Any]) -> None:
    client = visiting(**options)
    paths = ("/series/x", "/body/x/y?node=n:1&offset=1", "/body/x/y?node=n:1&offset=1,2")
    series, body, wrong = [(await client.get(path)).status_code for path in paths]
    is_down = options["lookupd_http_address"] == (NOWHERE,)
    assert (body, wrong) == (502 if is_down else 404, 400)
    assert series == (502 if is_down else 404 if options["lookupd_http_address"] else 200)


@on_asyncio
async def test_an_operator_acts_on_one_message_or_job_at_a_time() -> None:
    """nsqd takes 1,000 offsets with commas between, and finishing many is an admin's."""
    asked: list[str] = []
    done = {"topics": [{"topic_name": "t", "channels": []}], "finished": 1, "released": 1}

    def answer(path: str) -> object:
        asked.append(path)
        return None if path.startswith("/info") else done

    with a_node(answer) as node:
        client = visiting(node, anonymous_role="operator")
        wrong = ("1,2", "1,2,3,4", "", "-1", " 1", "1 ", "+1", "0x1", "\u0661", "9" * 21, "1e3", "1\n2")
        for number in (*wrong, "7"):
            message = {"action": "finish", "node": node, "state": "ready", "offset": number}
            job = {"action": "release", "node": node, "state": "reserved", "name": "t", "id": number}
            found = [await client.post("/messages/t/c", data=message), await client.post("/tube", data=job)]
            assert [one.status_code for one in found] == [303 if number == "7" else 400] * 2, number
    sent = [path for path in asked if "finish" in path or "release" in path]
    assert len(sent) == 2
    assert all("offset=7" in path or "id=7" in path for path in sent)


async def live(app: Any, statuses: list[int], ends: asyncio.Event) -> None:
    """A browser that shows a live page until `ends`."""

    async def receive() -> dict[str, Any]:
        await ends.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http", "method": "GET", "path": "/tasks", "raw_path": b"/tasks", "query_string": b"live=1",
        "http_version": "1.1", "headers": [(b"host", b"admin")], "client": ("127.0.0.1", 5), "scheme": "http",
        "server": ("admin", 80), "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)


@on_asyncio
async def test_streams_are_counted_before_they_begin() -> None:
    """Of 60 at once 59 were let in, because none of them had begun when the others were counted."""
    app = make()
    for _ in range(2):  # the second time all of the first ones are gone
        statuses: list[int] = []
        ends = asyncio.Event()
        streams = [asyncio.create_task(live(app, statuses, ends)) for _ in range(MOST_STREAMS_OF_ONE + 10)]
        while len(statuses) < len(streams):
            await asyncio.sleep(0.01)
        ends.set()
        await asyncio.gather(*streams)
        assert statuses.count(200) == MOST_STREAMS_OF_ONE


class Lake(History):
    """A lake that answers when `goes` is set."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__("lake", lambda: self.now)
        self.commands: list[list[str]] = []
        self.goes = asyncio.Event()
        self.output = b'{"messages":[1]}'

    async def _run(self, command: list[str]) -> tuple[bytes, str]:  # type: ignore[override]
        self.commands.append(command)
        await self.goes.wait()
        return self.output, "it is none"


@on_asyncio
async def test_few_wait_for_a_lake_and_one_process_reads_it() -> None:
    lake = Lake()
    asked = [asyncio.create_task(lake.rollups(f"t{number}", "hour")) for number in range(MOST_WAITING + 5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(lake.commands) == 1
    assert [task.exception().status for task in asked if task.done()] == [503] * 5  # type: ignore[union-attr]
    lake.goes.set()
    await asyncio.gather(*asked[:MOST_WAITING])
    assert len(lake.commands) == MOST_WAITING


@on_asyncio
async def test_answers_and_failures_of_a_lake_stand_for_a_while(tmp_path: Path) -> None:
    lake = Lake()
    lake.goes.set()
    lake.output = b'{"messages":[]}'
    for _ in range(3):
        assert await lake.rollups("-x", "hour") == {"messages": []}  # also of a topic that it does not know
    assert len(lake.commands) == 1
    assert "--topic=-x" in lake.commands[0]
    lake.now = KEPT
    await lake.rollups("-x", "hour")
    assert len(lake.commands) == 2
    lake = Lake()
    lake.goes.set()
    lake.output = b""
    for topic in ("a", "b", "c"):
        with pytest.raises(HttpError, match="it is none") as failure:
            await lake.rollups(topic, "hour")
        assert failure.value.status == 502
    assert len(lake.commands) == 1
    lake.now, lake.output = FAILED, b"{}"
    assert await lake.rollups("a", "hour") == {}
    for topic in ("\0", "a\nb", "x" * 201):  # no topic has such a name: no process is started
        with pytest.raises(HttpError) as failure:
            await History(str(tmp_path)).rollups(topic, "hour")
        assert failure.value.status == 404
