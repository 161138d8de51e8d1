"""URLs, names and bodies of the transport for Celery."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.celery.address import BrokerUrl, read_url
from penstock.celery.envelope import (
    Payload,
    delay_of,
    pack_broadcast,
    pack_job,
    pack_marker,
    priority_of,
    read_broadcast,
    read_job,
)
from penstock.celery.names import ephemeral, tube_of
from penstock.protocol import is_valid_name
from penstock.protocol.beanstalk import check_name
from tests.cases import each


def test_one_url_says_it_all() -> None:
    assert read_url("penstock://a:1?nsqd=b:2&ttr=5&timeout=3&retry=7", {}) == BrokerUrl("a:1", "b:2", "", 5, 3.0, 7.0)
    assert read_url("penstock://a", {}) == BrokerUrl("a:11300", "a:4150", "")
    assert read_url("penstock://", {}) == BrokerUrl("127.0.0.1:11300", "127.0.0.1:4150", "")
    assert read_url("penstock://[::1]/shop?nsqd=", {}) == BrokerUrl("[::1]:11300", "", "shop.")
    assert read_url("penstock://a?ttr=5", {"ttr": 9, "polling_interval": 1}).ttr_s == 9


def test_what_is_wrong_in_a_url_is_named() -> None:
    for query in (":0", "?ttr=0", "?ttr=x", "?nsqd=b", ":99999"):
        with pytest.raises(ValueError):
            read_url(f"penstock://a{query}", {})
    with pytest.raises(ValueError, match=r"'foo'.* known are nsqd, ttr"):
        read_url("penstock://a?foo=1", {})
    with pytest.raises(ValueError, match="ttr must be a number of seconds: 'abc'"):
        read_url("penstock://a?ttr=abc", {})


@given(st.text(max_size=300), st.text(max_size=300))
def test_every_queue_has_a_tube_and_every_exchange_an_ephemeral_topic_of_its_own(one: str, other: str) -> None:
    check_name(tube_of(one))
    assert (tube_of(one) == tube_of(other)) == (one == other)
    assert is_valid_name(ephemeral(one))
    assert ephemeral(one).endswith("#ephemeral")
    assert (ephemeral(one) == ephemeral(other)) == (one == other)


def test_usual_names_stay_readable() -> None:
    assert tube_of("celery") == "celery"
    assert tube_of("w1@host.celery.pidbox") == "w1$40host.celery.pidbox"
    assert ephemeral("celery.pidbox") == "celery.pidbox#ephemeral"


def payload(**headers: object) -> Payload:
    return {"body": "x", "headers": dict(headers), "properties": {"priority": 3}}


def test_a_job_holds_a_message_with_a_priority_and_a_delay_that_never_ends_late() -> None:
    found = read_job(pack_job("celery", 60, payload(id="1")))
    assert (found.queue, found.ttr_s, found.priority, found.message) == ("celery", 60, 2048 - 300, payload(id="1"))
    sent = read_broadcast(pack_broadcast("a.b", payload()))
    assert (sent.routing_key, sent.message, sent.marker) == ("a.b", payload(), "")
    assert read_broadcast(pack_marker("m")).marker == "m"

    def of(priority: object) -> int:
        return priority_of({"properties": {"priority": priority}})

    assert [of(priority) for priority in (9, 5, 0)] == [1148, 1548, 2048]
    assert (of(None), of("x"), of(-5), of(99)) == (2048, 2048, 2048, 1148)

    assert delay_of(payload(eta="1970-01-01T00:01:40.700000+00:00"), 90.0) == 10
    assert delay_of(payload(eta="1970-01-01T00:01:40"), 99.5) == 0
    assert delay_of(payload(eta="1970-01-01T01:01:40+01:00"), 0.0) == 100
    for eta in (None, "", "tomorrow", 5):
        assert delay_of(payload(eta=eta), 0.0) == 0
    assert delay_of({"headers": None, "properties": {}}, 0.0) == 0


@each("body", [b"", b"\xff", b"1", b"[]", b"{}", b"[" * 100_000, b'{"queue":"q","ttr":"x","priority":1,"message":{}}',
     b'{"queue":"q","ttr":1,"priority":1,"message":{"properties":1}}', b'{"queue":"q","ttr":1,"priority":1,"message":[]}',
     b'{"queue":"q","ttr":1,"priority":1,"message":{"properties":{"delivery_info":3}}}'])  # fmt: skip
def test_foreign_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        read_job(body)
    with pytest.raises(ValueError):
        read_broadcast(body)


KEYS = st.sampled_from(["queue", "ttr", "priority", "message", "properties", "headers", "routing_key"])
LEAVES = st.none() | st.integers() | st.text(max_size=5)


@given(st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=6), max_leaves=12))
def test_any_json_is_read_or_refused(value: object) -> None:
    for read in (read_job, read_broadcast):
        with suppress(ValueError):
            read(json.dumps(value).encode())
