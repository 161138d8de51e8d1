"""What nsqd logs of its clients: errors and cut-off bodies at ERROR, connects, IDENTIFY and exits at INFO."""

import logging
import socket

import pytest

from shared.log import log
from tests.daemons import OK, Conversation, sized
from tests.local_node import LocalNode


@pytest.mark.parametrize(("sent", "error"), [
    (b"NIX\n", "E_INVALID invalid command NIX"),
    (b"PUB no/name\n" + sized(b"x"), 'E_BAD_TOPIC PUB topic name "no/name" is not valid'),
    (b"PUB t\n" + sized(b""), "E_BAD_MESSAGE PUB invalid message body size 0"),
    (b"PUB t\n" + sized(b"whole")[:-1], "E_BAD_MESSAGE PUB failed to read message body"),
    (b"IDENTIFY\n" + sized(b"{"), "E_BAD_BODY IDENTIFY failed to decode JSON body"),
])  # fmt: skip
def test_errors_of_a_client_are_lines(sent: bytes, error: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.name)
    node = LocalNode()
    with Conversation(node, b"  V2IDENTIFY\n" + sized(b'{"client_id":"me"}')) as client:
        assert client.frame() == OK
        client.send(sent)
        client.socket.shutdown(socket.SHUT_WR)
        client.frames()
    (line,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    me, _, text = line.getMessage().partition(" - ")
    assert text.startswith(error)
    for fact in (f"TCP: new client({me[1:-1]})", f"{me} IDENTIFY: ", f"PROTOCOL(V2): {me} exiting ioloop"):
        assert any(fact in one for one in caplog.messages), fact
    code = error.partition(" ")[0]
    assert f'nsqd_client_errors_total{{code="{code}",protocol="nsq"}} 1.0' in node.client.get("/metrics").text
