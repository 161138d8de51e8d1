"""The async reader: a topic read back, once, with a cursor, and while it grows."""

import socket
from pathlib import Path

import anyio
import pytest

from penstock.aio import Producer, Reader, ReadError
from tests.async_tests import on_asyncio, on_both
from tests.daemons import Daemon, nsqd, post, publish
from tests.daemons import run as run_program
from tests.penstock.aio.running import until

pytestmark = pytest.mark.process


async def read(node: Daemon, topic: str, *arguments: int | str, **options: str) -> list[bytes]:
    async with Reader(node.http, topic, *arguments, **options) as reader:
        return [record.body async for record in reader]


@on_both
async def test_ranges(node: Daemon, topic: str) -> None:
    publish(node, topic, *[b"%d" % number for number in range(10)])
    every = [b"%d" % number for number in range(10)]
    assert await read(node, topic) == every
    assert await read(node, topic, 3) == every[3:]
    assert await read(node, topic, "3", 5) == every[3:5]
    assert await read(node, topic, "latest") == []
    assert await read(node, topic, "-1h", "latest") == every


@on_asyncio
async def test_what_a_record_holds(node: Daemon, topic: str) -> None:
    post(node, "/topic/create", topic=topic)
    post(node, "/pub", b"keyed", topic=topic, key="k")
    async with Producer(node.tcp) as producer:
        await producer.publish_many(topic, [b"one", b"two"])
    async with Reader(node.http, topic) as reader:
        keyed, one, two = [record async for record in reader]
    assert (keyed.key, keyed.producer, keyed.offset, len(keyed.id)) == ("k", "", 0, 16)
    assert one.producer == two.producer != ""
    assert two.sequence == one.sequence + 1
    assert two.timestamp >= keyed.timestamp > 1_700_000_000 * 10**9


@on_both
async def test_a_cursor_is_where_the_last_reader_left_it(node: Daemon, topic: str) -> None:
    publish(node, topic, *[b"%d" % number for number in range(6)])
    async with Reader(node.http, topic, 2, cursor="archive", owner="me", hold="1h") as reader:
        async for record in reader:
            if record.body == b"3":
                break
        await reader.commit()
    assert await read(node, topic, cursor="archive", owner="me") == [b"4", b"5"]
    async with Reader(node.http, topic, cursor="archive", owner="you") as reader:
        assert [record.body async for record in reader] == [b"4", b"5"]
        with pytest.raises(ReadError, match="403"):
            await reader.commit()


@on_both
async def test_a_follower_gets_what_comes(node: Daemon, topic: str) -> None:
    publish(node, topic, b"0")
    seen: list[bytes] = []

    async def follow() -> None:
        async with Reader(node.http, topic, follow=True) as reader:
            async for record in reader:
                seen.append(record.body)

    async with anyio.create_task_group() as tasks, Producer(node.tcp) as producer:
        tasks.start_soon(follow)
        for number in (1, 2, 3):
            await until(lambda number=number: len(seen) == number)
            await producer.publish(topic, b"%d" % number)
        await until(lambda: len(seen) == 4)
        tasks.cancel_scope.cancel()
    assert seen == [b"0", b"1", b"2", b"3"]


@on_asyncio
async def test_a_reader_goes_on_with_a_node_that_was_restored(tmp_path: Path) -> None:
    with nsqd(tmp_path / "first", "-retention=24h") as first:
        publish(first, "t", b"0", b"1")
        port = first.http.rpartition(":")[2]
        async with Reader(first.http, "t", follow=True) as reader:
            records = aiter(reader)
            assert [(await anext(records)).body for _ in range(2)] == [b"0", b"1"]
            first.stop()
            restored = run_program("penstock", "restore", str(tmp_path / "first"), str(tmp_path / "again"))
            assert restored.returncode == 0
            with nsqd(tmp_path / "again", "-retention=24h", f"-http-address=127.0.0.1:{port}") as again:
                for body in (b"2", b"3"):  # the second one is behind what the parent had
                    publish(again, "t", body)
                    assert (await anext(records)).body == body


@on_asyncio
async def test_refusals(node: Daemon) -> None:
    publish(node, "refusals", b"x")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ReadError, match="404 TOPIC_NOT_FOUND"):
        await read(node, "unknown")
    with pytest.raises(ReadError, match="416") as caught:
        await read(node, "refusals", 7, 9)
    assert caught.value.code == "OFFSET_IN_FUTURE"
    async with Reader(dead, "t", retry_s=0.2) as reader:
        with pytest.raises(ReadError, match="/topic/offsets"):
            await anext(aiter(reader))
    async with Reader(node.http, "refusals") as reader:
        with pytest.raises(ValueError, match="without a cursor"):
            await reader.commit()
    with pytest.raises(ValueError, match="not a legal name"):
        Reader(node.http, "a b")
