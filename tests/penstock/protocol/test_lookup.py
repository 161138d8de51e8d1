"""The V1 codec: commands of an nsqd to nsqlookupd, and the replies."""

import pytest

from penstock.protocol import lookup
from tests.cases import each


@each("command, wire", [
    (lookup.MAGIC_V1, b"  V1"),
    (lookup.identify({"tcp_port": 4150}), b'IDENTIFY\n\0\0\0\x11{"tcp_port":4150}'),
    (lookup.register("t"), b"REGISTER t\n"), (lookup.register("t", "c"), b"REGISTER t c\n"),
    (lookup.unregister("t"), b"UNREGISTER t\n"),
    (lookup.unregister("t", "c#ephemeral"), b"UNREGISTER t c#ephemeral\n"),
    (lookup.ping(), b"PING registered\n"),
])  # fmt: skip
def test_a_command_on_the_wire(command: bytes, wire: bytes) -> None:
    assert command == wire


def test_names_replies_and_errors() -> None:
    for names in (("a\nPING", None), ("", None), ("t", ""), ("t", "a b")):
        with pytest.raises(ValueError):
            lookup.register(*names)
        with pytest.raises(ValueError):
            lookup.unregister(*names)
    replies = [b"OK", b"E_INVALID nope", b"", b"E_REGISTER_FAILED"]
    assert list(map(lookup.is_error, replies)) == [False, True, False, False]
    assert list(map(lookup.is_refusal, replies)) == [False, False, False, True]
    assert lookup.registered(b"OK 2 15") == (2, 15)
    for reply in (b"OK", b"OK 2", b"OK -1 2", b"OK 1 2 3", b"OK 9999999999 1"):
        assert lookup.registered(reply) is None
