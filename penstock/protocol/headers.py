"""Headers of messages: text values by name that travel with a message's body.

Frames and commands have them in front of the body: an int32 length, and msgpack's array of [name, value] pairs. HTTP has each
as `X-Nsq-Header-NAME`, so the same names and values are valid everywhere: a name is a token of HTTP in lower case and occurs
once, and a value has no control characters.

msgpack is imported when it is needed: nsqd's flags need this package without it.
"""

import re
from collections.abc import Mapping
from struct import Struct
from typing import TypeAlias

Headers: TypeAlias = tuple[tuple[str, str], ...]  # names and values

BATCH = "batch"  # messages with an equal value are members of a batch
AFTER = "after"  # the batch that has to be done before the message is published
UNIQUE = "unique"  # a key that is refused while a message with it is pending
DELIVER_AT = "deliver-at"  # the time before which the message is not delivered
GROUP = "group"  # messages with an equal value are a group, which a channel may deliver in order
DEAD_LETTER = "dead-letter-"  # begins the names of headers of messages that failed too often in another topic
DEAD_LETTER_TOPIC = DEAD_LETTER + "topic"  # the topics that such a message comes from, with commas, the last one last
PRIORITY = "priority"  # 0, the most urgent, to 9: a channel may deliver messages by it; any other value: USUAL_PRIORITY
TTL = "ttl"  # how long after its publish a message may be delivered, such as 30s or 1h30m; any other value: at any time
MOST_PRIORITY = 9
USUAL_PRIORITY = 5
MOST_HEADERS = 32
MOST_HEADER_BYTES = 8 * 1024  # of names and values in UTF-8, together
# 11: msgpack's heads of a pair and its texts, 5: of the array
MOST_PACKED_BYTES = MOST_HEADER_BYTES + 11 * MOST_HEADERS + 5
_LENGTH = Struct(">i")
MOST_SIZE = _LENGTH.size + MOST_PACKED_BYTES  # bytes that they add to a body
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


class TooManyHeaders(ValueError):
    """There are more than MOST_HEADERS headers, or they take more than MOST_HEADER_BYTES."""


def check_headers(headers: Headers) -> None:
    """Raise TooManyHeaders, or ValueError for a name or value that no message may have."""
    if (
        len(headers) > MOST_HEADERS
        or sum(len(name) + len(value.encode()) for name, value in headers) > MOST_HEADER_BYTES
    ):
        raise TooManyHeaders(f"more than {MOST_HEADERS} headers or {MOST_HEADER_BYTES} bytes of headers")
    for name, value in headers:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"not a header: {name[:60]!r}: {value[:60]!r}")
    if len(dict(headers)) < len(headers):
        raise ValueError("a header occurs twice")


def headers_of(values: Mapping[str, str] | None) -> Headers:
    """Return values by name as headers, with names in lower case. Raises ValueError, TypeError if they cannot be headers."""
    if not values:
        return ()
    headers = tuple((name.lower(), value) for name, value in values.items())
    check_headers(headers)
    return headers


def pack_headers(headers: Headers) -> bytes:
    """Return valid headers with their length, as frames and commands have them."""
    from msgpack import packb

    packed: bytes = packb(headers)
    return _LENGTH.pack(len(packed)) + packed


def unpack_headers(packed: bytes) -> Headers:
    """Return the headers in msgpack's bytes, without the length before them. Raises ValueError if they are not valid."""
    from msgpack import unpackb
    from msgpack.exceptions import UnpackException

    try:
        pairs = unpackb(packed, max_array_len=MOST_HEADERS, max_str_len=MOST_HEADER_BYTES)
    except (ValueError, UnpackException) as error:
        raise ValueError(f"not headers: {error}") from error
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        raise ValueError("not headers: an array of pairs of texts is expected")
    headers = tuple((name, value) for name, value in pairs)
    check_headers(headers)
    return headers


def split_headers(content: bytes) -> tuple[Headers, bytes]:
    """Return the headers at the beginning of a message's content, and the body. Raises ValueError if there are none."""
    if len(content) < _LENGTH.size:
        raise ValueError("no length of headers")
    end = _LENGTH.size + _LENGTH.unpack_from(content)[0]
    if not _LENGTH.size < end <= min(len(content), _LENGTH.size + MOST_PACKED_BYTES):
        raise ValueError(f"headers of {end - _LENGTH.size} bytes")
    return unpack_headers(content[_LENGTH.size : end]), content[end:]


def body_of(content: bytes) -> bytes:
    """Return the body in a message's content, which begins with valid headers."""
    return content[_LENGTH.size + _LENGTH.unpack_from(content)[0] :]


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)
