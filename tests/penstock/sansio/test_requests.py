"""What requests over HTTP show and trust."""

import ssl

from penstock.sansio.requests import request_context, request_headers
from penstock.sansio.settings import Settings


def test_the_secret_of_auth_is_shown_as_a_bearer_token() -> None:
    assert request_headers(Settings(auth_secret="pst_1"))["Authorization"] == "Bearer pst_1"


def test_without_a_secret_or_if_it_is_for_nsqd_alone_nothing_is_shown() -> None:
    assert "Authorization" not in request_headers(Settings())
    assert "Authorization" not in request_headers(Settings(auth_secret="pst_1", lookupd_authorization=False))


def test_https_trusts_what_connections_to_nsqd_trust() -> None:
    context = request_context(Settings(tls_v1=True, tls_insecure_skip_verify=True))
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_NONE
    assert request_context(Settings()) is True  # the authorities of the system
