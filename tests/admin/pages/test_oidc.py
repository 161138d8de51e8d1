"""Login by OIDC: the whole flow with a provider on loopback, and every refusal."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from admin.options import AdminOptions
from admin.pages.oidc import open_provider
from tests.admin.asking import NOWHERE, OURS, auth_file, browser, csrf_in, entry, log_in, made_later, make
from tests.admin.fake_provider import CLIENT, SECRET, FakeProvider, fake_provider, make_key
from tests.async_tests import on_asyncio
from tests.cases import each

pytestmark = pytest.mark.process


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as found:
        yield found


def at(provider: FakeProvider, directory: Path, **options: Any) -> httpx.AsyncClient:
    secret = directory / "secret"
    secret.write_text(SECRET + "\n")
    secret.chmod(0o600)
    given = {"oidc_issuer": provider.issuer, "oidc_client_id": CLIENT, "oidc_client_secret_file": str(secret)}
    given |= {"oidc_role": ("ops=operator",), "audit_file": str(directory / "audit")}
    return browser(made_later(lambda: make(**given | options)))


@pytest.fixture
def client(provider: FakeProvider, tmp_path: Path) -> httpx.AsyncClient:
    return at(provider, tmp_path)


def audited(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "audit").read_text().splitlines()]


def asked(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


async def begin(client: httpx.AsyncClient, following: str = "") -> str:
    """Begin a login, and return the URL of the provider to which the browser is sent."""
    answer = await client.get("/login/oidc", params={"next": following})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def agree(url: str) -> str:
    """Log in at the provider, and return the path and query to which it sends the browser back."""
    async with httpx.AsyncClient() as client:
        back = urlsplit((await client.get(url)).headers["location"])
    return f"{back.path}?{back.query}"


async def whole(client: httpx.AsyncClient, following: str = "") -> httpx.Response:
    return await client.get(await agree(await begin(client, following)))


@on_asyncio
async def test_a_user_logs_in_and_goes_on_to_the_page(client: httpx.AsyncClient, tmp_path: Path) -> None:
    led = await client.get("/counter", params={"x": "1"})
    page = await client.get(led.headers["location"])
    cookie = (await client.get("/login/oidc")).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=lax", "Max-Age=600", "Path=/login/oidc"} <= set(cookie.split("; "))
    assert '<a role="button" href="/login/oidc?next=%2Fcounter%3Fx%3D1">Log in with OIDC</a>' in page.text
    assert 'name="password"' not in page.text  # there is no file of users
    url = await begin(client, "/counter?x=1")
    assert asked(url) == asked(url) | {
        "redirect_uri": "http://admin/login/oidc/callback", "response_type": "code", "code_challenge_method": "S256",
        "scope": "openid profile", "client_id": CLIENT,
    }  # fmt: skip
    answer = await client.get(await agree(url))
    assert (answer.status_code, answer.headers["refresh"]) == (200, "0; url=/counter?x=1")
    cookies = answer.headers.get_list("set-cookie")
    session = next(cookie for cookie in cookies if cookie.startswith("nsqadmin_session="))
    assert "HttpOnly" in session
    assert "SameSite=strict" in session
    assert any(cookie.startswith('nsqadmin_oidc=""') and "Max-Age=0" in cookie for cookie in cookies)
    shown = await client.get("/lookup")
    assert shown.status_code == 200
    assert "ann, operator" in shown.text
    assert (await client.get("/audit")).status_code == 403
    out = await client.post("/logout", data={"csrf": csrf_in(shown.text)}, headers=OURS)
    assert out.status_code == 303
    assert (await client.get("/counter")).status_code == 303
    first, second = (one for one in audited(tmp_path) if one["action"] in ("login", "logout"))
    assert (first["action"], first["user"], first["role"], first["outcome"]) == ("login", "ann", "operator", "done")
    assert first["detail"] == {"by": "oidc", "subject": "1"}
    assert (second["action"], second["user"]) == ("logout", "ann")


@on_asyncio
async def test_a_page_elsewhere_is_not_gone_to(client: httpx.AsyncClient) -> None:
    for elsewhere in ("https://evil.example/", "//evil.example", "/\\evil.example", "evil"):
        assert (await whole(client, elsewhere)).headers["refresh"] == "0; url=/"
    assert (await whole(client, "/topics/ü")).headers["refresh"] == "0; url=/topics/%C3%BC"


def refused(directory: Path, answer: httpx.Response, status: int, words: str, reason: str) -> None:
    """Check that an answer starts no session and has this text, and that the audit has this reason."""
    assert (answer.status_code, "refresh" in answer.headers) == (status, False)
    assert "nsqadmin_session" not in str(answer.headers)
    assert words in answer.text
    record = audited(directory)[-1]
    assert (record["action"], record["user"], record["detail"]) == ("login", "", {"by": "oidc"})
    assert record["outcome"].startswith(f"refused: {reason}")


@on_asyncio
async def test_an_invalid_token_starts_no_session(provider: FakeProvider, tmp_path: Path) -> None:
    client = at(provider, tmp_path)
    claims = provider.right_claims("another nonce")
    for token, reason in (
        (provider.sign(claims), "the ID token is not valid: InvalidClaimError: invalid_claim: "),
        (
            provider.sign(claims, make_key("two")),
            "the ID token was signed by a key that the provider's JWKS does not have",
        ),
    ):
        provider.token = token
        refused(tmp_path, await whole(client), 400, "The response of the OIDC provider is not valid.", reason)
        assert (await client.get("/counter")).status_code == 303


@on_asyncio
async def test_only_the_browser_that_began_it_ends_it_and_once(
    client: httpx.AsyncClient, provider: FakeProvider, tmp_path: Path
) -> None:
    words = "This login has expired, was already used, or was started in another browser."
    back = await agree(await begin(client))
    refused(tmp_path, await client.get("/login/oidc/callback?code=c&state=x"), 400, words, "the state is that")
    assert words in (await client.get(back)).text  # the cookie is gone
    assert len(audited(tmp_path)) == 1  # so that strangers cannot fill it
    back = await agree(await begin(client))
    cookie = client.cookies["nsqadmin_oidc"]
    assert (await client.get(back)).status_code == 200
    again = await client.get(back, headers={"Cookie": f"nsqadmin_oidc={cookie}"})
    refused(tmp_path, again, 400, words, "the response of the provider was already used")
    forged = await client.get(back, headers={"Cookie": f"nsqadmin_oidc={cookie[:-1]}x"})
    refused(tmp_path, forged, 400, words, "the cookie was not made by this process")


@on_asyncio
async def test_a_code_of_another_user_is_refused(
    client: httpx.AsyncClient, provider: FakeProvider, tmp_path: Path
) -> None:
    """An attacker has the victim's browser bring the attacker's code, or the victim's code brought elsewhere."""
    foreign = asked(await agree(await begin(client)))["code"]
    client.cookies.clear()
    own = asked(await agree(await begin(client)))
    answer = await client.get("/login/oidc/callback", params=own | {"code": foreign})  # PKCE binds it to another one
    refused(
        tmp_path, answer, 400, "The response of the OIDC provider is not valid.",
        f"{provider.issuer}/token_endpoint answered 400",
    )  # fmt: skip


