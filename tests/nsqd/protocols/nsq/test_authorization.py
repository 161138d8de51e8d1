"""Answers of authorization servers: what they allow, and every way in which they are none.

See docs/contributing/design/nsq-protocol.md#auth.
"""

import json

import pytest

from nsqd.protocols.nsq.authorization import (
    MAX_BODY,
    MOST_PATTERNS,
    MOST_SECONDS,
    Authorization,
    AuthRefused,
    AuthRequest,
    answer,
    parse_authorization,
)
from shared.values import SECOND
from tests.cases import each

NOW = 1_000
EVERYTHING = {"topic": ".*", "channels": [".*"], "permissions": ["subscribe", "publish"]}


def body(*rules: object, **fields: object) -> bytes:
    return json.dumps({"ttl": 60, "authorizations": list(rules), **fields}).encode()


def rule(topic: str = ".*", channels: tuple[object, ...] = (".*",), *permissions: object) -> dict[str, object]:
    return {"topic": topic, "channels": list(channels), "permissions": list(permissions or ("subscribe", "publish"))}


def allowed(*rules: object) -> Authorization:
    return parse_authorization(body(*rules), NOW)


def refusal(data: bytes) -> str:
    with pytest.raises(AuthRefused) as refused:
        parse_authorization(data, NOW)
    return str(refused.value)


# what it allows


def test_an_answer_is_who_the_client_is_what_it_may_and_how_long_and_is_written_as_go_writes_json() -> None:
    given = body(EVERYTHING, EVERYTHING, identity="ann", identity_url="http://a/", ttl=60)
    ann = parse_authorization(given, NOW)
    assert (ann.identity, ann.identity_url, ann.permission_count) == ("ann", "http://a/", 2)
    assert ann.expires == NOW + 60 * SECOND
    assert answer(ann) == b'{"identity":"ann","identity_url":"http://a/","permission_count":2}'
    odd = parse_authorization(body(identity="<é&>\x00\x08\u2028\ud800\x7f", identity_url='"\\\n'), NOW)
    assert answer(odd) == (
        b'{"identity":"\\u003c\xc3\xa9\\u0026\\u003e\\u0000\\b\\u2028\xef\xbf\xbd\x7f",'
        b'"identity_url":"\\"\\\\\\n","permission_count":0}'
    )


PUBLISHING = [  # one rule, a topic -> may the client publish to it?
    (rule("^a$"), "a", True), (rule("^a$"), "ab", False),
    (rule("a"), "bab", True),  # found anywhere
    (rule(""), "a", True), (rule("^a$", (".*",), "publish"), "a", True),
    (rule("^a$", (".*",), "subscribe"), "a", False), (rule("^a$", ("",)), "a", True), (rule("^a$", ("^$",)), "a", True),
    (rule("^a$", ("^c$",)), "a", False),  # the channel of publishing is ""
    (rule("^a$", ("^c$", "x*")), "a", True), (rule("^a$", ()), "a", False),
    (rule("^a$", (None,)), "a", True),  # null is "" in a list of texts
    ({"topic": "a", "permissions": ["publish"]}, "a", False), ({"topic": "a", "channels": [".*"]}, "a", False),
    ({"channels": [".*"], "permissions": ["publish"]}, "a", True), (None, "a", False),
    ({"TOPIC": "^a$", "Channels": [""], "perMissions": ["publish"], "more": {}}, "a", True),
    (rule("(?i)^A.C#ephemeral$"), "a-c#ephemeral", True), (rule(r"^\pL+\.\d{2}$"), "abc.12", True),
]  # fmt: skip


@each("given, topic, expected", PUBLISHING)
def test_publishing(given: object, topic: str, expected: bool) -> None:
    assert allowed(given).allows_publish(topic) is expected


SUBSCRIBING = [
    (rule("^a$", ("^c$",)), "a", "c", True), (rule("^a$", ("^c$",)), "a", "cc", False),
    (rule("^a$", ("^c$",)), "b", "c", False), (rule("^a$", ("x", "c")), "a", "abcd", True),
    (rule("^a$", (".*",), "publish"), "a", "c", False), (rule("^a$", ()), "a", "c", False),
    (rule("^a$", ("^$",)), "a", "c", False),
]  # fmt: skip


@each("given, topic, channel, expected", SUBSCRIBING)
def test_subscribing(given: object, topic: str, channel: str, expected: bool) -> None:
    assert allowed(given).allows_subscribe(topic, channel) is expected


def test_one_rule_must_allow_all_of_it_and_a_bad_one_spoils_the_good_ones() -> None:
    two = allowed(
        rule("^a$", ("^c$",), "subscribe"), rule("^b$", ("^d$",), "subscribe"), rule("^b$", (".*",), "publish")
    )
    assert two.allows_subscribe("a", "c")
    assert two.allows_subscribe("b", "d")
    assert not two.allows_subscribe("a", "d")
    assert not two.allows_publish("a")
    assert two.allows_publish("b")
    assert refusal(body(EVERYTHING, rule("("))) == 'unable to compile "("'


