"""What load balancers and clients ask first: /ping, /livez, /readyz and /info."""

from tests.cases import each
from tests.local_node import SECOND, START, LocalNode
from tests.nsqd.http.raw import JSON, SMALL, V1, ask, is_ok

FLAGS = SMALL


@each("target", ["/ping", "/livez", "/readyz", "/ping?a=%zz"])
def test_a_node_that_is_well_says_ok(node: LocalNode, target: str) -> None:
    answer = ask(node, "GET", target)
    assert is_ok(answer)
    assert "x-nsq-content-type" not in answer.headers


def test_a_node_that_does_not_know_how_topics_are_configured_is_not_ready(node: LocalNode) -> None:
    node.broker.set_copies(0)
    answer = ask(node, "GET", "/readyz")
    assert (answer.status, answer.body) == (503, b"NOK - NOREPL")
    assert is_ok(ask(node, "GET", "/ping"))
    refused = ask(node, "POST", "/pub?topic=t", b"x")
    assert (refused.status, b"NOREPL" in refused.body) == (503, True)
    node.broker.set_copies(1)
    assert is_ok(ask(node, "POST", "/pub?topic=t", b"x"))


def test_info(node: LocalNode) -> None:
    answer = ask(node, "GET", "/info")
    assert (answer.headers["content-type"], answer.headers["x-nsq-content-type"]) == (JSON, V1)
    assert answer.body.decode() == (
        '{"version":"1.3.0","broadcast_address":"node.example","hostname":"host",'
        f'"http_port":4151,"tcp_port":4150,"start_time":{START // SECOND},"max_heartbeat_interval":60000000000,'
        '"max_output_buffer_size":65536,"max_output_buffer_timeout":30000000000,"max_deflate_level":6}'
    ), "no HTTPS, and no topology"
    extended = ask(node, "GET", "/info", b"", "X-Nsq-Extensions: true")
    assert b'"penstock_version":"0.' in extended.body
