"""What a real nsqd logs of its clients: errors and cut-off bodies at ERROR, connects, IDENTIFY and exits at INFO."""

import socket
from pathlib import Path

import pytest

from tests import web
from tests.daemons import OK, Conversation, nsqd, sized

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"NIX\n", "E_INVALID invalid command NIX"),
        (b"PUB no/name\n" + sized(b"x"), 'E_BAD_TOPIC PUB topic name "no/name" is not valid'),
        (b"PUB t\n" + sized(b""), "E_BAD_MESSAGE PUB invalid message body size 0"),
        (b"PUB t\n" + sized(b"whole")[:-1], "E_BAD_MESSAGE PUB failed to read message body"),
        (b"IDENTIFY\n" + sized(b"{"), "E_BAD_BODY IDENTIFY failed to decode JSON body"),
    ],
)
def test_errors_of_a_client_are_lines(tmp_path: Path, sent: bytes, error: str) -> None:
    with nsqd(tmp_path) as node:
        with Conversation(node, b"  V2IDENTIFY\n" + sized(b'{"client_id":"me"}')) as client:
            assert client.frame() == OK
            me = "{}:{}".format(*client.socket.getsockname())
            client.send(sent)
            client.socket.shutdown(socket.SHUT_WR)
            client.frames()
            assert f" ERROR: [{me}] - {error}" in node.wait_for_line(" ERROR: ")
        for fact in (f"TCP: new client({me})", f"[{me}] IDENTIFY: ", f"PROTOCOL(V2): [{me}] exiting ioloop"):
            assert " INFO: " in node.wait_for_line(fact)
        code = error.partition(" ")[0]
        metrics = web.get(f"http://{node.http}/metrics").text
        assert f'nsqd_client_errors_total{{code="{code}",protocol="nsq"}} 1.0' in metrics
