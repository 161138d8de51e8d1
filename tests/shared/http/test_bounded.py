"""What other daemons answer over HTTP: bounded in bytes, in memory and in depth, and never unpacked."""

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio

from penstock.protocol.names import is_valid_name
from shared.http.bounded import (
    DEEPEST,
    SMALL,
    SMALL_PARTS,
    AnswerError,
    https_port,
    memory_of,
    memory_to_parse,
    parse_json,
    parse_object,
    read_answer,
    read_whole,
    valid_names,
)
from tests.cases import each

MB = 1024 * 1024


class Parts(httpx.AsyncByteStream):
    """A body in parts; it knows how many were taken."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            self.taken += 1
            yield part


def response(*parts: bytes, **headers: str) -> tuple[httpx.Response, Parts]:
    stream = Parts(*parts)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(200, headers=named, stream=stream), stream


@pytest.mark.parametrize("run", [asyncio.run, lambda work: trio.run(lambda: work)], ids=["asyncio", "trio"])
def test_an_answer_is_read_as_it_is(run: Any) -> None:
    sizes: list[int] = []
    found, _ = response(b"ab", b"c", Content_Length="3", Content_Encoding="Identity")
    assert run(read_answer(found, 3, sizes.append)) == b"abc"
    assert sizes == [2, 1]


def test_packed_answers_and_chunks_of_a_byte_are_not_read() -> None:
    found, stream = response(gzip.compress(b"{}"), Content_Encoding="gzip")
    with pytest.raises(AnswerError, match="Content-Encoding"):
        asyncio.run(read_answer(found, MB))
    assert stream.taken == 0
    found, stream = response(*[b"x"] * 100_000)
    with pytest.raises(AnswerError, match="parts of a few bytes"):
        asyncio.run(read_answer(found, MB))
    assert stream.taken == SMALL_PARTS + 4
    found, _ = response(*[b"x" * SMALL] * 4000)
    assert len(asyncio.run(read_answer(found, MB))) == 4000 * SMALL


@each("parts, headers, taken", [
    ([b"x" * 11], {"Content_Length": "11"}, 0), ([b"x" * 11], {"Content_Length": "9" * 5000}, 0),
    ([b"x" * 11], {"Content_Length": "0" * 25 + "11"}, 1), ([b"x" * 4] * 10, {}, 3),
])  # fmt: skip
def test_no_more_is_read_than_may_be(parts: list[bytes], headers: dict[str, str], taken: int) -> None:
    found, stream = response(*parts, **headers)
    with pytest.raises(AnswerError, match="more than 10 bytes"):
        asyncio.run(read_answer(found, 10))
    assert stream.taken == taken


def test_json_is_a_value_and_nesting_is_bounded() -> None:
    assert parse_json(b'{"a":[1,2.5,"\\u00e9",null,true]}', MB) == {"a": [1, 2.5, "\u00e9", None, True]}
    assert parse_json(b'"\xff"', MB) == "\ufffd"
    assert parse_json(b"[" * DEEPEST + b"]" * DEEPEST, MB)
    for one, other in ((b"[", b"]"), (b'{"a":', b"}")):
        deeper = one * DEEPEST + b"[]" + other * DEEPEST
        with pytest.raises(AnswerError, match="nested"):
            parse_json(deeper, MB)


@each("content", [b"", b"{", b"[NaN]", b"[-Infinity]", b"[" * 100_000, b"9" * 5000, b"\xef\xbb\xbf{}"])
def test_what_is_no_json_or_no_object(content: bytes) -> None:
    with pytest.raises(AnswerError, match="not JSON"):
        parse_json(content, 100 * MB)
    for other in (b"[]", b"7", b"null", b'"a"'):
        with pytest.raises(AnswerError, match="object"):
            parse_object(other, MB)


HOSTILE = (
    "[]", "{}", "[0]", '{"":0}', "[[]]", "999", "1.5", '"ab"', '"\\u4e2d"', "[[0],[0],[0]]", '{"a":{"b":{}}}',
    '"' + "x" * 99 + '"',
)  # fmt: skip


def traced(content: bytes) -> tuple[Any, int, int]:
    tracemalloc.start()
    value = json.loads(content)
    memory = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return value, *memory


@each("one", HOSTILE)
def test_the_memory_that_parsing_takes_is_known_before(one: str) -> None:
    content = f"[{','.join([one] * 5000)}]".encode()
    value, held, peak = traced(content)
    assert peak <= memory_to_parse(content)
    assert held / 3 < memory_of(value) < held * 3 + 1000 or one == "999"
    with pytest.raises(AnswerError, match="memory"):
        parse_json(content, peak // 2)


def test_one_wide_character_makes_all_of_them_wide() -> None:
    content = ('["' + "x" * 100_000 + '\U0001f600"]').encode()
    value, _, peak = traced(content)
    assert len(value[0]) * 4 < peak <= memory_to_parse(content)


def test_a_large_node_of_the_original_passes() -> None:
    """What nsqadmin allows, 8 times 32 MiB of memory, is enough for 10,000 topics, as a tenth is for a tenth of them."""
    latency = {"count": 5, "percentiles": [{"quantile": 0.99, "value": 1234567}, {"quantile": 0.95, "value": 12345}]}
    counts = dict.fromkeys(("depth", "backend_depth", "in_flight_count", "deferred_count", "message_count"), 123456)
    more = dict.fromkeys(("requeue_count", "timeout_count", "client_count", "zone_local_msg_count"), 0)
    channel = {
        "channel_name": "a_channel_of_some_length",
        **counts,
        **more,
        "paused": False,
        "clients": [],
        "e2e": latency,
    }
    topic = {"topic_name": "a_topic_of_some_length", "channels": [channel], **counts, "paused": False, "e2e": latency}
    content = json.dumps({"health": "OK", "topics": [topic] * 1000}, separators=(",", ":")).encode()
    assert len(content) > 0.6 * MB
    assert len(parse_object(content, 8 * 32 * MB // 10)["topics"]) == 1000


def test_names_parts_and_ports_in_answers() -> None:
    assert valid_names(["b", "a", "b", 7, None, "no such", "x" * 65], is_valid_name, 7) == ["b", "a"]
    with pytest.raises(AnswerError, match="more than 6 names"):
        valid_names(["a"] * 7, is_valid_name, 6)
    for wrong in (None, {"a": 1}, "abc", 7):
        with pytest.raises(AnswerError, match="without a list"):
            valid_names(wrong, is_valid_name, 6)
    assert read_whole(iter([b"ab", b"", b"c"]), 3) == b"abc"
    with pytest.raises(AnswerError, match="more than 3 bytes"):
        read_whole(iter([b"ab", b"cd"]), 3)
    assert https_port({"message": "TLS_REQUIRED", "https_port": 4152}) == 4152
    assert https_port({}) == 0
    assert [https_port({"https_port": lie}) for lie in (None, 0, -1, 65536, True, "4152", 4152.0, [4152])] == [0] * 8