def test_keys_are_read_in_any_case_and_the_last_one_counts() -> None:
    data = b'{"TTL":5,"Ttl":7,"ttl":null,"IDENTITY":"x","identity":"y","Authorizations":[{}],"authorizations":null}'
    found = parse_authorization(data, NOW)
    assert (found.expires, found.identity, found.permission_count) == (NOW + 7 * SECOND, "y", 0)
    for data in (
        b'{"ttl":7,"Authorizations":[{}],"authorizations":null}',
        b'{"ttl":1}',
        b'{"ttl":1,"authorizations":[]}',
    ):
        nothing = parse_authorization(data, NOW)
        assert not nothing.permission_count
        assert not any((nothing.allows_publish("a"), nothing.allows_subscribe("a", "c")))
    found = parse_authorization(b'{"ttl":1,"identity":"a\xff\\ud800"}', NOW)
    assert found.identity == "a\ufffd\ufffd", "invalid UTF-8, and halves of characters"
    assert parse_authorization(body(ttl=2**63 - 1), NOW).expires == NOW + MOST_SECONDS * SECOND, "a century"


# requests


def test_a_request_is_written_as_go_writes_it_and_its_repr_has_no_secret() -> None:
    request = AuthRequest("10.0.0.1", True, "a \ud800b", b"\xe2\x82&<+")
    assert request.query() == "common_name=a+%EF%BF%BDb&remote_ip=10.0.0.1&secret=%E2%82%26%3C%2B&tls=true"
    assert request.body() == (
        b'{"common_name":["a \xef\xbf\xbdb"],"remote_ip":["10.0.0.1"],'
        b'"secret":["\xef\xbf\xbd\xef\xbf\xbd\\u0026\\u003c+"],"tls":["true"]}'
    )
    assert "sesame" not in repr(AuthRequest("10.0.0.1", False, "", b"sesame"))


# invalid responses

NO_ANSWER = [
    b"", b"ok", b"<!doctype html><html><body>Sign in</body></html>", b"{", b'{"ttl":1}{"ttl":1}', b'{"ttl":1,}',
    b'\xef\xbb\xbf{"ttl":1}', b'{"ttl":NaN}', b'{"ttl":1,"identity":"a\nb"}', b"[" * 200_000,
    b'{"ttl":' + b"9" * 10_000 + b"}",
]  # fmt: skip


@each("data", NO_ANSWER)
def test_what_is_not_json_is_refused(data: bytes) -> None:
    assert refusal(data) == "answer is not JSON"


REFUSED = [
    (b"[]", "answer is not an object"), (b'"yes"', "answer is not an object"), (b"true", "answer is not an object"),
    (b"null", "invalid TTL 0 (must be >0)"), (b"{}", "invalid TTL 0 (must be >0)"),
    (body(ttl=0), "invalid TTL 0 (must be >0)"), (body(ttl=-1), "invalid TTL -1 (must be >0)"),
    (body(ttl="60"), "ttl is not a whole number"), (body(ttl=60.0), "ttl is not a whole number"),
    (body(ttl=True), "ttl is not a whole number"), (body(ttl=2**63), "ttl is not a whole number"),
    (body(identity=1), "identity is not text"), (body(identity_url=["http://a"]), "identity_url is not text"),
    (body(authorizations={}), "authorizations is not a list"),
    (body(authorizations="all"), "authorizations is not a list"), (body("all"), "authorization is not an object"),
    (body([]), "authorization is not an object"), (body({"topic": 1}), "topic is not text"),
    (body({"channels": "c"}), "channels is not a list"), (body({"channels": [1]}), "channel is not text"),
    (body({"permissions": "publish"}), "permissions is not a list"),
    (body({"permissions": [True]}), "permission is not text"),
    (body(rule(".*", (".*",), "publish", "Publish")), 'unknown permission "Publish"'),
    (body(rule(".*", (".*",), "")), 'unknown permission ""'),
    (body(rule(".*", (".*",), None)), 'unknown permission ""'),
    (body(rule(".*", (".*",), "a\nb" + "x" * 500)), 'unknown permission "a\\nb' + "x" * 97 + '"'),
    (body(rule("[")), 'unable to compile "["'), (body(rule(".*", (".*", "(?=a)"))), 'unable to compile "(?=a)"'),
    (body(rule(r"(a)\1")), 'unable to compile "(a)\\\\1"'), (body(rule("a**")), 'unable to compile "a**"'),
    (body(rule("(x{1000}){1000}")), 'unable to compile "(x{1000}){1000}"'),
    (body(rule(r"\pL{1000}")), 'unable to compile "\\\\pL{1000}"'),  # beyond the memory a pattern may have
    (body(*[rule("(.*){1,1000}")] * 6), "patterns too complex"),
    (body(*[rule("", ("",) * 1023)] * 5), f"more than {MOST_PATTERNS} patterns"),
    (body(identity="x" * MAX_BODY), f"answer of more than {MAX_BODY} bytes"),
]  # fmt: skip


@each("data, text", REFUSED)
def test_a_wrong_answer_is_refused(data: bytes, text: str) -> None:
    assert refusal(data) == text


EXPLOSIVE = ["(a*)*b", "(a|a)*$", "(a+)+b", "(.*.*)*x", "(((a*)*)*)*b", "(" * 900 + "a*" + ")*" * 900 + "b"]


@each("pattern", EXPLOSIVE)
def test_no_pattern_is_slow(pattern: str) -> None:
    """With a backtracking engine this test would not end."""
    assert allowed(rule(pattern)).allows_publish("a" * 64) is (pattern == "(a|a)*$")


def test_the_library_says_nothing_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert "unable to compile" in refusal(body(rule("[")))
    assert allowed(rule("(.{0,30}a){20}")).allows_publish("ab" * 32)
    assert capfd.readouterr() == ("", "")
