"""A browser sends the body in the form that edits a message unchanged."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.messages.republish import BASE64, TEXT, body_in, encoding_of
from shared.http.errors import HttpError
from tests.cases import each


@given(st.binary(min_size=1, max_size=200) | st.text(min_size=1, max_size=100).map(str.encode))
def test_a_body_that_is_not_edited_stays_the_same(body: bytes) -> None:
    encoding = encoding_of(body)
    shown = body.decode() if encoding == TEXT else base64.b64encode(body).decode()
    sent = shown.replace("\n", "\r\n")  # as a browser sends the text of a form
    assert body_in({"body": sent, "encoding": encoding}) == body


@each("body, encoding", [
    (b"a\nb", TEXT), (b"a\r\nb", BASE64), (b"\xff", BASE64), (b"a\0", BASE64), ("\u03b1".encode(), TEXT),
])  # fmt: skip
def test_what_a_browser_would_change_is_shown_as_base64(body: bytes, encoding: str) -> None:
    assert encoding_of(body) == encoding


@each("form, words", [
    ({}, "Body must not be empty"),
    ({"body": "", "encoding": BASE64}, "Body must not be empty"),
    ({"body": "%%%", "encoding": BASE64}, "Body must be base64"),
    ({"body": "\u03b1", "encoding": BASE64}, "Body must be base64"),
])  # fmt: skip
def test_what_is_no_body_is_refused(form: dict[str, str], words: str) -> None:
    with pytest.raises(HttpError, match=words):
        body_in(form)
