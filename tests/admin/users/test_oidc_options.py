"""The options for OIDC: which are refused, and the reasons."""

from typing import Any

from admin.options import AdminOptions
from admin.users.oidc_options import no_role_mapping, url_problem
from tests.cases import each

RIGHT: dict[str, Any] = {"oidc_issuer": "https://x.example", "oidc_client_id": "c", "oidc_role": ("a=viewer",)}


@each("url, problem", [
    ("https://x.example/realm", ""), ("http://127.0.0.1:8080", ""), ("http://[::1]:8080/", ""),
    ("http://localhost", ""), ("http://x.example", "must begin with https://"),
    ("http://localhost.example", "must begin with https://"),
    ("http://127.0.0.1.example", "must begin with https://"), ("javascript:alert(1)", "is not a URL"),
    ("ftp://127.0.0.1", "must begin with https://"), ("https://", "is not a URL"),
    ("https://x:port", "is not a URL"), ("https://[x", "is not a URL"),
    ("https://u@x.example", "must have no user"), ("https://x.example/#a", "must have no user and no fragment"),
    ("https://x.example/ü", "is not a URL"), ("https://x.example/\n", "is not a URL"), ("", "is not a URL"),
])  # fmt: skip
def test_urls(url: str, problem: str) -> None:
    assert url_problem(url).startswith(problem)
    assert bool(url_problem(url)) is bool(problem)


def test_mappings() -> None:
    assert no_role_mapping(("a=viewer", "cn=x,dc=y=my.role")) == ""
    for text in ("", "a", "=viewer", "a=", "a=b c"):
        assert no_role_mapping((text,)).startswith("expected VALUE=ROLE")


@each("options, problem", [
    ({"oidc_issuer": "http://x.example"}, "--oidc-issuer must begin with https://"),
    ({"oidc_issuer": "https://x.example?a"}, "--oidc-issuer must have no query"),
    ({"oidc_client_id": ""}, "--oidc-client-id required with --oidc-issuer"),
    ({"oidc_role": ()}, "--oidc-role required with --oidc-issuer"),
    ({"oidc_scope": "profile"}, "--oidc-scope must contain openid"),
    ({"oidc_redirect_url": "http://x.example"}, "--oidc-redirect-url must begin with https://"),
    ({"oidc_issuer": ""}, "--oidc-client-id has no effect without --oidc-issuer"),
])  # fmt: skip
def test_what_options_say_together(options: dict[str, Any], problem: str) -> None:
    found = AdminOptions(nsqd_http_address=("x:1",), **RIGHT | options).problems()
    assert found[0].startswith(problem)
    assert AdminOptions(nsqd_http_address=("x:1",), **RIGHT).problems() == []
