"""Which node a certificate belongs to."""

from shared.tls.node_certificates import MOST_NODES, certified_number, node_uri
from tests.cases import each


@each("number", [0, 7, 10, 1023])
def test_a_number_is_read_back_whatever_else_the_certificate_names(number: int) -> None:
    assert certified_number([node_uri(number)]) == number
    assert certified_number(["https://example.org", node_uri(number), "urn:penstock:node:1"]) == number


@each("uris", [
    [], ["https://example.org"], ["penstock:node:"], ["penstock:node:-1"], ["penstock:node:+1"], ["penstock:node:01"],
    ["penstock:node:1 "], ["penstock:node:1\n"], ["penstock:node:\u0661"], ["penstock:node:1/2"], ["PENSTOCK:node:1"],
    [node_uri(MOST_NODES)], ["penstock:node:9999999999"], [node_uri(1), node_uri(2)], [node_uri(1), node_uri(1)],
    [node_uri(1), "Penstock:Node:2"],
])  # fmt: skip
def test_a_certificate_without_exactly_one_right_name_is_no_node_s(uris: list[str]) -> None:
    assert certified_number(uris) is None
