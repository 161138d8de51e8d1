"""The codec of beanstalkd's protocol: commands spelled out, replies cut anywhere, and what must be refused."""

import string
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.protocols.beanstalk.commands import MAX_LINE, verb_of
from penstock.protocol import ProtocolError, beanstalk
from penstock.protocol.beanstalk import MAX_ID, MAX_U32, Reply, ReplyDecoder
from tests.cases import each

NAME_FIRST = string.ascii_letters + string.digits + "+/;.$_()"
names = st.builds(lambda a, b: a + b, st.sampled_from(NAME_FIRST), st.text(NAME_FIRST + "-", max_size=199))
ids, u32 = st.integers(0, MAX_ID), st.integers(0, MAX_U32)
bodies = st.binary(max_size=300)
SIMPLE = ("DELETED", "RELEASED", "TOUCHED", "NOT_FOUND", "TIMED_OUT", "BURIED", "KICKED", "DUPLICATE", "OUT_OF_MEMORY")


def wire(reply: Reply) -> bytes:
    """Return the reply as a server sends it."""
    if reply.word == "RESERVED_BATCH":
        return b"RESERVED_BATCH %d\r\n" % len(reply.jobs) + b"".join(
            wire(Reply("RESERVED", *job)) for job in reply.jobs
        )
    if reply.word in ("RESERVED", "FOUND"):
        return b"%b %d %d\r\n%b\r\n" % (reply.word.encode(), reply.number, len(reply.body), reply.body)
    if reply.word == "OK":
        return b"OK %d\r\n%b\r\n" % (len(reply.body), reply.body)
    if reply.word == "USING":
        return f"USING {reply.text}\r\n".encode()
    if reply.word in SIMPLE:
        return f"{reply.word}\r\n".encode()
    return f"{reply.word} {reply.number}\r\n".encode()


batches = st.lists(st.tuples(ids, bodies), min_size=1, max_size=5)
replies = st.one_of(
    st.sampled_from(SIMPLE).map(lambda word: Reply(word)),
    st.builds(lambda *parts: Reply(*parts), st.sampled_from(["INSERTED", "WATCHING", "CLEARED", "MOVED"]), ids),
    st.builds(lambda *parts: Reply(*parts), st.sampled_from(["RESERVED", "FOUND"]), ids, bodies),
    st.builds(lambda body: Reply("OK", body=body), bodies),
    st.builds(lambda name: Reply("USING", text=name), names),
    batches.map(lambda jobs: Reply("RESERVED_BATCH", len(jobs), jobs=tuple(jobs))),
)


