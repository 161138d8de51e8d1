"""A user's name is believed for the request for which the token has signed it, and for no other."""

import pytest

from shared.auth.on_behalf import SIGNATURE, USER, headers_on_behalf, is_signed

TOKEN = "pst_" + "a" * 43
REQUEST = ("ann", "POST", "/topic/delete?topic=t")


def test_a_signed_name_is_believed() -> None:
    headers = headers_on_behalf(TOKEN, *REQUEST)
    assert headers[USER] == "ann"
    assert is_signed(headers[SIGNATURE], TOKEN, *REQUEST)


@pytest.mark.parametrize("place", range(3))
def test_it_is_believed_for_no_other_request(place: int) -> None:
    signature = headers_on_behalf(TOKEN, *REQUEST)[SIGNATURE]
    other = [*REQUEST]
    other[place] += "x"
    assert not is_signed(signature, TOKEN, *other)


@pytest.mark.parametrize("signature", ["", "0" * 64, "é" * 64])
def test_a_wrong_signature(signature: str) -> None:
    assert not is_signed(signature, TOKEN, *REQUEST)


def test_another_token() -> None:
    assert not is_signed(headers_on_behalf(TOKEN, *REQUEST)[SIGNATURE], TOKEN[:-1] + "b", *REQUEST)


@pytest.mark.parametrize(("token", "user"), [("", "ann"), (TOKEN, "")])
def test_without_a_token_or_a_user_nothing_is_sent(token: str, user: str) -> None:
    assert headers_on_behalf(token, user, "GET", "/") == {}
