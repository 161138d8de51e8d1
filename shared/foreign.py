"""Recognize clients that have come to the wrong port, by the first bytes that they send. Pure.

Each port drops bytes that certainly belong to another protocol before it executes anything: the body of a job, or of a
browser's request, must not be taken for commands. Mistakes of a protocol's own clients are not dropped: they get its error.

See docs/contributing/design/security.md.
"""

from __future__ import annotations

import re
from enum import Enum

MOST_LOOKED_AT = 64  # bytes


class Foreign(Enum):
    """A protocol, by what a client of it sends first, and where such a client belongs."""

    HTTP = "an HTTP request", "use the port of -http-address"
    HTTP2 = "the preface of HTTP/2", "use HTTP/1.1, and the port of -http-address"
    TLS = "a TLS handshake", "use a port for TLS; clients of NSQ ask for TLS by tls_v1 in IDENTIFY"
    RESP = "a command of RESP", "clients of Disque use the port of -disque-address"
    PING = "a PING of Disque or Redis", "clients of Disque use the port of -disque-address"
    NSQ = "the magic of a client of NSQ", "use the port of nsqd's -tcp-address"
    LOOKUPD = "the magic of a client of nsqlookupd", "use the port of nsqlookupd's -tcp-address"
    JOB = "a job of beanstalkd", "use the port of -beanstalk-address"
    BEANSTALK = "a command of beanstalkd", "use the port of -beanstalk-address"
    CLUSTER = "the hello of a node of a cluster", "use the port of -cluster-address"

    def __str__(self) -> str:
        return "{}: {}".format(*self.value)


_VERBS = b"GET|POST|PUT|HEAD|DELETE|OPTIONS|PATCH|CONNECT|TRACE"  # those that browsers send
_NUMBER = rb" [0-9]{1,10}"
_PATTERNS = (
    (Foreign.HTTP2, rb"PRI \* HTTP/2"),
    (Foreign.HTTP, rb"(?:%b) |(?i:host):" % _VERBS),
    (Foreign.TLS, rb"[\x15\x16]\x03[\x00-\x04]"),  # a record with an alert or a handshake
    (Foreign.RESP, rb"\*[0-9]{1,10}\r"),
    (Foreign.PING, rb"PING\r?\n"),
    (Foreign.NSQ, rb"  V2"),
    (Foreign.LOOKUPD, rb"  V1"),
    (Foreign.JOB, rb"put%b\r" % (_NUMBER * 4)),
    (
        Foreign.BEANSTALK,
        rb"(?:(?:use|watch) [^ \r\n]+|reserve(?:-with-timeout%b)?|stats|list-tubes)\r" % _NUMBER,
    ),
    # the length of a frame that is allowed before a proof, its kind HELLO, and a list in msgpack
    (Foreign.CLUSTER, rb"\x00\x00[\x00-\x03][\x00-\xff]\x01[\x90-\x9f]"),
)
_KINDS = [(kind, re.compile(pattern)) for kind, pattern in _PATTERNS]
_HTTP_VERSION = re.compile(rb" HTTP/[0-9]\.[0-9]")
# How all but those of beanstalkd begin: a test that costs little, before the one that does not.
BEGINNINGS = (
    *(verb + b" " for verb in _VERBS.split(b"|")),
    *(b"PRI *", b"PING", b"  V1", b"  V2", b"*", b"\x15\x03", b"\x16\x03", b"\0\0"),
)


def recognize(data: bytes) -> Foreign | None:
    """Return the protocol to which the first bytes of a connection, or of a line, certainly belong, or None.

    Further bytes would not change that.
    """
    return next((kind for kind, pattern in _KINDS if pattern.match(data, 0, MOST_LOOKED_AT)), None)


def recognize_line(line: bytes) -> Foreign | None:
    """Return the protocol of a whole line, which is given without its end, or None."""
    if line[-9:-3] == b" HTTP/" and _HTTP_VERSION.fullmatch(line, len(line) - 9) is not None:
        return recognize(line) or Foreign.HTTP
    return recognize(line + b"\r\n")


def describe(data: bytes) -> str:
    """Describe the first bytes of a client, and which port they belong to, for the log. They are not quoted."""
    line, newline, _ = data.partition(b"\n")
    found = recognize_line(line.removesuffix(b"\r")) if newline else recognize(data)
    return str(found) if found is not None else "bytes of no known protocol"
