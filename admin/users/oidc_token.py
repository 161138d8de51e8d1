"""ID tokens: whether one is genuine, of this client and this login, and valid now. Pure: keys and time come in.

Only signatures by a private key of the provider count: `none` is no signature, and the secret of HS256 would be the public key,
which an attacker may know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import Key, KeySet, RSAKey, import_key
from joserfc.jws import JWSRegistry

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
DEFAULT = "RS256"  # of a provider that does not say how it signs
LEEWAY = 60  # s that the clocks of provider and nsqadmin may differ
KEY_TYPES = ("RSA", "EC", "OKP")  # not "oct", which is a shared secret
MOST_KEYS = 100
LEAST_BITS, MOST_BITS = 2048, 8192  # of an RSA key; with a longer one a signature takes long to verify
MOST_TOKEN = 64 * 1024  # characters
# what joserfc and authlib raise for hostile content: their own errors, and those of Python for values of other types
_WRONG = (JoseError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


class TokenError(Exception):
    """The token or the keys cannot be used. The text is the reason, one line that quotes no token."""


class UnknownKeyError(TokenError):
    """The token was signed by a key that is not among the keys: the provider may have made another one since."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The claims that an ID token must have to be taken for this login."""

    issuer: str
    client_id: str
    nonce: str
    access_token: str  # that came with it; "": none


def usable_algorithms(stated: object) -> list[str]:
    """Return the algorithms that a provider states and that are safe. Raises TokenError if there is none."""
    names = stated if isinstance(stated, list) else [DEFAULT]
    found = [name for name in ALGORITHMS if name in names]
    if not found:
        raise TokenError(f"the provider signs by none of {', '.join(ALGORITHMS)}")
    return found


def read_keys(answer: Mapping[str, Any]) -> KeySet:
    """Return the usable keys of a JWKS. Raises TokenError if there is none."""
    given = answer.get("keys")
    if not isinstance(given, list) or len(given) > MOST_KEYS:
        raise TokenError(f"the provider's JWKS has no list of at most {MOST_KEYS} keys")
    keys = [key for key in map(_read_key, given) if key is not None]
    if not keys:
        raise TokenError("the provider's JWKS has no usable key")
    return KeySet(keys)


def _read_key(given: object) -> Key | None:
    """Return a key, or None for one that is of no use here: others of the same set may be."""
    if not isinstance(given, dict) or given.get("kty") not in KEY_TYPES or given.get("use", "sig") != "sig":
        return None
    try:
        key = import_key(given)
        if isinstance(key, RSAKey) and not LEAST_BITS <= key.raw_value.key_size <= MOST_BITS:
            return None
    except _WRONG:
        return None
    return key


def claims_of(token: object, keys: KeySet, algorithms: Iterable[str], expected: Expected, now: float) -> dict[str, Any]:
    """Return the claims of a token. `now`: s since the epoch. Raises TokenError, UnknownKeyError."""
    allowed = [name for name in algorithms if name in ALGORITHMS]
    if not isinstance(token, str) or not 0 < len(token) <= MOST_TOKEN:
        raise TokenError("the provider answered without an ID token")
    if not allowed:  # joserfc would take its own list, which has HS256
        raise TokenError("no algorithm is allowed")
    try:
        decoded = jwt.decode(token, keys, registry=JWSRegistry(algorithms=allowed, strict_check_header=False))
    except InvalidKeyIdError:
        raise UnknownKeyError("the ID token was signed by a key that the provider's JWKS does not have") from None
    except _WRONG as error:
        raise TokenError(f"the ID token is not valid: {_short(error)}") from None
    wanted = {
        "iss": {"essential": True, "value": expected.issuer},
        "aud": {"essential": True, "value": expected.client_id},
    }
    context = {"nonce": expected.nonce, "client_id": expected.client_id, "access_token": expected.access_token}
    try:
        CodeIDToken(decoded.claims, decoded.header, wanted, context).validate(now=int(now), leeway=LEEWAY)
    except _WRONG as error:
        raise TokenError(f"the ID token is not valid: {_short(error)}") from None
    return dict(decoded.claims)


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
