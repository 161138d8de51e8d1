"""Keys of a provider and ID tokens: which count, and that nothing hostile raises anything else."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from admin.users.oidc_token import ALGORITHMS, MOST_TOKEN, Expected, TokenError, claims_of, read_keys, usable_algorithms
from tests.admin.fake_provider import make_key, signed_by_secret, unsigned
from tests.cases import each

RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
NOW = 1_800_000_000
EXPECTED = Expected("https://issuer", "client", "nonce", "")
CLAIMS = {"iss": "https://issuer", "aud": "client", "sub": "1", "nonce": "nonce", "iat": NOW, "exp": NOW + 60}


def signed(claims: dict[str, Any], key: RSAKey = RSA) -> str:
    return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key, algorithms=["RS256"])


def public(*keys: Any) -> dict[str, Any]:
    return {"keys": [key.as_dict(private=False) for key in keys]}


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256")], ids=["RS", "PS", "ES"])
def test_each_kind_of_key(key: Any, algorithm: str) -> None:
    token = jwt.encode({"alg": algorithm, "kid": key.kid}, CLAIMS, key, algorithms=[algorithm])
    assert claims_of(token, read_keys(public(RSA, EC)), ALGORITHMS, EXPECTED, NOW)["sub"] == "1"
    with pytest.raises(TokenError, match="not allowed"):
        claims_of(token, read_keys(public(RSA, EC)), ["EdDSA"], EXPECTED, NOW)
    with pytest.raises(TokenError, match="no algorithm is allowed"):
        claims_of(token, read_keys(public(RSA, EC)), ["HS256", "none"], EXPECTED, NOW)


def test_keys_of_no_use_are_left_out() -> None:
    secret = OctKey.generate_key(256)
    others = [{**RSA.as_dict(private=False), "use": "enc"}, {"kty": "AKP"}, {"kty": "RSA", "n": 1}, 7, None]
    found = read_keys({"keys": [*others, secret.as_dict(private=True), RSA.as_dict(private=False)]})
    assert [key.kid for key in found] == ["rsa"]


@each("answer", [{}, {"keys": {}}, {"keys": []}, {"keys": [{"kty": "oct", "k": "YQ"}]}, {"keys": [{}] * 101}])  # fmt: skip
def test_what_is_no_set_of_keys(answer: dict[str, Any]) -> None:
    with pytest.raises(TokenError):
        read_keys(answer)


def test_algorithms_that_are_safe() -> None:
    assert usable_algorithms(None) == ["RS256"]
    assert usable_algorithms(["none", "HS256", "ES256", "RS256", 7]) == ["RS256", "ES256"]
    for stated in (["none"], ["HS256"], []):
        with pytest.raises(TokenError):
            usable_algorithms(stated)


@each("changed", [
    {"exp": float("nan")}, {"exp": True}, {"exp": "x"}, {"exp": NOW - 90}, {"exp": None}, {"iat": None}, {"iat": 1 << 40},
    {"aud": {}}, {"aud": []}, {"aud": "another"}, {"aud": ["client", "another"]}, {"nonce": 7}, {"nonce": "another"},
    {"iss": ["https://issuer"]}, {"iss": "https://another"}, {"azp": ["client"]}, {"azp": "another"}, {"nbf": NOW + 3600},
    {"sub": None},
])  # fmt: skip
def test_claims_that_are_wrong_missing_or_of_another_time(changed: dict[str, Any]) -> None:
    claims = {name: value for name, value in (CLAIMS | changed).items() if value is not None}
    with pytest.raises(TokenError):
        claims_of(signed(claims), read_keys(public(RSA)), ALGORITHMS, EXPECTED, NOW)
    assert claims_of(signed(CLAIMS | {"exp": NOW - 30}), read_keys(public(RSA)), ALGORITHMS, EXPECTED, NOW)


@each("forge, why", [
    (lambda: unsigned(CLAIMS), "UnsupportedAlgorithmError"), (lambda: signed_by_secret(CLAIMS, RSA), "UnsupportedAlgorithm"),
    (lambda: signed(CLAIMS, make_key("rsa")), "BadSignatureError"), (lambda: signed(CLAIMS, make_key("two")), "a key"),
])  # fmt: skip
def test_a_token_that_the_provider_has_not_signed(forge: Callable[[], str], why: str) -> None:
    with pytest.raises(TokenError, match=why):
        claims_of(forge(), read_keys(public(RSA)), ALGORITHMS, EXPECTED, NOW)


@given(
    st.text(max_size=50) | st.from_regex(r"[A-Za-z0-9_-]{0,20}(\.[A-Za-z0-9_-]{0,20}){0,4}") | st.none() | st.integers()
)
def test_what_is_no_token(token: object) -> None:
    with pytest.raises(TokenError):
        claims_of(token, read_keys(public(RSA)), ALGORITHMS, EXPECTED, NOW)
    with pytest.raises(TokenError, match="without an ID token"):
        claims_of("x" * (MOST_TOKEN + 1), read_keys(public(RSA)), ALGORITHMS, EXPECTED, NOW)
