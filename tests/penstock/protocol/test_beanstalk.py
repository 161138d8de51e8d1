"""Replies of beanstalkd's protocol: cut anywhere, and what must be refused."""

import string
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol import ProtocolError, beanstalk
from penstock.protocol.beanstalk import MAX_ID, Reply, ReplyDecoder
from tests.cases import each

NAME_FIRST = string.ascii_letters + string.digits + "+/;.$_()"
names = st.builds(lambda a, b: a + b, st.sampled_from(NAME_FIRST), st.text(NAME_FIRST + "-", max_size=199))
ids = st.integers(0, MAX_ID)
bodies = st.binary(max_size=300)
SIMPLE = ("DELETED", "RELEASED", "TOUCHED", "NOT_FOUND", "TIMED_OUT", "BURIED", "KICKED", "DUPLICATE", "OUT_OF_MEMORY")


def wire(reply: Reply) -> bytes:
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
    b"FOUND 1 2\r\nabcd",  # no CR LF after the body
    b"RESERVED_BATCH 0\r\n", b"RESERVED_BATCH 101\r\n", b"RESERVED_BATCH 2\r\nRESERVED 1 1\r\nx\r\nDELETED\r\n",
    b"RESERVED_BATCH 2\r\nRESERVED 1 40\r\n" + b"x" * 40 + b"\r\nRESERVED 2 40\r\n",  # together over the limit
    b"x" * 256, b"\r\n",
])  # fmt: skip
def test_what_no_server_sends_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        ReplyDecoder(max_body=64).receive(data)


def test_stats_and_lists() -> None:
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
