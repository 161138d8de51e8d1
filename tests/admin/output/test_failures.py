"""Errors of nodes as one sentence: the node and the reason, without a URL."""

from admin.output.failures import field_of, in_words
from tests.cases import each

UNTIL = 'http://10.0.0.{}:4151/topic/pause answered 400 \'{{"message":"INVALID_ARG_UNTIL"}}\''


@each("errors, text", [
        (
            [UNTIL.format(1), UNTIL.format(2), UNTIL.format(3)],
            "10.0.0.1:4151, 10.0.0.2:4151 and 10.0.0.3:4151: a pause must end within 30 days (INVALID_ARG_UNTIL).",
        ),
        (
            "failed to query any nsqlookupd: http://h:4161/topics: Not there; http://i:4161/topics: Not there",
            "No nsqlookupd answered. h:4161 and i:4161: Not there.",
        ),
        ("https://[::1]:4151/pub did not answer within 5 s", "[::1]:4151 did not answer within 5 s."),
        ("http://h:1/pub answered 418 'odd'", "h:1 answered 418 odd."),
        ("http://h:1/pub answered 500 ''", "h:1 answered 500."),
        ("h:1/stats lists more than 7 topics", "h:1: lists more than 7 topics."),
        ("no nsqd is known", "no nsqd is known."),
        ([f"http://h{one}:1/x: no" for one in range(8)], "h0:1, h1:1, h2:1, h3:1, h4:1 and 3 more: no."),
    ])  # fmt: skip
def test_an_error_is_described_by_node_and_reason(errors: str | list[str], text: str) -> None:
    assert in_words(errors) == text


def test_an_error_names_the_field_that_it_is_about() -> None:
    assert field_of(UNTIL.format(1)) == "minutes"
    assert field_of("http://h:1/pub answered 413 'MSG_TOO_BIG'") == "body"
    assert field_of("http://h:1/pub did not answer within 5 s") == ""
