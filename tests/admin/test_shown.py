"""What nsqadmin shows to the servers that it asks: its certificate, or else its token where the operator has named them."""

import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from admin.main import shows_token_to
from admin.nodes.answer_budget import AnswerBudget
from admin.nodes.upstreams import ON_BEHALF_OF, Times, Upstreams
from admin.options import AdminOptions
from shared.auth.on_behalf import SIGNATURE, USER
from shared.auth.own_token import show_to, use_token_of
from tests.admin.asking import token

OPTIONS = AdminOptions(lookupd_http_address=("https://l.test:4162", "http://l.test:4161"), auth_token_file="token")
BY_CERTIFICATE = replace(OPTIONS, http_client_tls_cert="c", http_client_tls_key="k")
SECURE, LOOKUPD, PLAIN = "https://n.test:4152/pub", "https://l.test:4162/nodes", "http://l.test:4161/nodes"


@pytest.fixture(autouse=True)
def own(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "token").write_text(token("nsqadmin"))
    (tmp_path / "token").chmod(0o600)
    use_token_of(str(tmp_path / "token"))
    was = ON_BEHALF_OF.set("ann")
    yield
    ON_BEHALF_OF.reset(was)
    use_token_of("")
    show_to(())


def shown(options: AdminOptions, url: str) -> dict[str, str]:
    show_to(shows_token_to(options))
    context, budget = ssl.create_default_context(), AnswerBudget(65536)
    upstreams = Upstreams(Times(1, 1), context, budget, None, bool(options.http_client_tls_cert))
    return upstreams._shown("GET", httpx.URL(url))


ALL = {"Authorization", USER, SIGNATURE}


def test_with_a_certificate_no_server_gets_a_token_over_https() -> None:
    """A server that is broken could show it to the others, and be nsqadmin there."""
    assert shown(BY_CERTIFICATE, SECURE) == shown(BY_CERTIFICATE, LOOKUPD) == {USER: "ann"}
    assert set(shown(BY_CERTIFICATE, PLAIN)) == ALL, "a server in clear that was named gets it"
    named = replace(BY_CERTIFICATE, lookupd_http_address=("https://l.test:4162",))
    assert shown(named, "http://n.test:4151/pub") == {}, "it cannot know who asks"
    insists = replace(BY_CERTIFICATE, auth_token_for=("n.test:*",))
    assert set(shown(insists, SECURE)) == set(shown(insists, LOOKUPD)) == ALL
    assert any("can use the token elsewhere" in line for line in insists.oddities())
    assert not any("elsewhere" in line for line in BY_CERTIFICATE.oddities())


def test_without_a_certificate_the_token_is_shown_where_it_was() -> None:
    assert set(shown(OPTIONS, LOOKUPD)) == ALL
    assert shown(OPTIONS, SECURE) == {}