@given(st.lists(replies, max_size=8), st.data())
def test_replies_cut_anywhere(sent: list[Reply], data: st.DataObject) -> None:
    stream = b"".join(map(wire, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder, found = ReplyDecoder(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.receive(stream[start:stop])
    assert found == sent


@given(st.binary(max_size=600), st.integers(1, 40))
def test_any_bytes_are_decoded_or_refused_and_little_is_kept(data: bytes, step: int) -> None:
    decoder = ReplyDecoder(max_body=64)
    try:
        for at in range(0, len(data), step):
            decoder.receive(data[at : at + step])
            assert len(decoder._buffer) <= beanstalk.MAX_REPLY_LINE + 64 + 2
    except ProtocolError:
        pass


@each("data", [
    b"HTTP/1.1 400 Bad Request\r\n",
    b"RESERVED 1 65\r\n",  # larger than the limit: refused before the body comes
    b"OK 18446744073709551616\r\n", b"OK -1\r\n", b"OK\r\n", b"INSERTED\r\n", b"INSERTED 18446744073709551616\r\n",
    b"INSERTED 1 2\r\n", b"DELETED 1\r\n", b"USING a b\r\n", b"USING -a\r\n",
    b"FOUND 1 2\r\nabcd",  # no CR LF behind the body
    b"RESERVED_BATCH 0\r\n", b"RESERVED_BATCH 101\r\n", b"RESERVED_BATCH 2\r\nRESERVED 1 1\r\nx\r\nDELETED\r\n",
    b"RESERVED_BATCH 2\r\nRESERVED 1 40\r\n" + b"x" * 40 + b"\r\nRESERVED 2 40\r\n",  # together over the limit
    b"x" * 256, b"\r\n",
])  # fmt: skip
def test_what_no_server_sends_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        ReplyDecoder(max_body=64).receive(data)


COMMANDS: list[tuple[bytes, bytes]] = [
    (beanstalk.put(b"ab", 1, 2, 3), b"put 1 2 3 2\r\nab\r\n"),
    (beanstalk.put_unique("k", b"ab", 1, 2, 3), b"put-unique k 1 2 3 2\r\nab\r\n"),
    (beanstalk.use("t"), b"use t\r\n"), (beanstalk.reserve(5), b"reserve-with-timeout 5\r\n"),
    (beanstalk.reserve_job(7), b"reserve-job 7\r\n"), (beanstalk.reserve_batch(9, 1), b"reserve-batch 9 1\r\n"),
    (beanstalk.delete(7), b"delete 7\r\n"), (beanstalk.delete_batch([1, 2]), b"delete-batch 1 2\r\n"),
    (beanstalk.release(7, 1, 2), b"release 7 1 2\r\n"), (beanstalk.bury(7, 1), b"bury 7 1\r\n"),
    (beanstalk.touch(7), b"touch 7\r\n"), (beanstalk.watch("t"), b"watch t\r\n"), (beanstalk.ignore("t"), b"ignore t\r\n"),
    (beanstalk.peek(7), b"peek 7\r\n"), (beanstalk.peek_first("buried"), b"peek-buried\r\n"),
    (beanstalk.kick(3), b"kick 3\r\n"), (beanstalk.kick_job(7), b"kick-job 7\r\n"), (beanstalk.stats(), b"stats\r\n"),
    (beanstalk.stats_job(7), b"stats-job 7\r\n"), (beanstalk.stats_tube("t"), b"stats-tube t\r\n"),
    (beanstalk.list_tubes(), b"list-tubes\r\n"),
    (beanstalk.list_jobs("t", "ready", 5, 7), b"list-jobs t ready 5 7\r\n"),
    (beanstalk.pause_tube("t", 5), b"pause-tube t 5\r\n"), (beanstalk.clear_tube("t"), b"clear-tube t\r\n"),
    (beanstalk.move_job(7, "t"), b"move-job 7 t\r\n"),
]  # fmt: skip


@each("command, line", COMMANDS)
def test_a_command_on_the_wire_that_the_server_understands(command: bytes, line: bytes) -> None:
    assert command == line
    first = line.partition(b"\r\n")[0]
    verb, read = verb_of(first)
    read(first, len(verb))  # raises BadFormat


WITH_A_NAME: list[Callable[[str], bytes]] = [
    beanstalk.use, beanstalk.watch, beanstalk.ignore, beanstalk.stats_tube, beanstalk.clear_tube,
    lambda name: beanstalk.pause_tube(name, 1), lambda name: beanstalk.move_job(1, name),
    lambda name: beanstalk.list_jobs(name, "ready", 1, 0), lambda name: beanstalk.put_unique(name, b"", 1, 0, 1),
]  # fmt: skip


@given(st.text(max_size=300), names)
def test_a_name_never_becomes_a_second_command(text: str, name: str) -> None:
    for encode in WITH_A_NAME:
        with suppress(ValueError):
            command = encode(text)
            line = command.removesuffix(b"\r\n\r\n" if b"put-unique" in command else b"\r\n")
            assert b"\r" not in line
            assert b"\n" not in line
            assert len(line) + 2 <= MAX_LINE
    assert beanstalk.use(name) == f"use {name}\r\n".encode()


@each("number", [-1, MAX_U32 + 1])
def test_numbers_are_bounded(number: int) -> None:
    for encode, *arguments in (
        (beanstalk.put, b"", number, 0, 1), (beanstalk.put, b"", 0, number, 1), (beanstalk.put, b"", 0, 0, number),
        (beanstalk.release, 1, number, 0), (beanstalk.bury, 1, number), (beanstalk.kick, number),
        (beanstalk.pause_tube, "t", number), (beanstalk.reserve, number),
        (beanstalk.delete, number if number < 0 else MAX_ID + 1), (beanstalk.reserve_batch, 0, 1),
        (beanstalk.delete_batch, []), (beanstalk.delete_batch, [MAX_ID] * 20), (beanstalk.list_jobs, "t", "ready", 1001, 0),
        (beanstalk.list_jobs, "t", "done", 1, 0), (beanstalk.peek_first, "reserved"),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            encode(*arguments)  # type: ignore[operator]


def test_figures_and_lists() -> None:
    text = b'---\nid: 1\nname: "a\\"b"\nrusage: 0.250000\nstate: ready\ndraining: false\nodd: 1_0\nbinlog: -1\n'
    assert beanstalk.parse_stats(text) == {
        "id": 1, "name": 'a"b', "rusage": 0.25, "state": "ready", "draining": "false", "odd": "1_0", "binlog": -1,
    }  # fmt: skip
    assert beanstalk.parse_list(b"---\n- a\n- b;c\n") == ["a", "b;c"]


@given(st.binary(max_size=100))
def test_hostile_yaml(data: bytes) -> None:
    for parse in (beanstalk.parse_stats, beanstalk.parse_list):
        with suppress(ProtocolError):
            parse(b"---\n" + data)
