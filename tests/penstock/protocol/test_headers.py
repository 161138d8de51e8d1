"""Headers of messages: what can be one, and the bytes they are packed as."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.headers import (
    MOST_HEADER_BYTES,
    MOST_HEADERS,
    MOST_PACKED_BYTES,
    TooManyHeaders,
    check_headers,
    headers_of,
    pack_headers,
    split_headers,
    unpack_headers,
)

NAMES = st.text("abcxyz0189-_.!~", min_size=1, max_size=20)
VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40)


@given(st.dictionaries(NAMES, VALUES, max_size=MOST_HEADERS), st.binary(max_size=9))
def test_what_is_packed_is_unpacked(values: dict[str, str], body: bytes) -> None:
    headers = headers_of(values)
    assert dict(headers) == values
    assert split_headers(pack_headers(headers) + body) == (headers, body)


@given(st.binary(max_size=60))
def test_anything_else_is_a_value_error(noise: bytes) -> None:
    for read in (unpack_headers, split_headers):
        try:
            read(noise)
        except ValueError:
            continue


def test_the_most_headers_fit_whatever_msgpack_adds_and_one_more_is_too_many() -> None:
    size = MOST_HEADER_BYTES // MOST_HEADERS
    most = tuple((f"{number:02}" + "n" * (size // 2 - 2), "v" * (size // 2)) for number in range(MOST_HEADERS))
    check_headers(most)
    assert unpack_headers(pack_headers(most)[4:]) == most
    assert len(pack_headers(most)) - 4 <= MOST_PACKED_BYTES
    for headers in (
        (*most[1:], ("n", "v" * (size + 1))),
        tuple((str(number), "") for number in range(MOST_HEADERS + 1)),
    ):
        with pytest.raises(TooManyHeaders):
            check_headers(headers)


def test_names_are_lower_case_and_no_value_can_become_a_second_header() -> None:
    assert headers_of({"TraceParent": "00"}) == (("traceparent", "00"),)
    assert headers_of(None) == headers_of({}) == ()
    for values in (
        {"a": "1", "A": "2"},
        {"": "x"},
        {"a b": "x"},
        {"ä": "x"},
        {"a": "x\r\nb: y"},
        {"a": "\0"},
        {"a": "\ud800"},
    ):
        with pytest.raises(ValueError):
            headers_of(values)
