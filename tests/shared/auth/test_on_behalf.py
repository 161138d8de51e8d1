"""A user's name is believed for the request for which the token has signed it, and for no other."""

from shared.auth.on_behalf import SIGNATURE, USER, headers_on_behalf, is_signed

TOKEN = "pst_" + "a" * 43
REQUEST = ("ann", "POST", "/topic/delete?topic=t")


def test_a_name_is_believed_for_the_request_that_was_signed_and_for_no_other() -> None:
    headers = headers_on_behalf(TOKEN, *REQUEST)
    signature = headers[SIGNATURE]
    assert headers[USER] == "ann"
    assert is_signed(signature, TOKEN, *REQUEST)
    for place in range(3):
        other = [*REQUEST]
        other[place] += "x"
        assert not is_signed(signature, TOKEN, *other)
    for wrong in ("", "0" * 64, "é" * 64):
        assert not is_signed(wrong, TOKEN, *REQUEST)
    assert not is_signed(signature, TOKEN[:-1] + "b", *REQUEST)
    for token, user in (("", "ann"), (TOKEN, "")):
        assert headers_on_behalf(token, user, "GET", "/") == {}
