"""nsq_to_nsq's filters of JSON messages. tests/processes/test_nsq_to_nsq.py compares them with the original's."""

import json

from hypothesis import given
from hypothesis import strategies as st

from apps.json_filter import Drop, JsonFilter
from tests.cases import each

WORDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def keep(*names: str) -> JsonFilter:
    return JsonFilter("", "", names)


@each("body, published", [
    (b'{"b": 1, "a": [1, {"z":2,"y":3}], "c": 3}', b'{"a":[1,{"y":3,"z":2}],"b":1}'),
    (b'{"a": 1.0, "b": 1e3}', b'{"a":1,"b":1000}'), (b'{"a": 0.00001, "b": 1e-7}', b'{"a":0.00001,"b":1e-7}'),
    (b'{"a": 1.5e-06, "b": [9.99e-7, "x 1e-07"]}', b'{"a":0.0000015,"b":[9.99e-7,"x 1e-07"]}'),
    (b'{"a": 1e20, "b": 1.5e300}', b'{"a":100000000000000000000,"b":1.5e+300}'),
    (b'{"a": 1e21, "b": -0.0}', b'{"a":1e+21,"b":0}'),
    (b'{"a": 9007199254740993}', b'{"a":9007199254740993}'),  # the original: ...992
    (b'{"a": "<&>\xe2\x80\xa8\\n\xc3\xa9"}', b'{"a":"\\u003c\\u0026\\u003e\\u2028\\n\xc3\xa9"}'),
    (b'{"a": "\\ud800x"}', b'{"a":"\xef\xbf\xbdx"}'), (b'{"a": 1, "a": 2}', b'{"a":2}'), (b'{"x": 1}', b"{}"),
    (b" null ", b"{}"), (b'{"a": "\xff"}', b'{"a":"\xef\xbf\xbd"}'),
])  # fmt: skip
def test_the_whitelist_publishes_these_fields_in_gos_form(body: bytes, published: bytes) -> None:
    assert keep("b", "a", "a").apply(body) == published


@each(
    "body",
    [b"", b"x", b"[1]", b"1", b'"a"', b'{"a":NaN}', b'{"a":1e999}', b'{"a":1} x', b"{'a':1}", b"\xef\xbb\xbf{}"]
    + [b'{"a":' + b"[" * 100_000, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a":' + b"9" * 5000 + b"}"],
)
def test_what_is_no_json_object_is_undecodable(body: bytes) -> None:
    assert keep("a").apply(body) is Drop.UNDECODABLE
    assert JsonFilter("a", "", ()).apply(body) is Drop.UNDECODABLE


@each("value, body, result", [
    ("", b'{"f":null}', "pass"), ("", b'{"g":1}', Drop.UNWANTED), ("x", b'{"g":1}', Drop.NO_FIELD),
    ("x", b"null", Drop.NO_FIELD), ("x", b'{"f":"x"}', "pass"), ("x", b'{"f":"y"}', Drop.UNWANTED), ("1", b'{"f":1}', "pass"),
    ("1", b'{"f":1.0}', "pass"), ("1", b'{"f":"1"}', "pass"), ("1.0", b'{"f":"1"}', Drop.UNWANTED),
    ("1e2", b'{"f":100}', "pass"), ("1", b'{"f":2}', Drop.UNWANTED), ("1", b'{"f":true}', Drop.UNWANTED),
    ("true", b'{"f":true}', Drop.UNWANTED), ("1_0", b'{"f":10}', Drop.UNWANTED), ("x", b'{"f":1}', Drop.UNWANTED),
    ("x", b'{"f":["x"]}', Drop.UNWANTED),
])  # fmt: skip
def test_the_required_field_and_value(value: str, body: bytes, result: object) -> None:
    assert JsonFilter("f", value, ()).apply(body) == (body if result == "pass" else result)


@given(st.dictionaries(st.text(), WORDS, max_size=5))
def test_what_passes_has_the_same_meaning(fields: dict[str, object]) -> None:
    published = keep(*fields).apply(json.dumps(fields).encode())
    assert isinstance(published, bytes)
    assert json.loads(published, parse_int=float) == json.loads(json.dumps(fields), parse_int=float)


@given(st.binary() | WORDS.map(lambda word: json.dumps(word).encode()))
def test_no_body_raises(body: bytes) -> None:
    for one in (keep("a"), JsonFilter("a", "1", ("b",))):
        assert isinstance(one.apply(body), bytes | Drop)
