"""Requests of RESP: however bytes are cut, the same requests come out, and what is too long is refused before it is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.protocols.disque.resp import (
    MOST_ARGUMENTS,
    MOST_LINE,
    MOST_OVERHEAD,
    ForeignRequest,
    ProtocolError,
    read_request,
    words,
)
from tests.cases import each

MOST = 1 << 20  # bytes of an argument
Outcome = tuple[list[bytes], int] | int | bytes


def outcome(data: bytes, at: int = 0, most: int = MOST) -> Outcome:
    """Return the result of read_request, or the text of its ProtocolError."""
    try:
        return read_request(data, at, most)
    except ProtocolError as wrong:
        return wrong.text


def check_every_cut(data: bytes, most: int = MOST) -> None:
    """A number of bytes is more than there is, and nothing is decided before it; a decision is final."""
    needed, decided = 0, None
    for cut in range(len(data) + 1):
        found = outcome(data[:cut], 0, most)
        if decided is not None:
            assert found == decided
        elif isinstance(found, int):
            assert found > cut
            needed = max(needed, found)
        else:
            assert cut >= needed
            decided = found


@each("data, arguments", [
    (b"*1\r\n$4\r\nPING\r\n", [b"PING"]), (b"*2\r\n$4\r\nqlen\r\n$0\r\n\r\n", [b"qlen", b""]),
    (b"*2\r\n$4\r\n\r\n\0*\r\n$1\r\n$\r\n", [b"\r\n\0*", b"$"]),
    (b"*1\rX$1\rXaYZ", [b"a"]),  # Disque looks neither at the byte after CR nor at the two after a bulk
    (b"*70\r\n" + b"$1\r\na\r\n" * 70, [b"a"] * 70), (b"*1\r\n$2000\r\n" + b"a" * 2000 + b"\r\n", [b"a" * 2000]),
    (b"*0\r\n", []), (b"*-1\r\n", []), (b"*-9223372036854775808\r\n", []),
])  # fmt: skip
def test_a_multibulk_is_read(data: bytes, arguments: list[bytes]) -> None:
    assert outcome(data) == (arguments, len(data))
    assert outcome(b"+" + data + b"PING\r\n", 1) == (arguments, len(data) + 1)
    check_every_cut(data + b"PING\r\n")


@each("line, arguments", [
    (b"", []), (b" \t\v\f ", []), (b"PING", [b"PING"]), (b"  qlen   jobs  ", [b"qlen", b"jobs"]),
    (b"a\tb\rc d", [b"a", b"b", b"c", b"d"]),
    (b"a\vb \vc", [b"a\vb", b"c"]),  # a vertical tab may begin no word, but be in one
    (b'addjob q "hello world" 0', [b"addjob", b"q", b"hello world", b"0"]),
    (b"addjob q 'hello world' 0", [b"addjob", b"q", b"hello world", b"0"]),
    (rb'"\x41\x4g\n\r\t\b\a\\\"\q\x"', [b'Ax4g\n\r\t\b\a\\"qx']),
    (rb"'\'\n\x41\\ '", [rb"'\n\x41\\ "]),  # only a quote is escaped in single quotes
    (rb"a\x41 \n", [rb"a\x41", rb"\n"]), (b"\"it's\" '\"'", [b"it's", b'"']),
    (b"a\"b c\" d'e f'", [b"ab c", b"de f"]),  # a quote may begin inside a word, and its end ends the word
    (b'"" \'\' a ""', [b"a"]),  # Disque drops empty words
    (b'""', []), (b"$5", [b"$5"]), (b"a\0b \xff", [b"a\0b", b"\xff"]),
])  # fmt: skip
@each("end", [b"\n", b"\r\n"])
def test_an_inline_request_is_read(line: bytes, arguments: list[bytes], end: bytes) -> None:
    data = line + end
    assert outcome(data) == (arguments, len(data))
    assert outcome(b"\n" + data + b"PING\n", 1) == (arguments, len(data) + 1)
    check_every_cut(data + b"PING\n")


REFUSED = {
    b"invalid multibulk length": [
        b"*\r\n", b"*a\r\n", b"* 1\r\n", b"*+1\r\n", b"*01\r\n", b"*-0\r\n", b"*1\n\r\n", b"*1025\r\n",
        b"*9223372036854775808\r\n", b"*-9223372036854775809\r\n", b"*" + b"1" * 10_000 + b"\r\n",
    ],
    b"unbalanced quotes in request": [
        b'a "b\r\n', b"a 'b\r\n", b'"a"b\n', b"'a'b\n", b'"a""b"\n', b'"a\\"\n', b"'a\\'\n", b"'a\\\\'\n",
    ],
    b"invalid bulk length": [
        b"*1\r\n$\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$00\r\n", b"*1\r\n$blabla\r\n", b"*1\r\n$2000000000\r\n",
        b"*1\r\n$99999999999999999999\r\n",
    ],
    b"expected '$', got 'f'": [b"*1\r\nfoo\r\n", b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n"],
    b"expected '$', got '\r'": [b"*1\r\n\r\n"],
    b"expected '$', got '\xff'": [b"*1\r\n\xff\r\n"],
}  # fmt: skip


@each("data, text", [(data, text) for text, requests in REFUSED.items() for data in requests])
def test_what_is_no_request_is_refused_as_disque_does(data: bytes, text: bytes) -> None:
    assert outcome(data) == text
    assert outcome(b"\n" + data, 1) == text
    assert ProtocolError(text).line == b"-ERR Protocol error: %s\r\n" % text.replace(b"\r", b" ")
    if len(data) < 100:
        check_every_cut(data)


@each("begin, most, text", [
    (b"", MOST_LINE, b"too big inline request"), (b"*", MOST_LINE, b"too big mbulk count string"),
    (b"*2\r\n$1\r\na\r\n$", MOST_LINE + 11, b"too big bulk count string"),
])  # fmt: skip
def test_a_line_ends_within_64_kib(begin: bytes, most: int, text: bytes) -> None:
    data = begin + b"1" * (most - len(begin))
    assert outcome(data) == most + 1
    assert outcome(data + b"1") == text
    assert outcome(data + b"1\r\n") == text  # although it has an end
    assert outcome(b"\r\n" + data + b"1", 2) == text
    if begin:
        assert outcome(data + b"\r") == len(data) + 2
        assert outcome(data + b"\r\n") in (b"invalid multibulk length", b"invalid bulk length")
    else:
        assert outcome(data + b"\n") == ([data], MOST_LINE + 1)
        assert outcome(data + b"\r\n") == text


def test_a_request_has_a_greatest_number_of_arguments_and_a_greatest_size() -> None:
    data = words([b""] * MOST_ARGUMENTS)
    assert outcome(data) == ([b""] * MOST_ARGUMENTS, len(data))
    assert outcome(words([b""] * (MOST_ARGUMENTS + 1))) == b"invalid multibulk length"
    assert outcome(b"a " * MOST_ARGUMENTS + b"\n") == ([b"a"] * MOST_ARGUMENTS, 2 * MOST_ARGUMENTS + 1)
    assert outcome(b"a " * (MOST_ARGUMENTS + 1) + b"\n") == b"too big inline request"
    header, most = b"*3\r\n$80000\r\n", 80_000
    first = header + b"a" * most + b"\r\n"
    rest = most + MOST_OVERHEAD - len(first) - len(b"$65000\r\n")
    assert outcome(first + b"$%d\r\n" % rest, 0, most) == most + MOST_OVERHEAD + 2
    assert outcome(first + b"$%d\r\n" % (rest + 1), 0, most) == b"invalid bulk length"
    begin = b"*2\r\n$4\r\nqlen\r\n$1000000\r\n"
    assert outcome(begin) == len(begin) + 1_000_002
    assert outcome(b"junk" + begin + b"a" * 999_999, 4) == len(begin) + 1_000_002
    assert outcome(b"*1") == outcome(b"*1\r") - 1 == 3  # type: ignore[operator]
    assert outcome(b"") == outcome(b"PING\n", 5) == 1


@each("end", [b"\n", b"\r\n"])
def test_http_is_recognized_and_a_command_is_none(end: bytes) -> None:
    for line in (
        b"GET / HTTP/1.1", b"GET /", b"POST / HTTP/1.0", b"PUT /", b"HEAD /", b"DELETE /", b"OPTIONS *", b"PATCH /",
        b"CONNECT a:1", b"TRACE /", b"PRI * HTTP/2.0", b"X \"' HTTP/1.1", b" HTTP/1.1", b"Host: localhost", b"host:x",
    ):  # fmt: skip
        with pytest.raises(ForeignRequest):
            read_request(line + end + b"PING\r\n", 0, MOST)
    for line in (b"GET", b"GETJOB FROM x", b"post x", b"qlen Host:", b"qlen HTTP/1.1x", b"HTTP/1.1"):
        assert outcome(line + end) == (line.split(), len(line + end))


@given(st.lists(st.lists(st.binary(max_size=12), min_size=1, max_size=9), min_size=1, max_size=4))
def test_requests_come_out_as_they_went_in(requests: list[list[bytes]]) -> None:
    data, at = b"".join(map(words, requests)), 0
    for request in requests:
        found = read_request(data, at, MOST)
        assert isinstance(found, tuple)
        assert found[0] == request
        at = found[1]
    assert at == len(data)


def quote_double(word: bytes) -> bytes:
    return b'"' + b"".join(b"\\x%02x" % byte for byte in word) + b'"'


def quote_single(word: bytes) -> bytes:
    return b"'" + word.replace(b"'", b"\\'") + b"'"


SINGLE = (
    st.binary(min_size=1, max_size=9)
    .filter(lambda word: b"\n" not in word and b"\\" not in word)
    .map(lambda word: (quote_single(word), word))
)
DOUBLE = st.binary(min_size=1, max_size=9).map(lambda word: (quote_double(word), word))
PLAIN = st.from_regex(rb"[A-Za-z0-9*$\\:+-]{1,9}", fullmatch=True).map(lambda word: (word, word))


@given(st.lists(st.one_of(SINGLE, DOUBLE, PLAIN), min_size=1, max_size=6))
def test_words_come_out_as_they_were_quoted(quoted: list[tuple[bytes, bytes]]) -> None:
    data = b" " + b" ".join(text for text, _ in quoted) + b"\n"
    assert outcome(data) == ([word for _, word in quoted], len(data))


PIECES = [
    *(b"*1\r\n", b"*2\r\n", b"*3\r\n", b"*0\r\n", b"*-1\r\n", b"*", b"*65\r\n", b"*1025\r\n", b"*01\r\n"),
    *(b"$1\r\na\r\n", b"$0\r\n\r\n", b"$4\r\nPING\r\n", b"$-1\r\n", b"$9\r\n", b"$", b"$1100\r\n", b"$1\r", b"$ 1\r\n"),
    *(b"\r\n", b"\n", b"\r", b" ", b"\0", b"PING", b'"', b"'", b"\\", b"\\x41", b'"a b"', b"GET /", b" HTTP/1.1", b"Host:"),
]  # fmt: skip
ALMOST = st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=3)), max_size=8).map(b"".join)


@given(ALMOST, st.sampled_from([0, 1, 1100, MOST]))
def test_nothing_is_decided_too_early_or_twice(data: bytes, most: int) -> None:
    check_every_cut(data, most)
