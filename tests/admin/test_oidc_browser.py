"""Logging in by OIDC in a real browser, whose rules for cookies the flow depends on: the provider is another site."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.admin.conftest import nsqadmin
from tests.admin.fake_provider import CLIENT, SECRET, fake_provider
from tests.daemons import Daemon

pytestmark = pytest.mark.process


def an_nsqadmin(issuer: str, *flags: str) -> Daemon:
    given = (f"-oidc-issuer={issuer}", f"-oidc-client-id={CLIENT}", "-oidc-role=ops=viewer")
    return nsqadmin("-nsqd-http-address=127.0.0.1:1", *given, *flags)


def test_a_user_comes_back_from_another_site_and_is_logged_in(chrome: Browser, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    with (
        fake_provider("localhost") as provider,  # nsqadmin is at 127.0.0.1
        an_nsqadmin(provider.issuer, f"-oidc-client-secret-file={secret}") as admin,
    ):
        provider.asks_first = True
        for scripts in (True, False):
            context = chrome.new_context(java_script_enabled=scripts, viewport={"width": 375, "height": 800})
            page = context.new_page()
            complaints: list[str] = []
            page.on("console", lambda line, requests=complaints: requests.append(line.text))
            page.goto(f"http://{admin.http}/counter?x=1")
            page.get_by_role("button", name="Log in with OIDC").click()
            page.wait_for_url(f"{provider.issuer}/**")
            page.get_by_role("link", name="Agree").click()
            page.wait_for_url(f"http://{admin.http}/counter?x=1")
            assert "ann, viewer" in page.locator("header").inner_text()
            assert [cookie["name"] for cookie in context.cookies()] == ["nsqadmin_session"]
            assert not [line for line in complaints if "Content Security Policy" in line]
            context.close()
