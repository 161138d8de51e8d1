"""The token and the TLS of HTTP requests."""

import ssl

import pytest

from penstock.sansio.requests import request_context, request_headers
from penstock.sansio.settings import Settings

SECURE = ["http://a:4161/lookup", "HTTPS://b:4162/lookup"]


def test_the_secret_of_auth_is_shown_as_a_bearer_token_and_otherwise_nothing() -> None:
    assert request_headers(Settings(auth_secret="pst_1"))["Authorization"] == "Bearer pst_1"
    hidden = Settings(auth_secret="pst_1", lookupd_authorization=False)
    for settings in (Settings(), hidden, Settings(auth_secret="a\nb"), Settings(auth_secret="é")):
        assert list(request_headers(settings)) == ["Accept-Encoding"]


def test_the_tls_of_requests() -> None:
    context = request_context(Settings(tls_insecure_skip_verify=True), SECURE)
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_NONE
    with pytest.raises(ValueError, match=r"/none\.pem"):
        request_context(Settings(tls_root_ca_file="/none.pem"), SECURE)
    assert request_context(Settings(), SECURE) is True
    assert request_context(Settings(tls_root_ca_file="/none.pem"), SECURE[:1]) is True