@on_asyncio
async def test_a_user_without_a_role_is_refused_and_only_the_log_has_the_reason(
    client: httpx.AsyncClient, provider: FakeProvider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider.claims["groups"] = ["secret-project"]
    with caplog.at_level(logging.WARNING):
        answer = await whole(client)
    refused(tmp_path, answer, 403, "Your account has no role in nsqadmin.", "no role for ann")
    assert "secret-project" not in answer.text
    assert "no -oidc-role for 'ann', whose claim 'groups' has ('secret-project',)" in caplog.text


@on_asyncio
async def test_an_invalid_user_name_and_a_user_of_the_file(provider: FakeProvider, tmp_path: Path) -> None:
    """Users of the file log in, too, and a user of the provider cannot take their names."""
    client = at(provider, tmp_path, auth_file=auth_file(tmp_path, entry("ann", ["viewer"], proof="password")))
    page = (await client.get("/login")).text
    assert "Log in with OIDC" in page
    assert 'name="password"' in page
    for name, reason in (
        (None, "the ID token has no text in the claim 'preferred_username'"),
        ("a b", "'a b' of the claim 'preferred_username' is not a valid user name"),
        ("ann", "'ann' is also the name of a user"),
    ):
        provider.claims["preferred_username"] = name
        refused(tmp_path, await whole(client), 403, "nsqadmin cannot use the user name", reason)
    assert (await log_in(client, "ann")).status_code == 303
    assert "ann, viewer" in (await client.get("/lookup")).text


@on_asyncio
async def test_a_new_key_of_the_provider_is_found_and_it_is_not_asked_again_and_again(
    client: httpx.AsyncClient, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admin.users.oidc_provider.LEAST_BETWEEN", -1.0)
    assert (await whole(client)).status_code == 200
    assert (await whole(client)).status_code == 200
    assert provider.asked["/jwks_uri"] == 1
    provider.key = make_key("two")
    provider.keys.append(provider.key)
    assert (await whole(client)).status_code == 200
    assert provider.asked["/jwks_uri"] == 2
    monkeypatch.setattr("admin.users.oidc_provider.LEAST_BETWEEN", 30.0)
    provider.key = make_key("three")  # which it does not publish
    for _ in range(3):
        assert (await whole(client)).status_code == 400
    assert provider.asked["/jwks_uri"] == 2
    assert provider.asked["/.well-known/openid-configuration"] == 1


@on_asyncio
async def test_the_login_page_shows_that_the_provider_is_down(provider: FakeProvider, tmp_path: Path) -> None:
    answer = await at(provider, tmp_path, oidc_issuer=f"http://{NOWHERE}").get("/login/oidc")
    assert (answer.status_code, "location" in answer.headers) == (502, False)
    assert "The OIDC provider is unavailable." in answer.text
    assert "Log in with OIDC" in answer.text


@each("body, discovery", [
    *((body, {}) for body in (
        b"<html>", b"[]", b" " * 300_000, b'{"a":' * 50 + b"1" + b"}" * 50, b"{}", b'{"issuer": "https://evil.example"}')),
    *((None, discovery) for discovery in (
        {"authorization_endpoint": "http://evil.example/"}, {"token_endpoint": "javascript:alert(1)"}, {"jwks_uri": 1},
        {"id_token_signing_alg_values_supported": ["HS256", "none"]})),
])  # fmt: skip
@on_asyncio
async def test_what_is_no_discovery_document(tmp_path: Path, body: bytes | None, discovery: dict[str, Any]) -> None:
    with fake_provider() as provider:
        provider.body, provider.discovery = body, discovery
        client = at(provider, tmp_path)
        for _ in range(3):
            assert (await client.get("/login/oidc")).status_code == 502
        assert provider.asked["/.well-known/openid-configuration"] == 1  # not again within seconds


@on_asyncio
async def test_a_refusal_by_the_provider(client: httpx.AsyncClient, provider: FakeProvider, tmp_path: Path) -> None:
    for error, shown in (("access_denied", "access_denied"), ("<b>", "unknown error")):
        state = asked(await begin(client))["state"]
        refusal = {"error": error, "state": state, "error_description": "<i>no</i>"}
        answer = await client.get("/login/oidc/callback", params=refusal)
        refused(tmp_path, answer, 400, f"refused the login ({shown})", f"the provider answered {shown}")
        assert "<i>no" not in answer.text


@on_asyncio
async def test_codes_that_are_made_up_are_counted_and_failures_of_the_provider_are_not(
    client: httpx.AsyncClient, provider: FakeProvider, tmp_path: Path
) -> None:
    async def tries(client: httpx.AsyncClient, count: int) -> list[int]:
        found = []
        for _ in range(count):
            state = asked(await begin(client))["state"]
            found.append((await client.get("/login/oidc/callback", params={"code": "x", "state": state})).status_code)
        return found

    await begin(client)  # discovery is known now
    provider.body, provider.status = b"down", 503
    assert await tries(client, 25) == [502] * 25
    provider.body, provider.status = None, 0
    assert not (tmp_path / "audit").exists()
    assert await tries(client, 25) == [400] * 20 + [429] * 5
    assert len(audited(tmp_path)) == 20
    assert provider.asked["/token_endpoint"] == 45


@on_asyncio
async def test_without_a_login_all_is_refused_even_without_a_file_of_users(client: httpx.AsyncClient) -> None:
    found = [(await client.get(path)).status_code for path in ("/", "/api/nodes", "/config/log_level")]
    assert found == [303, 401, 401]


def test_files_of_no_use_end_the_start(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    options = AdminOptions(oidc_issuer="https://x", oidc_client_secret_file=str(secret))
    for content, mode, words in (
        ("", 0o600, "expected a secret of 1 to 1024"),
        ("ü", 0o600, "expected a secret"),
        ("word", 0o604, "all users of this machine can read it"),
    ):
        secret.write_text(content)
        secret.chmod(mode)
        with pytest.raises(ValueError, match=words):
            open_provider(options)
    secret.unlink()
    with pytest.raises(ValueError, match=r"--oidc-client-secret-file .*secret: No such file"):
        open_provider(options)
    for content, words in (("nonsense", "NO_CERTIFICATE"), (None, "No such file")):
        if content is not None:
            (tmp_path / "ca").write_text(content)
        else:
            (tmp_path / "ca").unlink()
        with pytest.raises(ValueError, match=rf"--oidc-root-ca-file .*ca: .*{words}"):
            open_provider(AdminOptions(oidc_issuer="https://x", oidc_root_ca_file=str(tmp_path / "ca")))
